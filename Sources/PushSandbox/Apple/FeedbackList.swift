import PushWire

/// The lists of the feedback service, by topic (Apple, "Binary Provider API", "The Feedback Service").
struct FeedbackList: Sendable {
    /// The maximum number of tuples of all topics together. At the limit, a new tuple replaces the oldest of its topic.
    /// If its topic has none, the new tuple is dropped.
    static let limit = 200_000

    /// A topic's list, as one reader gets it.
    struct Reading: Sendable {
        var topic: String
        var tuples: [FeedbackTuple]
        /// The number of the first tuple after this list, for ``FeedbackList/clear(_:)``.
        fileprivate var end: Int
    }

    /// A topic's tuples. The first one has the number ``removedCount``, which is the count of all removed tuples.
    private struct Topic {
        var tuples: [FeedbackTuple] = []
        var removedCount = 0
    }

    private var topics: [String: Topic] = [:]
    private(set) var count = 0

    mutating func append(_ tuple: FeedbackTuple, topic: String) {
        if count >= Self.limit, topics[topic]?.tuples.isEmpty == false {
            topics[topic]?.tuples.removeFirst()
            topics[topic]?.removedCount += 1
            count -= 1
        }
        guard count < Self.limit else { return }
        topics[topic, default: Topic()].tuples.append(tuple)
        count += 1
    }

    func reading(topic: String) -> Reading {
        let list = topics[topic] ?? Topic()
        return Reading(topic: topic, tuples: list.tuples, end: list.removedCount + list.tuples.count)
    }

    /// Removes the tuples of a reading. Tuples that were added since then stay. Tuples that another reader has cleared
    /// are skipped.
    mutating func clear(_ reading: Reading) {
        guard let list = topics[reading.topic] else { return }
        let gone = min(max(0, reading.end - list.removedCount), list.tuples.count)
        topics[reading.topic]?.tuples.removeFirst(gone)
        topics[reading.topic]?.removedCount += gone
        count -= gone
    }
}
