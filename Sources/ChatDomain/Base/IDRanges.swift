/// A set of ids, stored as sorted, disjoint ranges. Consecutive ids cost one range.
package struct IDRanges: Sendable, Hashable {
    package private(set) var ranges: [ClosedRange<Int64>] = []

    package init(_ ranges: [ClosedRange<Int64>] = []) {
        for range in ranges { insert(range) }
    }

    package var isEmpty: Bool { ranges.isEmpty }
    package var first: Int64? { ranges.first?.lowerBound }
    /// The number of ids.
    package var count: Int { ranges.reduce(0) { $0 + $1.count } }

    /// Returns the index of the first range that ends at `id` or above it.
    private func index(from id: Int64) -> Int { (0..<ranges.count).partitioningIndex { ranges[$0].upperBound >= id } }

    package func contains(_ id: Int64) -> Bool {
        let index = index(from: id)
        return index < ranges.count && ranges[index].lowerBound <= id
    }

    /// Returns the parts of a range that the set contains.
    package func intersection(_ range: ClosedRange<Int64>) -> [ClosedRange<Int64>] {
        var found: [ClosedRange<Int64>] = []
        var index = index(from: range.lowerBound)
        while index < ranges.count, ranges[index].lowerBound <= range.upperBound {
            found.append(ranges[index].clamped(to: range))
            index += 1
        }
        return found
    }

    /// Adds all ids of a range.
    ///
    /// - Precondition: The ids are below the largest and above the smallest 64-bit number.
    package mutating func insert(_ range: ClosedRange<Int64>) {
        // The usual case: the range follows all others.
        if let last = ranges.last, last.upperBound + 1 == range.lowerBound {
            ranges[ranges.count - 1] = last.lowerBound...range.upperBound
            return
        }
        if ranges.last.map({ $0.upperBound < range.lowerBound }) ?? true {
            ranges.append(range)
            return
        }
        // Ranges that only touch the new one are merged as well.
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
        var (end, kept) = (start, [ClosedRange<Int64>]())
        while end < ranges.count, ranges[end].lowerBound <= range.upperBound {
            if ranges[end].lowerBound < range.lowerBound { kept.append(ranges[end].lowerBound...range.lowerBound - 1) }
            if ranges[end].upperBound > range.upperBound { kept.append(range.upperBound + 1...ranges[end].upperBound) }
            end += 1
        }
        if start < end { ranges.replaceSubrange(start..<end, with: kept) }
    }
}

extension Range<Int> {
    /// Returns the first index for which `holds` is true, or the end. If `holds` is true for an index, it must be true
    /// for all later ones. A binary search.
    package func partitioningIndex(where holds: (Int) -> Bool) -> Int {
        var (low, high) = (lowerBound, upperBound)
        while low < high {
            let middle = low + (high - low) / 2
            if holds(middle) { high = middle } else { low = middle + 1 }
        }
        return low
    }
}
