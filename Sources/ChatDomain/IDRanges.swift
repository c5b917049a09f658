/// A set of ids as ranges, which are disjoint and in order: consecutive ids cost one.
package struct IDRanges: Sendable, Hashable {
    package private(set) var ranges: [ClosedRange<Int64>] = []

    package init(_ ranges: [ClosedRange<Int64>] = []) {
        for range in ranges { insert(range) }
    }

    package var isEmpty: Bool { ranges.isEmpty }
    package var first: Int64? { ranges.first?.lowerBound }
    /// How many ids there are.
    package var count: Int { ranges.reduce(0) { $0 + $1.count } }

    /// The first range that ends at an id or above it.
    private func index(from id: Int64) -> Int { (0..<ranges.count).partitioningIndex { ranges[$0].upperBound >= id } }

    package func contains(_ id: Int64) -> Bool {
        let index = index(from: id)
        return index < ranges.count && ranges[index].lowerBound <= id
    }

    /// What it has of a range.
    package func intersection(_ range: ClosedRange<Int64>) -> [ClosedRange<Int64>] {
        var found: [ClosedRange<Int64>] = []
        var index = index(from: range.lowerBound)
        while index < ranges.count, ranges[index].lowerBound <= range.upperBound {
            found.append(ranges[index].clamped(to: range))
            index += 1
        }
        return found
    }

    /// - Precondition: ids are below the largest and above the smallest 64-bit number.
    package mutating func insert(_ range: ClosedRange<Int64>) {
        // The usual case: behind all there is.
        if let last = ranges.last, last.upperBound + 1 == range.lowerBound {
            ranges[ranges.count - 1] = last.lowerBound...range.upperBound
            return
        }
        if ranges.last.map({ $0.upperBound < range.lowerBound }) ?? true {
            ranges.append(range)
            return
        }
        // Also those that only touch it become one with it.
        let start = index(from: range.lowerBound - 1)
        var (end, merged) = (start, range)
        while end < ranges.count, ranges[end].lowerBound <= range.upperBound + 1 {
            merged = min(merged.lowerBound, ranges[end].lowerBound)...max(merged.upperBound, ranges[end].upperBound)
            end += 1
        }
        ranges.replaceSubrange(start..<end, with: [merged])
    }

    package mutating func subtract(_ range: ClosedRange<Int64>) {
        let start = index(from: range.lowerBound)
        var (end, rest) = (start, [ClosedRange<Int64>]())
        while end < ranges.count, ranges[end].lowerBound <= range.upperBound {
            if ranges[end].lowerBound < range.lowerBound { rest.append(ranges[end].lowerBound...range.lowerBound - 1) }
            if ranges[end].upperBound > range.upperBound { rest.append(range.upperBound + 1...ranges[end].upperBound) }
            end += 1
        }
        if start < end { ranges.replaceSubrange(start..<end, with: rest) }
    }
}

extension Range<Int> {
    /// The first index for which something holds that also holds for all after it, or the end: a binary search.
    package func partitioningIndex(where holds: (Int) -> Bool) -> Int {
        var (low, high) = (lowerBound, upperBound)
        while low < high {
            let middle = low + (high - low) / 2
            if holds(middle) { high = middle } else { low = middle + 1 }
        }
        return low
    }
}
