import ChatDomain

extension Message {
    /// Writes a JSON object for a member of the room. Writes the text directly, without a ``JSONValue``, because lists
    /// and streams contain many messages.
    func writeJSON(isOwn: Bool, to text: inout String) {
        text += #"{"id":\#(id),"name":""#
        JSONString.escape(nickname, into: &text)
        text += #"","text":""#
        JSONString.escape(self.text, into: &text)
        for (key, value) in [("title", content.title), ("link", content.link)] {
            guard let value else { continue }
            text += "\",\"\(key)\":\""
            JSONString.escape(value, into: &text)
        }
        text += #"","sent_at":"\#(sentAt.rfc3339)","own":\#(isOwn)"#
        if sender.isProgram { text += #","program":true"# }
        if content.isUrgent { text += #","urgent":true"# }
        for (name, value) in content.extras.shown { text += ",\"\(name)\":\(value)" }
        text += "}"
    }
}

extension MessageChange {
    /// Whether there is anything to read. Retention may have deleted the message of an earlier change.
    func isReadable(with message: Message?) -> Bool { message != nil || kind == .deleted }

    /// Writes the JSON object of the changed message. Only its id if it was deleted.
    func writeJSON(_ message: Message?, isOwn: Bool, to text: inout String) {
        guard let message else { return text += #"{"id":\#(self.message)}"# }
        message.writeJSON(isOwn: isOwn, to: &text)
    }
}

extension MessageRecord {
    /// Returns the message as JSON.
    ///
    /// - Parameter withText: Whether to include the text. Operators who monitor deliveries do not need it.
    func json(withText: Bool) -> JSONObject {
        var json: JSONObject = [
            "id": .number(message.id), "room": .string(room.text), "name": .string(message.nickname),
            "bytes": .number(message.text.utf8.count), "sent_at": .time(message.sentAt),
        ]
        if message.sender.isProgram { json["program"] = .bool(true) }
        if message.content.isUrgent { json["urgent"] = .bool(true) }
        guard withText else { return json }
        json["text"] = .string(message.text)
        json["title"] = .optional(message.content.title)
        json["link"] = .optional(message.content.link)
        for (name, value) in message.content.extras.shown { json[name] = value }
        return json
    }
}
