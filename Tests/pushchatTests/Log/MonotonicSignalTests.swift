import Dispatch
import Foundation
import Synchronization
import Testing

@testable import pushchat

@Suite("Signals on the monotonic clock", .timeLimit(.minutes(1)))
struct MonotonicSignalTests {
    @Test("A signal ends one wait, before or after it begins; without one a wait ends at its deadline")
    func signals() {
        let signal = MonotonicSignal()
        signal.signal()
        signal.signal()
        #expect(signal.wait(until: .now()))
        signal.wait()
        #expect(!signal.wait(until: .now() + .milliseconds(1)))
        DispatchQueue.global().asyncAfter(deadline: .now() + .milliseconds(10)) { signal.signal() }
        #expect(signal.wait(until: .now() + .seconds(50)))
    }

    #if os(Linux)
    /// Constants of the kernel's interface.
    private enum Futex {
        #if arch(x86_64)
        static let call = 202
        #else
        static let call = 98
        #endif
        static let realTime = 256
    }

    /// Returns the system call in which a thread of this process waits, with its arguments. `nil` if the thread runs.
    private static func call(of thread: Int32) -> [Int]? {
        guard let text = try? String(contentsOfFile: "/proc/self/task/\(thread)/syscall", encoding: .utf8) else {
            return nil
        }
        let words = text.split(separator: " ").map(String.init)
        guard let first = words.first, let number = Int(first) else { return nil }
        return [number] + words.dropFirst().compactMap { $0.hasPrefix("0x") ? Int($0.dropFirst(2), radix: 16) : nil }
    }

    @Test(
        "A timed wait does not depend on the wall clock, which may be set back",
        .enabled(if: FileManager.default.fileExists(atPath: "/proc/self/task/\(getpid())/syscall")))
    func clock() throws {
        let signal = MonotonicSignal()
        let number = Mutex<Int32>(0)
        let thread = Thread {
            // The link has the form `PID/task/TID`. Swift has no function for gettid.
            let link = (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/thread-self")) ?? ""
            number.withLock { $0 = Int32(link.split(separator: "/").last ?? "") ?? 0 }
            _ = signal.wait(until: .now() + .seconds(50))
        }
        thread.start()
        defer { signal.signal() }
        let end = ContinuousClock.now + .seconds(50)
        var found: [Int]?
        while found == nil, .now < end {
            let waiting = Self.call(of: number.withLock(\.self))
            if waiting?.first == Futex.call, waiting?.count ?? 0 > 4 { found = waiting } else { sched_yield() }
        }
        // futex(address, operation, value, timeout, ...)
        let call = try #require(found)
        #expect(call[2] & Futex.realTime == 0)
        #expect(call[4] != 0, "there is a deadline")
    }
    #endif
}
