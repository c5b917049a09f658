import APNSWire

/// What the feedback service lists, by topic (apns-feedback.md §1).
struct FeedbackList: Sendable {
    /// Tuples of all topics together; above it the topic's oldest goes.
    static let limit = 200_000

    /// A topic's list as one reader gets it.
    struct Reading: Sendable {
        var topic: String
        var tuples: [FeedbackTuple]
        /// The number of the last of them, for ``FeedbackList/clear(_:)``.
        fileprivate var through: Int
    }

    /// A topic's tuples; the first has the number `read`.
    private struct Topic {
        var tuples: [FeedbackTuple] = []
        var read = 0
    }

    private var topics: [String: Topic] = [:]
    private(set) var count = 0

    mutating func append(_ tuple: FeedbackTuple, topic: String) {
        if count >= Self.limit, topics[topic]?.tuples.isEmpty == false {
            topics[topic]?.tuples.removeFirst()
            topics[topic]?.read += 1
            count -= 1
        }
        guard count < Self.limit else { return }
        topics[topic, default: Topic()].tuples.append(tuple)
        count += 1
    }

    func reading(topic: String) -> Reading {
        let list = topics[topic] ?? Topic()
        return Reading(topic: topic, tuples: list.tuples, through: list.read + list.tuples.count)
    }

    /// Forgets what a reader has got; what came since, and what another reader cleared meanwhile, is left alone.
    mutating func clear(_ reading: Reading) {
        guard let list = topics[reading.topic] else { return }
        let gone = min(max(0, reading.through - list.read), list.tuples.count)
        topics[reading.topic]?.tuples.removeFirst(gone)
        topics[reading.topic]?.read += gone
        count -= gone
    }
}
