import Dispatch
import Foundation
import Synchronization

/// Writes the lines of the log to a file descriptor, from a separate thread. A caller only adds to a backlog.
///
/// - A line is written at once when the log is quiet, otherwise within ``collectTime``. A caller that logs a record of
///   level `error` or above waits until the record is written, but not longer than ``waitLimit``. The record is then in
///   the log whatever happens next.
/// - Lines appear in the order of the calls and never mix: each `write(2)` contains whole lines.
/// - If no process reads the other end, up to ``limit`` bytes wait. Then a line waits ``waitLimit`` for room, because a
///   slow reader makes room in less time. After that, lines are dropped at once until half of the room is free. The log
///   must not stop the relay. The number of lost lines is written where they are missing.
/// - If the other end is closed, or the disk is full, lines are dropped at once.
/// - When ``flush(within:)`` returns `true`, all lines logged before the call are written. `exit`, and therefore the
///   end of `main`, also flushes standard error. A fatal signal, a Swift trap or `_exit` loses lines below `error` from
///   the last milliseconds (``collectTime``).
final class LogWriter: Sendable {
    static let standardError: LogWriter = {
        atexit { _ = LogWriter.standardError.flush() }
        return LogWriter(STDERR_FILENO)
    }()

    /// The maximum size in bytes of the lines that wait to be written: about 15,000 lines, a few seconds of a very busy
    /// relay while the disk under the log is slow. They take two or three times as much memory.
    static let limit = 4 << 20
    /// The time that a line waits for room, and that a caller waits for a record of level `error` or above.
    static let waitLimit = DispatchTimeInterval.milliseconds(100)
    /// The time for which the thread collects lines while the log is busy. The thread then wakes at most 50 times a
    /// second.
    static let collectTime = DispatchTimeInterval.milliseconds(20)
    /// The time that the end of the process waits for a log that no process reads.
    static let flushLimit = DispatchTimeInterval.seconds(2)
    /// The number of bytes of lines to format before they are written.
    private static let groupSize = 64 << 10
    /// The maximum number of entries for which the thread keeps memory after a batch.
    private static let keptEntries = 4096

    private enum Activity {
        /// The thread takes all lines before it waits again.
        case awake
        /// The thread waits briefly for more lines.
        case collecting
        /// The thread waits for a line.
        case idle
    }

    private struct State {
        var backlog: LogBacklog
        var thread = Activity.awake
        /// Whether the descriptor has accepted no bytes for some time.
        var isStalled = false
        /// The time at which callers stop waiting for room. `nil` while there is room.
        var roomDeadline: DispatchTime?
        /// The callers that wait for a number of entries to be finished, or for room if the count is `nil`.
        var waiters: [(count: UInt64?, signal: MonotonicSignal)] = []
        var closeDeadline: DispatchTime?
    }

    private let descriptor: Int32
    private let waitLimit: DispatchTimeInterval
    /// The size of the backlog in bytes at which the thread is woken while it collects.
    private let wakeSize: Int
    private let state: Mutex<State>
    private let wake = MonotonicSignal()
    private let ended = MonotonicSignal()

    /// Starts the thread. Does not take ownership of the descriptor: the caller closes it after ``close(within:)``.
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

    /// Writes a formatted line.
    /// - Parameter line: At most ``LogRecord/maxLine`` bytes, including the line feed.
    func write(_ line: [UInt8]) {
        add(.line(line), bytes: line.count)
    }

    /// Waits until all lines logged before the call are written.
    ///
    /// - Returns: `false` if the limit ended first.
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

    /// Ends the thread, after it has written as many lines as it can within the limit.
    func close(within limit: DispatchTimeInterval = LogWriter.flushLimit) {
        let deadline = DispatchTime.now() + limit
        state.withLock { state in
            state.closeDeadline = deadline
            state.thread = .awake
        }
        wake.signal()
        // Signal again for another call of this method.
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

    /// Waits for room in the backlog. The time that ``waitLimit`` allows begins when the backlog becomes full.
    /// - Returns: `false` if there is no room and waiting did not help.
    private func waitForRoom() -> Bool {
        let signal = MonotonicSignal()
        let deadline: DispatchTime? = state.withLock { state in
            guard state.backlog.isFull else { return nil }
            let deadline = state.roomDeadline ?? .now() + waitLimit
            state.roomDeadline = deadline
            // After one caller has waited in vain, do not make others wait.
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
        // Writing to a pipe without a reader must fail with EPIPE. The signal arrives at the thread that writes, so
        // block it here.
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

    /// Waits for entries, and takes all of them.
    ///
    /// - Parameter entries: An empty array, whose memory is reused.
    /// - Returns: `false` when the log is closed.
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
        lines.reserveCapacity(Self.groupSize + LogRecord.maxLine)
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

    /// Waits for more lines, unless a thread waits for the present ones.
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

    /// Whether to wait for a descriptor that accepts no bytes. Records that it is stalled.
    private func isWorthWaiting() -> Bool {
        state.withLock { state in
            state.isStalled = true
            return state.closeDeadline.map { $0 > .now() } ?? true
        }
    }
}

/// The lines that were logged and are not written yet. Decides which lines are accepted or lost, and when there is room
/// again.
///
/// A full backlog accepts nothing until half of it is free. So a slow reader causes only occasional gaps. Each gap
/// becomes one entry with the number of missing lines.
struct LogBacklog: Sendable {
    enum Content: Sendable {
        case line([UInt8])
        /// A record that is formatted when it is written.
        case record(LogRecord, LogFormat)
        /// The number of lines that were lost here.
        case gap(Int)
    }

    struct Entry: Sendable {
        let content: Content
        /// The number of bytes that count against the limit.
        let bytes: Int
    }

    /// The number of bytes that an entry costs besides its text, so that even a flood of empty lines is limited.
    static let overhead = 128

    /// The maximum size in bytes, including the ``overhead``.
    private let limit: Int
    /// Entries that the thread has not taken yet, oldest first.
    private var entries: [Entry] = []
    /// The size in bytes of the entries, and of those that the thread has taken and not finished.
    private(set) var size = 0
    /// Whether the backlog is full: from the first line that did not fit until half of the room is free.
    private(set) var isFull = false
    /// The number of lines lost after the last entry.
    private var lost = 0
    /// The number of entries that were ever accepted.
    private(set) var accepted: UInt64 = 0
    /// The number of accepted entries that the thread has finished.
    private(set) var finished: UInt64 = 0

    init(limit: Int) {
        self.limit = limit
    }

    /// Adds an entry.
    /// - Parameter bytes: The size of the text in bytes.
    /// - Returns: `false` if there is no room. An empty backlog always has room for one entry.
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

    /// Counts a line that was lost for lack of room.
    mutating func countLost() {
        lost += 1
    }

    /// Turns the gap into an entry, if there is one and it has ended.
    mutating func closeGap() {
        guard lost > 0, !isFull else { return }
        entries.append(Entry(content: .gap(lost), bytes: 0))
        accepted += 1
        lost = 0
    }

    /// Exchanges all waiting entries for an empty array.
    mutating func take(_ empty: inout [Entry]) {
        closeGap()
        swap(&entries, &empty)
    }

    /// Records that the thread has written or dropped `count` of the entries that it took.
    mutating func finish(_ count: Int, bytes: Int) {
        finished += UInt64(count)
        size -= bytes
        if size <= limit / 2 { isFull = false }
    }
}

/// Writes whole lines to a descriptor, and counts those that could not be written.
private struct LineWriter {
    /// The milliseconds without a written byte after which the descriptor counts as stalled.
    private static let stallTime: Int32 = 100

    let descriptor: Int32
    /// Called while the descriptor is stalled. Returns whether to continue waiting.
    let isWorthWaiting: () -> Bool
    /// The number of lines that are missing before the next one.
    var lost = 0
    /// Whether the last byte written was not a line feed, because the rest of the line could not be written.
    fileprivate var isInLine = false

    /// Writes and empties `lines`, after a notice of the lines lost before.
    mutating func write(_ lines: inout [UInt8]) {
        var rest = lines[...]
        if lost > 0 {
            let notice = "pushchat: \(lost) log lines were lost, because they could not be written\n"
            if put(Array(notice.utf8)[...]).isEmpty { lost = 0 }
        }
        if lost == 0 { rest = put(rest) }
        lost += rest.count { $0 == UInt8(ascii: "\n") }
        lines.removeAll(keepingCapacity: true)
    }

    /// Writes lines. Each `write(2)` contains as many whole lines as a ready pipe accepts without blocking
    /// (`PIPE_BUF`).
    ///
    /// - Returns: The part that could not be written.
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
            var piece = rest.prefix(LogRecord.maxLine)
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
