import Dispatch
import Foundation
import Synchronization

/// Lines to a file descriptor, written behind by a thread of its own: who logs only puts the line into a backlog.
///
/// - A line is on its way at once when the log is quiet, else within ``collecting``. A record of level `error` or above
///   is waited for, so that it stands in the log whatever happens next, but not longer than ``patience``.
/// - Lines come in the order in which they were logged and never mix: each `write(2)` has whole lines.
/// - When nobody reads the other end, ``limit`` bytes wait. Then a line waits ``patience`` for room, because a reader that
///   is alive makes it in less; after that lines are dropped at once, until half of the room is free. The log must not
///   stop the relay. How many were lost is said at their place.
/// - When nobody can read it any more, lines are dropped at once.
/// - What was logged before ``flush(within:)`` is written when that returns. Standard error is flushed by `exit` too,
///   hence also at the end of `main`. A fatal signal, a Swift trap, or `_exit` loses what was logged below `error` in the
///   last milliseconds (``collecting``).
final class DescriptorLogOutput: LogOutput {
    static let standardError: DescriptorLogOutput = {
        atexit { _ = DescriptorLogOutput.standardError.flush() }
        return DescriptorLogOutput(STDERR_FILENO)
    }()

    /// Bytes of lines that wait to be written: some 15000 lines, a few seconds of a relay at its busiest, while the disk
    /// under the log is slow. In memory it is two or three times as much.
    static let limit = 4 << 20
    /// How long a line waits for room, and one of level `error` or above to be written.
    static let patience = DispatchTimeInterval.milliseconds(100)
    /// How long the writer lets lines come together while the log is busy. Then it wakes at most 50 times a second.
    static let collecting = DispatchTimeInterval.milliseconds(20)
    /// How long an end waits for a log that nobody reads.
    static let flushLimit = DispatchTimeInterval.seconds(2)

    private let queue: LineQueue
    private let patience: DispatchTimeInterval

    /// The descriptor stays the caller's, who closes it only when this is gone.
    init(
        _ descriptor: Int32, limit: Int = DescriptorLogOutput.limit,
        patience: DispatchTimeInterval = DescriptorLogOutput.patience
    ) {
        self.patience = patience
        queue = LineQueue(limit: limit)
        let writer = Thread { [queue] in
            var writer = Writer(descriptor: descriptor, queue: queue)
            writer.run()
        }
        writer.name = "log"
        writer.start()
    }

    /// Ends the thread, after it wrote what it can within ``flushLimit``.
    deinit {
        queue.close(by: .now() + Self.flushLimit)
    }

    func write(_ line: [UInt8]) {
        write(.line(line), bytes: line.count)
    }

    func write(_ record: LogRecord, _ format: LogFormat) {
        if let size = record.keptSize {
            write(.record(record, format), bytes: size)
        } else {
            write(record.line(format))
        }
        if record.level >= .error, !queue.isStalled { flush(within: patience) }
    }

    private func write(_ content: LogBacklog.Content, bytes: Int) {
        while !queue.add(content, bytes: bytes) {
            guard queue.waitForRoom(patience) else { return queue.lose() }
        }
    }

    /// Waits until everything that was logged before is written.
    ///
    /// - Returns: false if that was not the case in time.
    @discardableResult
    func flush(within limit: DispatchTimeInterval = DescriptorLogOutput.flushLimit) -> Bool {
        queue.flush(by: .now() + limit)
    }
}

/// The backlog, as the threads that log and the one that writes share it.
private final class LineQueue: Sendable {
    private enum Activity {
        /// Takes what there is before it waits again.
        case awake
        /// Waits for more lines to come, for a moment.
        case collecting
        /// Waits for a line.
        case idle
    }

    private struct State {
        var backlog: LogBacklog
        var writer = Activity.awake
        /// The descriptor has not taken bytes for a while.
        var isStalled = false
        /// When those who wait for room give up; nil while there is room.
        var roomBy: DispatchTime?
        /// Whoever waits: for room, or for a number of entries to be finished.
        var waiting: [(until: UInt64?, signal: DispatchSemaphore)] = []
        var closedBy: DispatchTime?
    }

    /// At so many bytes the writer is woken while it collects.
    private let enough: Int
    private let state: Mutex<State>
    private let wake = DispatchSemaphore(value: 0)
    private let ended = DispatchSemaphore(value: 0)

    init(limit: Int) {
        enough = limit / 4
        state = Mutex(State(backlog: LogBacklog(limit: limit)))
    }

    // MARK: Threads that log

    func add(_ content: LogBacklog.Content, bytes: Int) -> Bool {
        let (isAdded, wakes) = state.withLock { state in
            let isAdded = state.backlog.add(content, bytes: bytes)
            let wakes = state.writer == .idle || state.writer == .collecting && state.backlog.size >= enough
            if wakes { state.writer = .awake }
            return (isAdded, wakes)
        }
        if wakes { wake.signal() }
        return isAdded
    }

    func lose() {
        state.withLock { $0.backlog.lose() }
    }

    var isStalled: Bool { state.withLock { $0.isStalled } }

    /// - Returns: false if there is none, and waiting did not help. What `patience` allows begins when the room ends.
    func waitForRoom(_ patience: DispatchTimeInterval) -> Bool {
        let signal = DispatchSemaphore(value: 0)
        let limit: DispatchTime? = state.withLock { state in
            guard state.backlog.isFull else { return nil }
            let limit = state.roomBy ?? .now() + patience
            state.roomBy = limit
            // Not again and again, after the first did so in vain.
            if limit > .now() { state.waiting.append((nil, signal)) }
            return limit
        }
        guard let limit else { return true }
        return limit > .now() && wait(signal, until: limit)
    }

    func flush(by limit: DispatchTime) -> Bool {
        let signal = DispatchSemaphore(value: 0)
        let (isDone, wakes) = state.withLock { state in
            state.backlog.sayGap()
            let last = state.backlog.accepted
            guard state.backlog.finished < last else { return (true, false) }
            state.waiting.append((last, signal))
            let wakes = state.writer != .awake
            state.writer = .awake
            return (false, wakes)
        }
        if wakes { wake.signal() }
        return isDone || wait(signal, until: limit)
    }

    private func wait(_ signal: DispatchSemaphore, until limit: DispatchTime) -> Bool {
        if signal.wait(timeout: limit) == .success { return true }
        state.withLock { $0.waiting.removeAll { $0.signal === signal } }
        return false
    }

    func close(by limit: DispatchTime) {
        state.withLock { state in
            state.closedBy = limit
            state.writer = .awake
        }
        wake.signal()
        _ = ended.wait(timeout: limit)
    }

    // MARK: The thread that writes

    /// Waits for entries, and takes all there are; nil at the end.
    ///
    /// - Parameter empty: an array to be used again.
    func next(_ empty: consuming [LogBacklog.Entry]) -> [LogBacklog.Entry]? {
        var entries = empty
        while true {
            let isClosed = state.withLock { state in
                entries = state.backlog.take(entries)
                if entries.isEmpty { state.writer = .idle }
                return state.closedBy != nil
            }
            if !entries.isEmpty { return entries }
            if isClosed { return nil }
            wake.wait()
        }
    }

    /// Lets lines come together, if nobody waits for them.
    func collect() {
        let isNeeded = state.withLock { state in
            guard state.waiting.isEmpty, state.closedBy == nil else { return false }
            state.writer = .collecting
            return true
        }
        guard isNeeded else { return }
        _ = wake.wait(timeout: .now() + DescriptorLogOutput.collecting)
        state.withLock { $0.writer = .awake }
    }

    func finish(_ count: Int, bytes: Int) {
        let done = state.withLock { state in
            state.backlog.finish(count, bytes: bytes)
            state.isStalled = false
            let hasRoom = !state.backlog.isFull
            if hasRoom { state.roomBy = nil }
            guard !state.waiting.isEmpty else { return [DispatchSemaphore]() }
            let finished = state.backlog.finished
            var done: [DispatchSemaphore] = []
            state.waiting.removeAll { until, signal in
                let isDone = until.map { $0 <= finished } ?? hasRoom
                if isDone { done.append(signal) }
                return isDone
            }
            return done
        }
        for signal in done { signal.signal() }
    }

    /// The descriptor takes no bytes.
    ///
    /// - Returns: whether it is worth waiting on.
    func stalled() -> Bool {
        state.withLock { state in
            state.isStalled = true
            return state.closedBy.map { $0 > .now() } ?? true
        }
    }

    func end() {
        ended.signal()
    }
}

/// What the thread does: makes lines of the entries and writes them.
private struct Writer {
    /// Bytes of lines that are made before they are written.
    private static let group = 64 << 10
    /// For how many entries memory is kept.
    private static let keptEntries = 4096
    /// Milliseconds without a byte written after which the descriptor counts as stalled.
    private static let stall: Int32 = 100

    private let descriptor: Int32
    private let queue: LineQueue
    private var clock = LogClock()
    /// Lines that were lost and are to be named before the next one.
    private var lost = 0
    /// The last byte that was written was not a line feed, because the rest of the line could not be.
    private var isInLine = false

    init(descriptor: Int32, queue: LineQueue) {
        self.descriptor = descriptor
        self.queue = queue
    }

    mutating func run() {
        // Writing to a pipe without a reader shall fail with EPIPE. The signal comes to the thread that writes.
        var signals = sigset_t()
        sigemptyset(&signals)
        sigaddset(&signals, SIGPIPE)
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        var entries: [LogBacklog.Entry] = []
        while let next = queue.next(entries) {
            entries = next
            write(entries)
            // The memory of a flood is not kept.
            entries.removeAll(keepingCapacity: entries.count <= Self.keptEntries)
            queue.collect()
        }
        queue.end()
    }

    private mutating func write(_ entries: [LogBacklog.Entry]) {
        var lines: [UInt8] = []
        lines.reserveCapacity(Self.group + LogRecord.longestLine)
        var (count, bytes) = (0, 0)
        for (index, entry) in entries.enumerated() {
            count += 1
            bytes += entry.bytes
            switch entry.content {
            case .line(let line): lines += line
            case .record(let record, let format): record.append(format, to: &lines, clock: &clock)
            case .gap(let number):
                write(lines)
                lines.removeAll(keepingCapacity: true)
                lost += number
            }
            guard lines.count >= Self.group || index == entries.count - 1 else { continue }
            write(lines)
            lines.removeAll(keepingCapacity: true)
            queue.finish(count, bytes: bytes)
            (count, bytes) = (0, 0)
        }
    }

    private mutating func write(_ lines: [UInt8]) {
        var lines = lines[...]
        if lost > 0 {
            let notice = "pushchat: \(lost) lines of the log were lost, because nobody read them\n"
            if put(Array(notice.utf8)[...]).isEmpty { lost = 0 }
        }
        if lost == 0 { lines = put(lines) }
        lost += lines.count { $0 == UInt8(ascii: "\n") }
    }

    /// Writes lines, a `write(2)` for as many whole ones as a pipe takes without blocking when it is ready (`PIPE_BUF`).
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
            let ready = poll(&state, 1, Self.stall)
            if ready < 0, errno == EINTR { continue }
            if ready == 0, queue.stalled() { continue }
            guard ready > 0, state.revents & Int16(POLLERR | POLLNVAL) == 0 else { break }
            var piece = rest.prefix(LogRecord.longestLine)
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
