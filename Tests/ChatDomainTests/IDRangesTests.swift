import ChatDomain
import Testing

@Suite("Sets of ids as ranges")
struct IDRangesTests {
    /// A generator that returns the same numbers for the same seed.
    private struct Random: RandomNumberGenerator {
        var state: UInt64
        mutating func next() -> UInt64 {
            state &+= 0x9E37_79B9_7F4A_7C15
            var z = state
            z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
            z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
            return z ^ (z >> 31)
        }
    }

    /// Returns the same set as the fewest ranges.
    private static func ranges(_ ids: Set<Int64>) -> [ClosedRange<Int64>] {
        var ranges: [ClosedRange<Int64>] = []
        for id in ids.sorted() {
            if let last = ranges.last, last.upperBound + 1 == id {
                ranges[ranges.count - 1] = last.lowerBound...id
            } else {
                ranges.append(id...id)
            }
        }
        return ranges
    }

    @Test(
        "It holds the same ids as a set after any insertions and removals",
        arguments: Array(0..<20) + [UInt64.random(in: 100 ... .max)])
    func model(seed: UInt64) {
        var random = Random(state: seed)
        for round in 0..<10 {
            var (ranges, model) = (IDRanges(), Set<Int64>())
            // Narrow enough that ranges meet, and wide enough that there are several.
            let span: Int64 = [8, 30, 200].randomElement(using: &random) ?? 8
            let base: Int64 = [0, -100, Int64(UInt32.max)].randomElement(using: &random) ?? 0
            for step in 0..<40 {
                let place = "seed \(seed), round \(round), step \(step)"
                let low = Int64.random(in: 0..<span, using: &random)
                let length = Int64.random(in: 0..<max(2, span / 8), using: &random)
                let range = base + low...base + low + length
                if Int.random(in: 0..<5, using: &random) < 3 {
                    ranges.insert(range)
                    model.formUnion(range)
                } else {
                    ranges.subtract(range)
                    model.subtract(range)
                }
                #expect(ranges.ranges == Self.ranges(model), "\(place)")
                #expect(ranges.count == model.count, "\(place)")
                #expect(ranges.isEmpty == model.isEmpty, "\(place)")
                #expect(ranges.first == model.min(), "\(place)")
                let id = base + Int64.random(in: -2...span + 2, using: &random)
                #expect(ranges.contains(id) == model.contains(id), "\(place): \(id)")
                let asked = id...id + Int64.random(in: 0..<span, using: &random)
                #expect(
                    ranges.intersection(asked) == Self.ranges(model.intersection(asked)), "\(place): \(asked)")
            }
            let all = ranges.ranges
            #expect(IDRanges(all.shuffled(using: &random)) == ranges, "seed \(seed), round \(round)")
        }
    }

    @Test("Consecutive ids form one range, in any order of insertion")
    func consecutive() {
        var ranges = IDRanges()
        for id in Int64(1)...1000 { ranges.insert(id...id) }
        #expect(ranges.ranges == [1...1000])
        for id in (Int64(1)...1000).reversed() where id.isMultiple(of: 2) { ranges.subtract(id...id) }
        #expect(ranges.ranges.count == 500)
        for id in (Int64(1)...1000).reversed() where id.isMultiple(of: 2) { ranges.insert(id...id) }
        #expect(ranges.ranges == [1...1000])
    }

    @Test("Ids may have the extreme values that the precondition allows")
    func extremes() {
        var ranges = IDRanges([Int64.min + 1...Int64.max - 1])
        #expect(ranges.contains(.max - 1))
        #expect(!ranges.contains(.max))
        ranges.subtract(0...0)
        #expect(ranges.ranges == [Int64.min + 1...(-1), 1...Int64.max - 1])
        ranges.insert(-5...5)
        #expect(ranges.ranges == [Int64.min + 1...Int64.max - 1])
        ranges.subtract(Int64.min + 1...Int64.max - 1)
        #expect(ranges.isEmpty)
    }
}
