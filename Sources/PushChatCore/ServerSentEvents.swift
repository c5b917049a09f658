/// An event of a stream of Server-Sent Events (WHATWG HTML, "Server-sent events").
package struct ServerSentEvent: Sendable, Hashable {
    package var name = "message"
    /// The stream's position after the event. An event with only an id marks the position at which the stream begins.
    package var id: String?
    package var data = ""

    package init(name: String = "message", id: String? = nil, data: String = "") {
        self.name = name
        self.id = id
        self.data = data
    }
}

/// Parses the bytes of a stream into events, whatever pieces they arrive in. Lines end with a line feed; a carriage
/// return before it is optional.
package struct ServerSentEventParser: Sendable {
    /// The size limit in bytes of one event. It is far above the event of the longest message.
    package static let maximumEvent = 256 * 1024

    private var line: [UInt8] = []
    private var event = ServerSentEvent()
    private var isEmpty = true
    private var size = 0

    package init() {}

    /// Reads more bytes.
    ///
    /// - Returns: The events that these bytes complete.
    /// - Throws: ``PushChatError/unexpectedResponse(_:)`` for an event of more than ``maximumEvent`` bytes, or one that
    ///   is not UTF-8.
    package mutating func read(_ bytes: some Sequence<UInt8>) throws(PushChatError) -> [ServerSentEvent] {
        var events: [ServerSentEvent] = []
        for byte in bytes {
            guard byte == UInt8(ascii: "\n") else {
                size += 1
                guard size <= Self.maximumEvent else {
                    throw .unexpectedResponse("the stream has an event of more than \(Self.maximumEvent) bytes")
                }
                line.append(byte)
                continue
            }
            if line.last == UInt8(ascii: "\r") { line.removeLast() }
            if line.isEmpty {
                if !isEmpty { events.append(event) }
                (event, isEmpty, size) = (ServerSentEvent(), true, 0)
            } else {
                try take(line)
            }
            line.removeAll(keepingCapacity: true)
        }
        return events
    }

    private mutating func take(_ line: [UInt8]) throws(PushChatError) {
        let parts = line.split(separator: UInt8(ascii: ":"), maxSplits: 1, omittingEmptySubsequences: false)
        var rest = parts.count > 1 ? parts[1] : []
        if rest.first == UInt8(ascii: " ") { rest = rest.dropFirst() }
        guard let name = Self.text(parts[0]), let value = Self.text(rest) else {
            throw .unexpectedResponse("the stream is not UTF-8")
        }
        switch name {
        case "event": event.name = value
        case "id": event.id = value
        case "data": event.data += (event.data.isEmpty ? "" : "\n") + value
        // Skip comments, which have no name, and fields that have no meaning here.
        default: return
        }
        isEmpty = false
    }

    /// `String(validating:as:)` needs a later system than this package.
    private static func text(_ bytes: ArraySlice<UInt8>) -> String? {
        let text = String(decoding: bytes, as: UTF8.self)
        return text.utf8.elementsEqual(bytes) ? text : nil
    }
}
