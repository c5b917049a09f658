import ChatDomain

/// An event of a stream of Server-Sent Events (WHATWG HTML, "Server-sent events").
struct ServerSentEvent: Equatable {
    var name = "message"
    /// Where the stream is after it; an event that has nothing but its id says where the stream begins.
    var id: String?
    var data = ""
}

/// Reads events out of the bytes of a stream, in whatever pieces they come. Lines end with a line feed, with or without a
/// carriage return before it.
struct EventStreamParser {
    /// Bytes of one event: far above that of the longest message.
    static let maximumEvent = 256 * 1024

    private var line: [UInt8] = []
    private var event = ServerSentEvent()
    private var isEmpty = true
    private var size = 0

    /// - Throws: a ``Failure`` for an event with more than ``maximumEvent`` bytes, or one that is not UTF-8.
    mutating func read(_ bytes: some Sequence<UInt8>) throws -> [ServerSentEvent] {
        var events: [ServerSentEvent] = []
        for byte in bytes {
            guard byte == UInt8(ascii: "\n") else {
                size += 1
                guard size <= Self.maximumEvent else {
                    throw Failure("the stream has an event of more than \(Self.maximumEvent) bytes")
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

    private mutating func take(_ line: [UInt8]) throws {
        let parts = line.split(separator: UInt8(ascii: ":"), maxSplits: 1, omittingEmptySubsequences: false)
        var rest = parts.count > 1 ? parts[1] : []
        if rest.first == UInt8(ascii: " ") { rest = rest.dropFirst() }
        guard let name = String(validating: parts[0], as: UTF8.self),
            let value = String(validating: rest, as: UTF8.self)
        else { throw Failure("the stream is not UTF-8") }
        switch name {
        case "event": event.name = value
        case "id": event.id = value
        case "data": event.data += (event.data.isEmpty ? "" : "\n") + value
        // Comments, which have no name, and fields that mean nothing here.
        default: return
        }
        isEmpty = false
    }
}
