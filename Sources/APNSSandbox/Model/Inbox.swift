/// What arrived, in order, bounded: the oldest entries go when there are too many or their payloads too large together.
package struct Inbox: Sendable {
    /// Entries that are kept when nothing else is asked for.
    package static let defaultLimit = 100_000
    /// Bytes of all payloads and headers kept: a full inbox of notifications of ordinary size, and never a machine's memory.
    package static let byteLimit = 64 << 20
    /// Vacated places that are tolerated before the storage is moved up.
    private static let slack = 1024

    let limit: Int
    let byteLimit: Int
    /// The id of the newest entry there ever was; 0 before the first.
    private(set) var lastID = 0
    /// Entries that had to go to make room. Clearing is not counted.
    private(set) var dropped = 0
    private(set) var bytes = 0
    private var entries: [InboxEntry?] = []
    private var first = 0

    init(limit: Int = Inbox.defaultLimit, byteLimit: Int = Inbox.byteLimit) {
        self.limit = max(1, limit)
        self.byteLimit = byteLimit
    }

    var count: Int { entries.count - first }

    /// Appends the entry that `make` makes with the next id.
    mutating func append(_ make: (Int) -> InboxEntry) {
        lastID += 1
        let entry = make(lastID)
        bytes += entry.size
        entries.append(entry)
        while count > limit || bytes > byteLimit && count > 1 {
            dropFirst()
        }
    }

    mutating func clear() {
        entries = []
        first = 0
        bytes = 0
    }

    /// A page of entries.
    /// - Parameters:
    ///   - since: only entries with a higher id.
    ///   - token: only entries with this token.
    ///   - gateway: only entries that came by this protocol.
    ///   - answer: only entries with this ``InboxEntry/Answer/name``.
    /// - Returns: at most `limit` entries, oldest first, and the id to pass as `since` for what comes after them.
    func page(
        since: Int, token: [UInt8]? = nil, gateway: GatewayProtocol? = nil, answer: String? = nil, limit: Int
    ) -> (entries: [InboxEntry], next: Int) {
        let oldest = lastID - count + 1
        var page: [InboxEntry] = []
        for index in (first + min(max(0, since - oldest + 1), count))..<entries.count {
            guard let entry = entries[index], token == nil || entry.token == token,
                gateway == nil || entry.gateway == gateway, answer == nil || entry.answer.name == answer
            else { continue }
            page.append(entry)
            if page.count == limit { return (page, entry.id) }
        }
        return (page, lastID)
    }

    private mutating func dropFirst() {
        bytes -= entries[first]?.size ?? 0
        entries[first] = nil
        first += 1
        dropped += 1
        // Moved only when half of the storage is vacant, so that each entry is moved once on average.
        if first > Self.slack, first > entries.count / 2 {
            entries.removeFirst(first)
            first = 0
        }
    }
}
