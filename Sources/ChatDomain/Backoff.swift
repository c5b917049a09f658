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

    package mutating func reset() {
        next = first
    }

    /// How long to wait after another failure.
    ///
    /// - Parameters:
    ///   - limit: the longest this time.
    ///   - random: from 0 to 1; below 1 it takes off up to a half, so that not all clients come back at the same moment.
    package mutating func delay(limit: Duration? = nil, random: Double = 1) -> Duration {
        defer { next = min(longest, next * 2) }
        return min(limit ?? longest, next) * (0.5 + random / 2)
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
