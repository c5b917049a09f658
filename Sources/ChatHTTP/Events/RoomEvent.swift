import ChatDomain
import NIOCore
import Synchronization

/// A message, or a change of one, as streams write it. Streams of one form get the same bytes, except the sender's. They
/// are made when the first stream asks for them.
final class RoomEvent: Sendable {
    /// The maximum number of forms whose bytes are kept. Further forms are made for each stream.
    private static let maxForms = 16

    private struct Form {
        let key: String
        let isOwn: Bool
        let bytes: ByteBuffer?
    }

    let entry: RoomEntry
    let source: StreamSource
    private let forms = Mutex<[Form]>([])

    init(_ entry: RoomEntry, in source: StreamSource) {
        self.entry = entry
        self.source = source
    }

    var id: MessageID { entry.id }

    /// The message, or the one that was changed.
    var messageID: MessageID {
        switch entry {
        case .message(let message): message.id
        case .change(let change, _): change.message
        }
    }

    var isMessage: Bool { if case .message = entry { true } else { false } }

    /// Returns the event's bytes. `nil` if the form has no such event.
    func bytes(as form: StreamForm, for reader: MemberID) -> ByteBuffer? {
        let isOwn = reader == entry.message?.sender
        return forms.withLock { forms in
            if let known = forms.first(where: { $0.isOwn == isOwn && $0.key == form.key }) { return known.bytes }
            let text: String? =
                switch entry {
                case .message(let message): form.format.message(message, in: source, isOwn: isOwn)
                case .change(let change, let message): form.format.change(change, message, in: source, isOwn: isOwn)
                }
            let bytes = text.map(form.bytes)
            if forms.count < Self.maxForms { forms.append(Form(key: form.key, isOwn: isOwn, bytes: bytes)) }
            return bytes
        }
    }

    /// The size in memory, in bytes.
    var size: Int {
        let content = entry.message?.content
        let texts = [content?.text.text, content?.title, content?.link, content?.extras.stored]
        let size = texts.reduce(0) { $0 + ($1?.utf8.count ?? 0) }
        return forms.withLock { $0.reduce(size) { $0 + ($1.bytes?.readableBytes ?? 0) } }
    }

    /// Merges the events of several sources in the order of their ids.
    ///
    /// - Parameters:
    ///   - pages: The next events of each source.
    ///   - limit: The maximum number of events of a page. After a full page, its source may have more.
    static func merge(_ pages: [some RandomAccessCollection<RoomEvent>], limit: Int) -> [RoomEvent] {
        let last = pages.compactMap { $0.count < limit ? nil : $0.last?.id }.min() ?? .max
        return pages.joined().filter { $0.id <= last }.sorted { $0.id < $1.id }
    }
}

/// The first of some events, up to the size of one write.
struct EventWrite {
    /// The bytes to write. Empty if the stream gets none of the events.
    private(set) var bytes = ByteBuffer()
    /// The number of events, including those that the stream does not get.
    private(set) var count = 0
    /// The last message in ``bytes``.
    private(set) var lastMessage: MessageID?

    /// - Parameter mayRead: Whether the stream's reader may read an event.
    init(
        _ events: some Collection<RoomEvent>, as form: StreamForm, for reader: MemberID,
        mayRead: (RoomEvent) -> Bool = { _ in true }
    ) {
        for event in events {
            if mayRead(event), form.format.includes(event.entry, in: event.source),
                var more = event.bytes(as: form, for: reader)
            {
                if bytes.readableBytes == 0 {
                    // The bytes of a single event are not copied: all streams of the room share them.
                    bytes = more
                } else {
                    guard bytes.readableBytes + more.readableBytes <= HTTPLimits.streamWrite else { break }
                    bytes.writeBuffer(&more)
                }
                if event.isMessage { lastMessage = event.id }
            }
            count += 1
        }
    }
}
