/// Where due pushes of one app and lane may lie: ranges of ids, disjoint and in order.
///
/// A hint, never a promise: whoever takes a run reads its rows, and takes those that are due. So runs may cover others'
/// rows and settled ones, and the list stays short however the rows lie.
struct DueRuns: Sendable {
    struct Run: Sendable, Hashable {
        var range: ClosedRange<Int64>
        /// Due pushes that were seen in it. Rows that another program takes back make it too large until the run is read.
        var count: Int
    }

    /// Runs that are told apart; beyond that neighbours become one. A few dozen kilobytes.
    static let most = 1024

    private(set) var runs: [Run] = []

    var isEmpty: Bool { runs.isEmpty }
    var first: Int64? { runs.first?.range.lowerBound }
    var count: Int { runs.reduce(0) { $0 + $1.count } }

    /// The first run that ends at an id or above it.
    private func index(from id: Int64) -> Int {
        var (low, high) = (0, runs.count)
        while low < high {
            let middle = (low + high) / 2
            if runs[middle].range.upperBound < id { low = middle + 1 } else { high = middle }
        }
        return low
    }

    /// What it covers of a range, and around it.
    func overlapping(_ range: ClosedRange<Int64>) -> [ClosedRange<Int64>] {
        runs[index(from: range.lowerBound)...].prefix { $0.range.lowerBound <= range.upperBound }.map(\.range)
    }

    mutating func add(_ range: ClosedRange<Int64>, count: Int) {
        // The usual case: right behind the last.
        if let last = runs.last, last.range.upperBound + 1 == range.lowerBound {
            runs[runs.count - 1] = Run(range: last.range.lowerBound...range.upperBound, count: last.count + count)
            return
        }
        let start = index(from: range.lowerBound)
        var (end, merged) = (start, Run(range: range, count: count))
        while end < runs.count, runs[end].range.lowerBound <= range.upperBound {
            let other = runs[end]
            merged.range =
                min(
                    merged.range.lowerBound, other.range.lowerBound)...max(
                    merged.range.upperBound, other.range.upperBound)
            merged.count += other.count
            end += 1
        }
        runs.replaceSubrange(start..<end, with: [merged])
        if runs.count > Self.most { mergeNeighbours() }
    }

    /// Halves their number.
    private mutating func mergeNeighbours() {
        runs = stride(from: 0, to: runs.count, by: 2).map { index in
            guard index + 1 < runs.count else { return runs[index] }
            let (left, right) = (runs[index], runs[index + 1])
            return Run(range: left.range.lowerBound...right.range.upperBound, count: left.count + right.count)
        }
    }

    mutating func takeFirst() -> Run? {
        runs.isEmpty ? nil : runs.removeFirst()
    }
}
