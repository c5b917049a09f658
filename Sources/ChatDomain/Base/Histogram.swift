import Synchronization

/// A Prometheus histogram: counts values in buckets by size.
///
/// Recording is cheap and allocates nothing. It searches about fourteen bounds and makes two additions under a lock.
package final class Histogram: Sendable {
    /// The recorded values at one moment.
    package struct Snapshot: Sendable, Hashable {
        /// The highest value of each bucket, ascending. One more bucket holds the values above the last bound.
        package let bounds: [Double]
        /// The number of values in each bucket alone. It has one more element than ``bounds``.
        package let counts: [Int]
        package let sum: Double

        package var count: Int { counts.reduce(0, +) }
    }

    private struct State {
        var counts: [Int]
        var sum = 0.0

        mutating func add(_ value: Double, _ count: Int, _ bounds: [Double]) {
            guard value.isFinite, count > 0 else { return }
            // The value may be negative if the clock was set back.
            let value = max(0, value)
            counts[(0..<bounds.count).partitioningIndex { value <= bounds[$0] }] += count
            sum += value * Double(count)
        }
    }

    /// Bounds in seconds for short operations: a request, a transaction, a gateway's response.
    package static let moments = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]
    /// Bounds in seconds for waits, from a hundredth of a second to a day.
    package static let waits = [0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400]
    /// Bounds for counts, from 1 to 512.
    package static let sizes: [Double] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]

    private let bounds: [Double]
    private let state: Mutex<State>

    /// Creates an empty histogram.
    ///
    /// - Parameter bounds: The highest value of each bucket, ascending.
    package init(_ bounds: [Double]) {
        self.bounds = bounds
        state = Mutex(State(counts: [Int](repeating: 0, count: bounds.count + 1)))
    }

    /// Records a value.
    ///
    /// - Parameter count: The number of times that the value occurred.
    package func record(_ value: Double, count: Int = 1) {
        state.withLock { $0.add(value, count, bounds) }
    }

    /// Records a duration in seconds.
    package func record(_ duration: Duration, count: Int = 1) {
        record(duration.seconds, count: count)
    }

    /// Records several values under one lock.
    package func record(_ values: [Double]) {
        state.withLock { state in for value in values { state.add(value, 1, bounds) } }
    }

    package var snapshot: Snapshot {
        let (counts, sum) = state.withLock { ($0.counts, $0.sum) }
        return Snapshot(bounds: bounds, counts: counts, sum: sum)
    }
}

/// A bounded set of names from outside, for labels of metrics.
package struct BoundedNames: Sendable {
    /// The name that replaces names beyond the limit.
    package static let other = "Other"

    /// The maximum number of names.
    private let most: Int
    private var names: Set<String> = []

    package init(most: Int) {
        self.most = most
    }

    /// Returns the name if it is in the set or still fits into it, otherwise ``other``.
    package mutating func known(_ name: String) -> String {
        if names.contains(name) { return name }
        guard names.count < most else { return Self.other }
        names.insert(name)
        return name
    }
}

extension Duration {
    /// The seconds, with a fraction.
    package var seconds: Double { Double(components.seconds) + Double(components.attoseconds) * 1e-18 }
}

extension Timestamp {
    /// Returns the seconds since an earlier time. Returns 0 rather than a negative number: the clock may have been set
    /// back.
    package func seconds(since earlier: Timestamp) -> Double {
        Double(max(0, milliseconds - earlier.milliseconds)) / 1000
    }
}
