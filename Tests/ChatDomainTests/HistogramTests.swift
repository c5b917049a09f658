import ChatDomain
import Testing

@Suite("Histograms")
struct HistogramTests {
    @Test("A value is in the first bucket whose bound it does not exceed, and above all bounds in the last")
    func buckets() {
        let histogram = Histogram([0.1, 1, 10])
        histogram.record([0, 0.1, 0.100_001, 1, 10, 10.5, 1e9])
        #expect(histogram.snapshot.counts == [2, 2, 1, 2])
        #expect(histogram.snapshot.count == 7)
        #expect(histogram.snapshot.sum == 0.1 + 0.100_001 + 1 + 10 + 10.5 + 1e9)
    }

    @Test("A value has a count, durations are in seconds, negative values are 0, and non-finite values are ignored")
    func values() {
        let histogram = Histogram([0.001, 1])
        histogram.record(.milliseconds(500), count: 4)
        histogram.record(-5)
        histogram.record(.nan)
        histogram.record(.infinity)
        histogram.record(1, count: 0)
        #expect(histogram.snapshot.counts == [1, 4, 0] && histogram.snapshot.sum == 2)
    }

    @Test("Concurrent records are all counted, and an earlier snapshot does not change")
    func concurrent() async {
        let histogram = Histogram(Histogram.moments)
        histogram.record(0.25)
        let before = histogram.snapshot
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<8 {
                group.addTask { for _ in 0..<1000 { histogram.record(0.5) } }
            }
        }
        #expect(histogram.snapshot.count == 8001 && histogram.snapshot.sum == 4000.25)
        #expect(before.count == 1)
    }

    @Test("The bounds in use ascend", arguments: [Histogram.moments, Histogram.waits, Histogram.sizes])
    func bounds(_ bounds: [Double]) {
        #expect(zip(bounds, bounds.dropFirst()).allSatisfy { $0 < $1 })
    }

    @Test("Names from outside are kept up to a limit; others become Other")
    func names() {
        var names = BoundedNames(most: 2)
        #expect(["a", "b", "c", "a", "d"].map { names.known($0) } == ["a", "b", "Other", "a", "Other"])
    }
}
