import CSimulation

/// Random numbers of one stream.
struct Dice: RandomNumberGenerator {
    let stream: simulation_stream

    func next() -> UInt64 { simulation_random(stream) }
    func below(_ limit: Int) -> Int { Int(simulation_below(stream, UInt64(limit))) }
    func chance(_ percent: Int) -> Bool { below(100) < percent }
    func within(_ range: ClosedRange<Int>) -> Int { range.lowerBound + below(range.count) }
    func within(_ range: ClosedRange<Duration>) -> Duration {
        range.lowerBound + .nanoseconds(below(Int((range.upperBound - range.lowerBound) / .nanoseconds(1)) + 1))
    }
    func among<Element>(_ elements: [Element]) -> Element { elements[below(elements.count)] }
}

/// The virtual time since the beginning.
struct Moment: Comparable, CustomStringConvertible {
    let nanoseconds: Int64

    static var now: Moment { Moment(nanoseconds: simulation_now()) }
    static func + (moment: Moment, duration: Duration) -> Moment {
        Moment(nanoseconds: moment.nanoseconds + Int64(duration / .nanoseconds(1)))
    }
    static func < (left: Moment, right: Moment) -> Bool { left.nanoseconds < right.nanoseconds }
    var description: String {
        let milliseconds = String(nanoseconds / 1_000_000 % 1000)
        return "\(nanoseconds / 1_000_000_000)." + String(repeating: "0", count: 3 - milliseconds.count) + milliseconds
    }
}

/// Work that a closure describes, as the scheduler calls it.
private final class Work {
    let body: () -> Void

    init(_ body: @escaping () -> Void) { self.body = body }

    static func context(_ body: @escaping () -> Void) -> UnsafeMutableRawPointer {
        Unmanaged.passRetained(Work(body)).toOpaque()
    }

    static let run: simulation_function = { context in
        guard let context else { return }
        Unmanaged<Work>.fromOpaque(context).takeRetainedValue().body()
    }
}

extension simulation_owner {
    /// Runs `body` among the jobs that are ready. A crash of the relay drops the relay's jobs.
    func run(_ body: @escaping () -> Void) { simulation_add(self, Work.run, Work.context(body)) }

    /// Runs `body` at a time, or soon after it.
    func run(at moment: Moment, _ body: @escaping () -> Void) {
        simulation_add_at(moment.nanoseconds, self, Work.run, Work.context(body))
    }

    func run(after delay: Duration, _ body: @escaping () -> Void) { run(at: .now + delay, body) }
}
