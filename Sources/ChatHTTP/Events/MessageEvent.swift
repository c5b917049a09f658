import ChatDomain
import NIOCore
import Synchronization

/// A message as streams write it. Streams of one form get the same bytes, except the sender's. They are made when the
/// first stream asks for them.
final class MessageEvent: Sendable {
    /// The maximum number of forms whose bytes are kept. Further forms are made for each stream.
    private static let maxForms = 16

    private struct Form {
        let key: String
        let isOwn: Bool
        let bytes: ByteBuffer
    }

    let message: Message
    let source: StreamSource
    private let forms = Mutex<[Form]>([])

    init(_ message: Message, in source: StreamSource) {
        self.message = message
        self.source = source
    }

    var id: MessageID { message.id }

    func bytes(as form: StreamForm, for reader: MemberID) -> ByteBuffer {
        let isOwn = reader == message.sender
        return forms.withLock { forms in
            if let known = forms.first(where: { $0.isOwn == isOwn && $0.key == form.key }) { return known.bytes }
            let bytes = form.bytes(form.format.message(message, in: source, isOwn: isOwn))
            if forms.count < Self.maxForms { forms.append(Form(key: form.key, isOwn: isOwn, bytes: bytes)) }
            return bytes
        }
    }

    /// The size in memory, in bytes.
    var size: Int {
        let content = message.content
        let texts = [message.text, content.title, content.link, content.extras.stored]
        let size = texts.reduce(0) { $0 + ($1?.utf8.count ?? 0) }
        return forms.withLock { $0.reduce(size) { $0 + $1.bytes.readableBytes } }
    }

    /// Merges the messages of several sources in the order of their ids.
    ///
    /// - Parameters:
    ///   - pages: The next messages of each source.
    ///   - limit: The maximum number of messages of a page. After a full page, its source may have more.
    static func merge(_ pages: [some RandomAccessCollection<MessageEvent>], limit: Int) -> [MessageEvent] {
        let last = pages.compactMap { $0.count < limit ? nil : $0.last?.id }.min() ?? .max
        return pages.joined().filter { $0.id <= last }.sorted { $0.id < $1.id }
    }
}

/// The first of some messages, up to the size of one write.
struct EventWrite {
    /// The bytes to write. Empty if the stream's format includes none of the messages.
    private(set) var bytes = ByteBuffer()
    /// The number of messages, including those that the format leaves out.
    private(set) var count = 0
    /// The last message in ``bytes``.
    private(set) var last: MessageID?

    init(_ events: some Collection<MessageEvent>, as form: StreamForm, for reader: MemberID) {
        for event in events {
            if form.format.includes(event.message, in: event.source) {
                var more = event.bytes(as: form, for: reader)
                if last == nil {
                    // The bytes of a single event are not copied: all streams of the room share them.
                    bytes = more
                } else {
                    guard bytes.readableBytes + more.readableBytes <= HTTPLimits.streamWrite else { break }
                    bytes.writeBuffer(&more)
                }
                last = event.id
            }
            count += 1
        }
    }
}
