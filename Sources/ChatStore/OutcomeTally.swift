import ChatDomain
import Synchronization

/// Some pushes of an app came to one end, for one reason.
struct Ending: Sendable {
    let app: AppName
    let state: PushState
    let reason: String?
    var count = 1
}

/// What became of pushes since the process began, for all stores.
final class OutcomeCounter: Sendable {
    private let tally = Mutex(OutcomeTally())
    private let clock: TimeSource

    init(clock: @escaping TimeSource) {
        self.clock = clock
    }

    /// To be called after the commit.
    func add(_ endings: [Ending]) {
        guard !endings.isEmpty else { return }
        let now = clock()
        tally.withLock { tally in
            for ending in endings { tally.add(ending, at: now) }
        }
    }

    var outcomes: [OutcomeCount] { tally.withLock { $0.outcomes(at: clock()) } }
}

/// Counts what became of pushes: since the process began, and in the last minute.
///
/// A push that silence made `sent` and the gateway then refused is counted twice: a count never falls.
struct OutcomeTally: Sendable {
    /// Reasons of an app that are told apart; those that come later are ``other``. A gateway has some thirty.
    static let mostReasons = 64
    static let other = "Other"
    /// Seconds that the recent counts reach back.
    private static let window = 60

    private struct Key: Hashable {
        let app: AppName
        let state: PushState
        let reason: String?
    }

    /// A count, with a ring of its last seconds.
    private struct Count {
        var total = 0
        var seconds = [Int64](repeating: .min, count: OutcomeTally.window)
        var counts = [Int](repeating: 0, count: OutcomeTally.window)

        mutating func add(_ count: Int, at second: Int64) {
            total += count
            let index = Int(second.magnitude % UInt64(OutcomeTally.window))
            if seconds[index] != second {
                seconds[index] = second
                counts[index] = 0
            }
            counts[index] += count
        }

        func recent(at second: Int64) -> Int {
            zip(seconds, counts).reduce(0) { sum, entry in
                entry.0 > second - Int64(OutcomeTally.window) && entry.0 <= second ? sum + entry.1 : sum
            }
        }
    }

    private var counts: [Key: Count] = [:]
    private var reasons: [AppName: Set<String>] = [:]

    /// What is still pending is left out.
    mutating func add(_ ending: Ending, at now: Timestamp) {
        guard ending.count > 0, ending.state != .pending else { return }
        let reason = ending.state == .sent ? nil : ending.reason.map { known($0, of: ending.app) }
        counts[Key(app: ending.app, state: ending.state, reason: reason), default: Count()]
            .add(ending.count, at: now.seconds)
    }

    private mutating func known(_ reason: String, of app: AppName) -> String {
        if reasons[app]?.contains(reason) == true { return reason }
        guard reasons[app, default: []].count < Self.mostReasons else { return Self.other }
        reasons[app, default: []].insert(reason)
        return reason
    }

    /// In the order of app, state and reason.
    func outcomes(at now: Timestamp) -> [OutcomeCount] {
        counts.map { key, count in
            OutcomeCount(
                app: key.app, state: key.state, reason: key.reason, total: count.total,
                lastMinute: count.recent(at: now.seconds))
        }
        .sorted { ($0.app, $0.state.rawValue, $0.reason ?? "") < ($1.app, $1.state.rawValue, $1.reason ?? "") }
    }
}
