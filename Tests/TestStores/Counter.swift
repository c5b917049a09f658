import Synchronization

/// A counter that several tasks share.
final class Counter: Sendable {
    private let count = Atomic(0)

    var value: Int { count.load(ordering: .relaxed) }

    /// - Returns: The new count.
    @discardableResult
    func add(_ more: Int = 1) -> Int { count.add(more, ordering: .relaxed).newValue }
}
