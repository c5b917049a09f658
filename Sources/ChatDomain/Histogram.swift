import Synchronization

/// How often values were seen, by their size: what Prometheus calls a histogram.
///
/// Recording takes the same time whatever was recorded before, and makes no objects: a search in some fourteen bounds under a
/// lock that is held for two additions.
package final class Histogram: Sendable {
    /// What was recorded so far.
    package struct Snapshot: Sendable, Hashable {
        /// The highest value of each bucket, ascending. Above the last there is one bucket more.
        package let bounds: [Double]
        /// Values in each bucket alone; one more than ``bounds``.
        package let counts: [Int]
        package let sum: Double

        package var count: Int { counts.reduce(0, +) }
    }

    private struct State {
        var counts: [Int]
        var sum = 0.0

        mutating func add(_ value: Double, _ count: Int, _ bounds: [Double]) {
            guard value.isFinite, count > 0 else { return }
            // A clock may have been set back.
            let value = max(0, value)
            counts[(0..<bounds.count).partitioningIndex { value <= bounds[$0] }] += count
            sum += value * Double(count)
        }
    }

    /// Seconds of what takes a moment: a request, a transaction, an answer of a gateway.
    package static let moments = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]
    /// Seconds of what may wait: from a hundredth to a day.
    package static let waits = [0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400]
    /// Of things that are counted: a few, or very many.
    package static let sizes: [Double] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]

    private let bounds: [Double]
    private let state: Mutex<State>

    /// - Parameter bounds: the highest value of each bucket, ascending.
    package init(_ bounds: [Double]) {
        self.bounds = bounds
        state = Mutex(State(counts: [Int](repeating: 0, count: bounds.count + 1)))
    }

    /// - Parameter count: how often the value was seen.
    package func record(_ value: Double, count: Int = 1) {
        state.withLock { $0.add(value, count, bounds) }
    }

    /// In seconds.
    package func record(_ duration: Duration, count: Int = 1) {
        record(duration.seconds, count: count)
    }

    /// Several at once, under one lock.
    package func record(_ values: some Sequence<Double>) {
        state.withLock { state in for value in values { state.add(value, 1, bounds) } }
    }

    package var snapshot: Snapshot {
        let (counts, sum) = state.withLock { ($0.counts, $0.sum) }
        return Snapshot(bounds: bounds, counts: counts, sum: sum)
    }
}

/// Names that come from outside, told apart up to a number of them: labels of metrics.
package struct BoundedNames: Sendable {
    /// What names beyond the number are called.
    package static let other = "Other"

    private let most: Int
    private var names: Set<String> = []

    package init(most: Int) {
        self.most = most
    }

    package mutating func known(_ name: String) -> String {
        if names.contains(name) { return name }
        guard names.count < most else { return Self.other }
        names.insert(name)
        return name
    }
}

extension Duration {
    /// With a fraction.
    package var seconds: Double { Double(components.seconds) + Double(components.attoseconds) * 1e-18 }
}

extension Timestamp {
    /// Seconds since an earlier moment, not below 0: the clock may have been set back.
    package func seconds(since earlier: Timestamp) -> Double {
        Double(max(0, milliseconds - earlier.milliseconds)) / 1000
    }
}
