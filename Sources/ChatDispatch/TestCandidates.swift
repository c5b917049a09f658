import ChatDomain

/// Chooses the pushes of a test among the due ones: one push per device, of the devices with the fewest refusals. A
/// pure value.
struct TestCandidates: Sendable {
    /// The number of pushes in one lease of the search.
    static let leaseSize = 1000

    private struct Rank: Comparable {
        let refusals: Int
        /// Suspect pushes come last among equals, because they travel alone.
        let isSuspect: Bool

        static func < (left: Rank, right: Rank) -> Bool {
            (left.refusals, left.isSuspect ? 1 : 0) < (right.refusals, right.isSuspect ? 1 : 0)
        }
    }

    private let test: ServiceTest
    private let limit: Int
    private(set) var pushes: [QueuedPush] = []
    /// Leased pushes that were not chosen, by lane. They must be released.
    private(set) var released: [PushLane: IDRanges] = [:]

    init(_ test: ServiceTest, limit: Int) {
        self.test = test
        self.limit = limit
    }

    /// Whether more candidates could not improve the test: each of its devices was never refused.
    var isComplete: Bool { pushes.count >= limit && pushes.allSatisfy { rank($0).refusals == 0 } }
    /// Whether the test has a device that was never refused.
    var hasFreshDevice: Bool { pushes.contains { rank($0).refusals == 0 } }

    /// Adds leased pushes, in their order.
    mutating func add(_ leased: [QueuedPush]) {
        var devices = Set(pushes.map(\.address))
        var candidates = pushes
        for push in leased {
            if devices.insert(push.address).inserted { candidates.append(push) } else { release(push) }
        }
        // Among equals, the order of the queue decides.
        let ranked = candidates.enumerated().map { (rank: rank($1), place: $0, push: $1) }
            .sorted { ($0.rank, $0.place) < ($1.rank, $1.place) }
        pushes = ranked.prefix(limit).map(\.push)
        for candidate in ranked.dropFirst(limit) { release(candidate.push) }
    }

    private mutating func release(_ push: QueuedPush) {
        released[push.lane, default: IDRanges()].insert(push.id...push.id)
    }

    private func rank(_ push: QueuedPush) -> Rank {
        Rank(refusals: push.address.flatMap { test.refusals[$0] } ?? 0, isSuspect: push.history.isSuspect)
    }
}

/// The depth of the search for the pushes of a test.
///
/// Pushes of refused devices may be first in the queue in any number. If a search finds no other device among them, the
/// next one looks twice as far. So a push of another device is found after a few searches, and an outage costs little.
/// A queue that passes over refused devices needs one lease.
struct SearchDepth: Sendable {
    /// A million pushes.
    private static let limit = 1024

    /// The maximum number of leases for one search.
    private(set) var leases = 1

    mutating func searched(foundFreshDevice: Bool, reachedEnd: Bool) {
        leases = foundFreshDevice || reachedEnd ? 1 : min(2 * leases, Self.limit)
    }
}
