import Dispatch
import Foundation
import Synchronization

/// Writes the log's lines to a file descriptor, from a thread of its own: a caller only adds to a backlog.
///
/// - A line is written at once when the log is quiet, else within ``collectTime``. A record of level `error` or above is
///   waited for, so that it is in the log whatever happens next, but not longer than ``waitLimit``.
/// - Lines come in the order in which they were logged and never mix: each `write(2)` has whole lines.
/// - When nobody reads the other end, ``limit`` bytes wait. Then a line waits ``waitLimit`` for room, because a slow reader
///   makes it in less; after that lines are dropped at once, until half of the room is free. The log must not stop the
///   relay. The number of lost lines is written where they are missing.
/// - When the other end is closed, or the disk is full, lines are dropped at once.
/// - What was logged before ``flush(within:)`` is written when that returns. `exit` flushes standard error too, hence also
///   the end of `main`. A fatal signal, a Swift trap, or `_exit` loses what was logged below `error` in the last
///   milliseconds (``collectTime``).
final class LogWriter: Sendable {
    static let standardError: LogWriter = {
        atexit { _ = LogWriter.standardError.flush() }
        return LogWriter(STDERR_FILENO)
    }()

    /// Bytes of lines that wait to be written: some 15,000 lines, a few seconds of a relay at its busiest, while the disk
    /// under the log is slow. In memory it is two or three times as much.
    static let limit = 4 << 20
    /// How long a line waits for room, and one of level `error` or above to be written.
    static let waitLimit = DispatchTimeInterval.milliseconds(100)
    /// How long the thread collects lines while the log is busy. Then it wakes at most 50 times a second.
    static let collectTime = DispatchTimeInterval.milliseconds(20)
    /// How long the end of the process waits for a log that nobody reads.
    static let flushLimit = DispatchTimeInterval.seconds(2)
    /// Bytes of lines that are made before they are written.
    private static let groupSize = 64 << 10
    /// For how many entries the thread keeps memory, after it needed more.
    private static let keptEntries = 4096

    private enum Activity {
        /// Takes what there is before it waits again.
        case awake
        /// Waits for more lines, for a moment.
        case collecting
        /// Waits for a line.
        case idle
    }

    private struct State {
        var backlog: LogBacklog
        var thread = Activity.awake
        /// The descriptor has not taken bytes for a while.
        var isStalled = false
        /// When those who wait for room give up; nil while there is room.
        var roomDeadline: DispatchTime?
        /// Who waits: for room (nil), or for a number of entries to be finished.
        var waiters: [(count: UInt64?, signal: MonotonicSignal)] = []
        var closeDeadline: DispatchTime?
    }

    private let descriptor: Int32
    private let waitLimit: DispatchTimeInterval
    /// At so many bytes the thread is woken while it collects.
    private let wakeSize: Int
    private let state: Mutex<State>
    private let wake = MonotonicSignal()
    private let ended = MonotonicSignal()

    /// The descriptor stays the caller's, who closes it after ``close(within:)``.
    init(
        _ descriptor: Int32, limit: Int = LogWriter.limit, waitLimit: DispatchTimeInterval = LogWriter.waitLimit
    ) {
        self.descriptor = descriptor
        self.waitLimit = waitLimit
        wakeSize = limit / 4
        state = Mutex(State(backlog: LogBacklog(limit: limit)))
        let thread = Thread { [self] in run() }
        thread.name = "log"
        thread.start()
    }

    // MARK: Threads that log

    func write(_ record: LogRecord, _ format: LogFormat) {
        if let size = record.keptSize {
            add(.record(record, format), bytes: size)
        } else {
            write(record.line(format))
        }
        if record.level >= .error, !state.withLock({ $0.isStalled }) { flush(within: waitLimit) }
    }

    /// - Parameter line: at most ``LogRecord/maximumLine`` bytes, the line feed included.
    func write(_ line: [UInt8]) {
        add(.line(line), bytes: line.count)
    }

    /// Waits until everything that was logged before is written.
    ///
    /// - Returns: false if that was not the case in time.
    @discardableResult
    func flush(within limit: DispatchTimeInterval = LogWriter.flushLimit) -> Bool {
        let deadline = DispatchTime.now() + limit
        let signal = MonotonicSignal()
        let (isDone, wakes) = state.withLock { state in
            state.backlog.closeGap()
            let last = state.backlog.accepted
            guard state.backlog.finished < last else { return (true, false) }
            state.waiters.append((last, signal))
            let wakes = state.thread != .awake
            state.thread = .awake
            return (false, wakes)
        }
        if wakes { wake.signal() }
        return isDone || wait(signal, until: deadline)
    }

    /// Ends the thread, after it wrote what it can in that time.
    func close(within limit: DispatchTimeInterval = LogWriter.flushLimit) {
        let deadline = DispatchTime.now() + limit
        state.withLock { state in
            state.closeDeadline = deadline
            state.thread = .awake
        }
        wake.signal()
        // For another call.
        if ended.wait(until: deadline) { ended.signal() }
    }

    private func add(_ content: LogBacklog.Content, bytes: Int) {
        while true {
            let (isAdded, wakes) = state.withLock { state in
                let isAdded = state.backlog.add(content, bytes: bytes)
                let wakes = state.thread == .idle || state.thread == .collecting && state.backlog.size >= wakeSize
                if wakes { state.thread = .awake }
                return (isAdded, wakes)
            }
            if wakes { wake.signal() }
            if isAdded { return }
            guard waitForRoom() else { return state.withLock { $0.backlog.countLost() } }
        }
    }

    /// - Returns: false if there is none, and waiting did not help. The time that ``waitLimit`` allows begins when the room
    ///   ends.
    private func waitForRoom() -> Bool {
        let signal = MonotonicSignal()
        let deadline: DispatchTime? = state.withLock { state in
            guard state.backlog.isFull else { return nil }
            let deadline = state.roomDeadline ?? .now() + waitLimit
            state.roomDeadline = deadline
            // Not again and again, after the first has waited in vain.
            if deadline > .now() { state.waiters.append((nil, signal)) }
            return deadline
        }
        guard let deadline else { return true }
        return deadline > .now() && wait(signal, until: deadline)
    }

    private func wait(_ signal: MonotonicSignal, until deadline: DispatchTime) -> Bool {
        if signal.wait(until: deadline) { return true }
        state.withLock { $0.waiters.removeAll { $0.signal === signal } }
        return false
    }

    // MARK: The thread that writes

    private func run() {
        // Writing to a pipe without a reader shall fail with EPIPE. The signal comes to the thread that writes.
        var signals = sigset_t()
        sigemptyset(&signals)
        sigaddset(&signals, SIGPIPE)
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        var clock = LogClock()
        var lines = LineWriter(descriptor: descriptor, isWorthWaiting: { [self] in isWorthWaiting() })
        var entries: [LogBacklog.Entry] = []
        while next(&entries) {
            write(entries, &lines, &clock)
            entries.removeAll(keepingCapacity: entries.count <= Self.keptEntries)
            collect()
        }
        ended.signal()
    }

    /// Waits for entries, and takes all there are.
    ///
    /// - Parameter entries: an empty array, whose memory is used again.
    /// - Returns: false at the end.
    private func next(_ entries: inout [LogBacklog.Entry]) -> Bool {
        while true {
            let isClosed = state.withLock { state in
                state.backlog.take(&entries)
                if entries.isEmpty { state.thread = .idle }
                return state.closeDeadline != nil
            }
            if !entries.isEmpty || isClosed { return !entries.isEmpty }
            wake.wait()
        }
    }

    private func write(_ entries: [LogBacklog.Entry], _ output: inout LineWriter, _ clock: inout LogClock) {
        var lines: [UInt8] = []
        lines.reserveCapacity(Self.groupSize + LogRecord.maximumLine)
        var (count, bytes) = (0, 0)
        for (index, entry) in entries.enumerated() {
            count += 1
            bytes += entry.bytes
            switch entry.content {
            case .line(let line): lines += line
            case .record(let record, let format): record.append(format, to: &lines, clock: &clock)
            case .gap(let number):
                output.write(&lines)
                output.lost += number
            }
            guard lines.count >= Self.groupSize || index == entries.count - 1 else { continue }
            output.write(&lines)
            finish(count, bytes: bytes)
            (count, bytes) = (0, 0)
        }
    }

    private func finish(_ count: Int, bytes: Int) {
        let done = state.withLock { state in
            state.backlog.finish(count, bytes: bytes)
            state.isStalled = false
            let hasRoom = !state.backlog.isFull
            if hasRoom { state.roomDeadline = nil }
            let finished = state.backlog.finished
            var done: [MonotonicSignal] = []
            state.waiters.removeAll { count, signal in
                let isDone = count.map { $0 <= finished } ?? hasRoom
                if isDone { done.append(signal) }
                return isDone
            }
            return done
        }
        for signal in done { signal.signal() }
    }

    /// Waits for more lines, unless a thread waits for those that there are.
    private func collect() {
        let isQuiet = state.withLock { state in
            guard state.waiters.isEmpty, state.closeDeadline == nil else { return false }
            state.thread = .collecting
            return true
        }
        guard isQuiet else { return }
        _ = wake.wait(until: .now() + Self.collectTime)
        state.withLock { $0.thread = .awake }
    }

    /// Asked when the descriptor takes no bytes.
    private func isWorthWaiting() -> Bool {
        state.withLock { state in
            state.isStalled = true
            return state.closeDeadline.map { $0 > .now() } ?? true
        }
    }
}

/// The lines that were logged and are not written yet: which are accepted, which are lost, and when there is room again.
///
/// Once it is full, it accepts nothing until half of it is free. So a slow reader costs a gap now and then, and each gap
/// becomes one entry with the number of lines that are missing there.
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
    /// Not taken by the thread yet, oldest first.
    private var entries: [Entry] = []
    /// Bytes of the entries, and of those that the thread took and did not finish.
    private(set) var size = 0
    /// From the first line that did not fit until half of the room is free.
    private(set) var isFull = false
    /// Lines lost after the last entry.
    private var lost = 0
    /// Entries that were accepted, ever.
    private(set) var accepted: UInt64 = 0
    /// Of these, how many the thread finished.
    private(set) var finished: UInt64 = 0

    init(limit: Int) {
        self.limit = limit
    }

    /// - Parameter bytes: of its text.
    /// - Returns: false if there is no room for it. There always is for one alone.
    mutating func add(_ content: Content, bytes: Int) -> Bool {
        let entry = Entry(content: content, bytes: bytes + Self.overhead)
        guard !isFull, size == 0 || size + entry.bytes <= limit else {
            isFull = true
            return false
        }
        closeGap()
        entries.append(entry)
        size += entry.bytes
        accepted += 1
        return true
    }

    /// Counts a line for which there was no room.
    mutating func countLost() {
        lost += 1
    }

    /// Makes the gap an entry, if there is one and it has ended.
    mutating func closeGap() {
        guard lost > 0, !isFull else { return }
        entries.append(Entry(content: .gap(lost), bytes: 0))
        accepted += 1
        lost = 0
    }

    /// Exchanges everything that waits for an empty array.
    mutating func take(_ empty: inout [Entry]) {
        closeGap()
        swap(&entries, &empty)
    }

    /// So many of the entries that were taken are written, or dropped.
    mutating func finish(_ count: Int, bytes: Int) {
        finished += UInt64(count)
        size -= bytes
        if size <= limit / 2 { isFull = false }
    }
}

/// Writes whole lines to a descriptor, and remembers what could not be written.
private struct LineWriter {
    /// Milliseconds without a byte written after which the descriptor counts as stalled.
    private static let stallTime: Int32 = 100

    let descriptor: Int32
    /// Asked while the descriptor is stalled.
    let isWorthWaiting: () -> Bool
    /// Lines that are missing before the next one.
    var lost = 0
    /// The last byte that was written was not a line feed, because the rest of the line could not be written.
    fileprivate var isInLine = false

    /// Writes and empties `lines`, after a notice of those that were lost before.
    mutating func write(_ lines: inout [UInt8]) {
        var rest = lines[...]
        if lost > 0 {
            let notice = "pushchat: \(lost) lines of the log were lost, because nobody read them\n"
            if put(Array(notice.utf8)[...]).isEmpty { lost = 0 }
        }
        if lost == 0 { rest = put(rest) }
        lost += rest.count { $0 == UInt8(ascii: "\n") }
        lines.removeAll(keepingCapacity: true)
    }

    /// One `write(2)` for as many whole lines as a pipe that is ready takes without blocking (`PIPE_BUF`).
    ///
    /// - Returns: what could not be written.
    private mutating func put(_ lines: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        if isInLine {
            isInLine = false
            guard put([UInt8(ascii: "\n")]).isEmpty else {
                isInLine = true
                return lines
            }
        }
        var rest = lines
        while !rest.isEmpty {
            var state = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
            let ready = poll(&state, 1, Self.stallTime)
            if ready < 0, errno == EINTR { continue }
            if ready == 0, isWorthWaiting() { continue }
            guard ready > 0, state.revents & Int16(POLLERR | POLLNVAL) == 0 else { break }
            var piece = rest.prefix(LogRecord.maximumLine)
            if piece.count < rest.count, let end = piece.lastIndex(of: UInt8(ascii: "\n")) { piece = piece[...end] }
            let count = piece.withUnsafeBytes { Foundation.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR || errno == EAGAIN { continue }
            guard count > 0 else { break }
            rest = rest.dropFirst(count)
        }
        if !rest.isEmpty, rest.startIndex > lines.startIndex {
            isInLine = lines[rest.startIndex - 1] != UInt8(ascii: "\n")
        }
        return rest
    }
}
