/// The lines that were logged and are not written yet: what is taken in, what is lost, and when there is room again.
///
/// Once it is full, it takes in nothing until half of it is free. So a reader that is slow costs a gap now and then,
/// and it is said once for each gap how many lines are missing there, at the place where they are missing.
struct LogBacklog: Sendable {
    enum Content: Sendable {
        case line([UInt8])
        /// To be formatted when it is written.
        case record(LogRecord, LogFormat)
        /// So many lines were lost here.
        case gap(Int)
    }

    struct Entry: Sendable {
        let content: Content
        /// Of the limit.
        let bytes: Int
    }

    /// Bytes that an entry costs beside its text, so that a flood of empty lines has a bound too.
    static let overhead = 128

    /// Bytes, the ``overhead`` included.
    private let limit: Int
    /// Not taken by the writer yet, oldest first.
    private var entries: [Entry] = []
    /// Bytes of the entries, and of those that the writer took and did not finish.
    private(set) var size = 0
    /// From the first line that did not fit until half of the room is free.
    private(set) var isFull = false
    /// Lines lost after the last entry.
    private var lost = 0
    /// Entries that were taken in, ever.
    private(set) var accepted: UInt64 = 0
    /// Of these, how many the writer finished.
    private(set) var finished: UInt64 = 0

    init(limit: Int) {
        self.limit = limit
    }

    /// - Parameter bytes: of its text.
    /// - Returns: false if there is no room for it. One alone always has.
    mutating func add(_ content: Content, bytes: Int) -> Bool {
        let entry = Entry(content: content, bytes: bytes + Self.overhead)
        guard !isFull, size == 0 || size + entry.bytes <= limit else {
            isFull = true
            return false
        }
        sayGap()
        entries.append(entry)
        size += entry.bytes
        accepted += 1
        return true
    }

    /// Counts a line for which there was no room.
    mutating func lose() {
        lost += 1
    }

    /// Makes the gap an entry, if there is one and it has ended.
    mutating func sayGap() {
        guard lost > 0, !isFull else { return }
        entries.append(Entry(content: .gap(lost), bytes: 0))
        accepted += 1
        lost = 0
    }

    /// Gives the writer everything that waits, and takes an empty array for what will.
    mutating func take(_ empty: consuming [Entry]) -> [Entry] {
        sayGap()
        swap(&entries, &empty)
        return empty
    }

    /// The writer wrote so many of the entries that it took, or gave them up.
    mutating func finish(_ count: Int, bytes: Int) {
        finished += UInt64(count)
        size -= bytes
        if size <= limit / 2 { isFull = false }
    }
}
