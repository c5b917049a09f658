import Foundation
import Synchronization

/// Where lines go: a whole line at a time, so that lines of several threads never mix.
protocol LogOutput: Sendable {
    /// - Parameter line: at most ``LogRecord/longestLine`` bytes, the line feed included.
    func write(_ line: [UInt8])
}

/// Lines to a file descriptor, each with one `write(2)`.
///
/// When nobody reads the other end, a line waits ``patience`` and is then dropped, and so are those after it, at
/// once, until there is room again: the log must not stop the relay. How many were lost is then said in a line.
final class DescriptorLogOutput: LogOutput {
    static let standardError = DescriptorLogOutput(STDERR_FILENO)

    /// Milliseconds that the first line of a stalled reader waits.
    static let patience: Int32 = 1000

    private let descriptor: Int32
    private let patience: Int32
    /// Lines dropped since the last one that was written. The lock is held while writing.
    private let lost = Mutex(0)

    /// The descriptor stays the caller's.
    init(_ descriptor: Int32, patience: Int32 = DescriptorLogOutput.patience) {
        self.descriptor = descriptor
        self.patience = patience
    }

    func write(_ line: [UInt8]) {
        lost.withLock { lost in
            if lost > 0 {
                guard
                    put(Array("pushchat: \(lost) lines of the log were lost, because nobody read them\n".utf8), wait: 0)
                else {
                    lost += 1
                    return
                }
                lost = 0
            }
            if !put(line, wait: patience) { lost += 1 }
        }
    }

    /// A pipe that is ready for writing takes a line of up to `PIPE_BUF` bytes without blocking.
    private func put(_ line: [UInt8], wait: Int32) -> Bool {
        var rest = line[...]
        while !rest.isEmpty {
            var state = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
            let ready = poll(&state, 1, wait)
            if ready < 0, errno == EINTR { continue }
            // Nobody can read any more: writing would end the process with SIGPIPE.
            guard ready > 0, state.revents & Int16(POLLERR | POLLNVAL) == 0 else { return false }
            let count = rest.withUnsafeBytes { Foundation.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR || errno == EAGAIN { continue }
            guard count > 0 else { return false }
            rest = rest.dropFirst(count)
        }
        return true
    }
}
