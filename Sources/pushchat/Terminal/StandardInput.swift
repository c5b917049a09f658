import Dispatch
import Foundation

/// Reads standard input without keeping the process from ending. It reads only on demand, so a fast writer has to wait.
final class StandardInput: Sendable {
    private let queue = DispatchQueue(label: "standard input")
    /// Closing its write end wakes a ``next()`` that waits.
    private let wake: Pipe

    init() {
        wake = Pipe()
    }

    /// Returns the next bytes. `nil` at the end of the input, or if the task was cancelled.
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

/// Switches the terminal of standard input to deliver each key at once and to echo none, until ``end()``.
struct KeyMode {
    private let before: termios

    /// `nil` if standard input is not a terminal.
    init?() {
        var settings = termios()
        guard tcgetattr(STDIN_FILENO, &settings) == 0 else { return nil }
        before = settings
        begin()
    }

    /// Switches the terminal. Called again after the process was stopped, because the shell has used the terminal
    /// since.
    func begin() {
        var settings = before
        // Ctrl-C and Ctrl-Z still send signals.
        settings.c_lflag &= ~tcflag_t(ICANON | ECHO | IEXTEN)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &settings)
    }

    func end() {
        var settings = before
        tcsetattr(STDIN_FILENO, TCSADRAIN, &settings)
    }

    /// The number of columns of the terminal.
    static var columns: Int {
        var size = winsize()
        return ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0 && size.ws_col > 0 ? Int(size.ws_col) : 80
    }
}
