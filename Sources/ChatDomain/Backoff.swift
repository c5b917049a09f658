/// Waits between repeats of something that will work again: each time twice as long, up to a limit.
package struct Backoff: Sendable {
    package let first: Duration
    private let longest: Duration
    private var next: Duration

    package init(first: Duration = .milliseconds(100), longest: Duration = .seconds(5)) {
        self.first = first
        self.longest = longest
        next = first
    }

    /// Nothing has failed yet.
    package var isFresh: Bool { next == first }

    package mutating func succeeded() {
        next = first
    }

    /// - Returns: how long to wait now.
    package mutating func delay() -> Duration {
        defer { next = min(longest, next * 2) }
        return next
    }

    /// - Returns: false when the task was cancelled.
    package mutating func pause() async -> Bool {
        do {
            try await Task.sleep(for: delay())
            return true
        } catch {
            return false
        }
    }
}
