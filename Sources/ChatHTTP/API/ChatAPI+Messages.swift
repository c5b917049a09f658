import ChatDomain
import HTTPTypes
import Hummingbird
import Logging

/// `message` and `messages`.
extension ChatAPI {
    func post(_ call: Call) async throws(ChatError) -> Response {
        let member = try call.member()
        let text = try MessageText(parsing: call.form.required(.text), limit: call.settings.textLimit)
        let key = try IdempotencyKey.text(call.headers)
        let client = try call.client()
        try rates.admit(member, limit: call.settings.memberRate)
        let receipt: PostReceipt
        do throws(ChatError) {
            receipt = try await rooms.post(
                PostRequest(member: member, text: text, idempotencyKey: key, client: client))
        } catch {
            throw call.spelt(error)
        }
        logger.info(
            "message accepted",
            metadata: [
                LogKeys.requestID: "\(call.requestID)", LogKeys.message: "\(receipt.message)",
                LogKeys.queued: "\(receipt.queued)", LogKeys.isRepeat: "\(receipt.isRepeat)",
            ])
        var response: Response
        if call.wantsJSON {
            var json = JSONText()
            json.raw(#"{"ok":true,"id":\#(receipt.message)}"#)
            response = Answers.json(json)
        } else {
            response = Answers.ok(asJSON: false)
        }
        if receipt.isRepeat { response.headers.append(HTTPField(name: .idempotencyReplayed, value: "true")) }
        return response
    }

    /// Answers in JSON, whatever the client accepts: there is no other form of a list.
    func messages(_ call: Call) async throws(ChatError) -> Response {
        let member = try call.member()
        let since = try Self.number(call, .since, "must be a whole number, 0 or more") { $0 >= 0 }
        let limits = HTTPLimits.messages
        let limit = try Self.number(
            call, .limit, "must be a whole number from \(limits.lowerBound) to \(limits.upperBound)"
        ) { limits.contains(Int(clamping: $0)) }
        try rates.admit(member, limit: call.settings.memberRate)
        let page: MessagePage
        do throws(ChatError) {
            page = try await rooms.messages(
                for: member, since: since, limit: limit.map { Int(clamping: $0) } ?? HTTPLimits.defaultMessages)
        } catch {
            throw call.spelt(error)
        }
        return Answers.json(Self.json(page, for: member))
    }

    static func json(_ page: MessagePage, for reader: MemberID) -> JSONText {
        var json = JSONText()
        json.raw(#"{"messages":["#)
        for (index, message) in page.messages.enumerated() {
            if index > 0 { json.raw(",") }
            json.message(message, isOwn: message.sender == reader)
        }
        json.raw(#"],"next":\#(page.next)}"#)
        return json
    }

    /// An optional field of digits; nil if absent or blank.
    private static func number(
        _ call: Call, _ field: FormField, _ rule: String, _ isValid: (Int64) -> Bool
    ) throws(ChatError) -> Int64? {
        guard let text = try call.form.text(field) else { return nil }
        let digits = FieldText.trimmed(text)
        guard !digits.isEmpty else { return nil }
        guard digits.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }),
            let number = Int64(digits), isValid(number)
        else { throw .invalid(field.rawValue, rule) }
        return number
    }
}

extension JSONText {
    /// A message as a member of its room may read it.
    mutating func message(_ message: Message, isOwn: Bool) {
        raw(#"{"id":\#(message.id),"name":"#)
        string(message.nickname)
        raw(#","text":"#)
        string(message.text)
        raw(#","sent_at":"\#(message.sentAt.rfc3339)","own":\#(isOwn)}"#)
    }
}
