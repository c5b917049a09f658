import Dispatch
import Foundation

/// Reads standard input without holding the process when it is to end. Its bytes are read when they are asked for, so a fast
/// writer has to wait.
final class StandardInput: Sendable {
    private let queue = DispatchQueue(label: "standard input")
    /// Closed to end a ``next()`` that waits.
    private let wake: Pipe

    init() {
        wake = Pipe()
    }

    /// The next bytes; nil at the end, or when the task is cancelled.
    func next() async -> [UInt8]? {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                queue.async { continuation.resume(returning: self.read()) }
            }
        } onCancel: {
            try? wake.fileHandleForWriting.close()
        }
    }

    private func read() -> [UInt8]? {
        var sources = [STDIN_FILENO, wake.fileHandleForReading.fileDescriptor].map {
            pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
        }
        var bytes = [UInt8](repeating: 0, count: 4096)
        while true {
            guard poll(&sources, nfds_t(sources.count), -1) >= 0 || errno == EINTR else { return nil }
            if sources[1].revents != 0 { return nil }
            guard sources[0].revents != 0 else { continue }
            let count = Foundation.read(STDIN_FILENO, &bytes, bytes.count)
            if count > 0 { return Array(bytes[..<count]) }
            guard count < 0, errno == EINTR || errno == EAGAIN else { return nil }
        }
    }
}

/// The terminal of standard input, which gives each key at once and shows none, until ``end()``.
struct KeyMode {
    private let before: termios

    /// Nil if it is no terminal.
    init?() {
        var settings = termios()
        guard tcgetattr(STDIN_FILENO, &settings) == 0 else { return nil }
        before = settings
        begin()
    }

    /// Again, after the process was stopped and the shell has used the terminal.
    func begin() {
        var settings = before
        // Ctrl-C and Ctrl-Z stay signals.
        settings.c_lflag &= ~tcflag_t(ICANON | ECHO | IEXTEN)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &settings)
    }

    func end() {
        var settings = before
        tcsetattr(STDIN_FILENO, TCSADRAIN, &settings)
    }

    /// Columns of the terminal.
    static var columns: Int {
        var size = winsize()
        return ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0 && size.ws_col > 0 ? Int(size.ws_col) : 80
    }
}
