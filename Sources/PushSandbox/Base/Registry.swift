import Foundation

/// A list of the control API, which is read in pages.
protocol PagedList {
    associatedtype Item: Encodable, Sendable

    /// Returns at most `limit` items with an id above `since`, and the `since` of the next page.
    func page(since: Int, limit: Int) -> (items: [Item], next: Int)
}

/// A thing that the control API creates and removes.
protocol RegistryItem: Encodable, Sendable {
    associatedtype Key: Hashable, Sendable
    /// The plural of the thing's name.
    static var plural: String { get }

    /// The id: from 1, in the order of creation.
    var id: Int { get }
    /// The address under which push services look for the thing.
    var key: Key { get }
    /// The time of the removal. `nil` before it.
    var removedAt: Date? { get set }
}

/// The things of one kind. Removed ones stay, so that their addresses remain rejected.
struct Registry<Item: RegistryItem>: Sendable, PagedList {
    /// The default maximum number of things, including removed ones.
    static var defaultLimit: Int { 100_000 }

    private let limit: Int
    private(set) var items: [Item] = []
    private var indices: [Item.Key: Int] = [:]

    init(limit: Int = Self.defaultLimit) {
        self.limit = limit
    }

    var count: Int { items.count }
    private(set) var removedCount = 0
    var presentCount: Int { count - removedCount }

    /// The thing with this address, even if it was removed.
    subscript(key: Item.Key) -> Item? { index(of: key).map { items[$0] } }

    /// The thing at this index, which may change except for its removal.
    subscript(index index: Int) -> Item {
        get { items[index] }
        set { items[index] = newValue }
    }

    func index(of key: Item.Key) -> Int? { indices.isEmpty ? nil : indices[key] }

    /// Returns the index of the thing with this id. `nil` if there is none.
    func index(id: Int) -> Int? { items.indices.contains(id - 1) ? id - 1 : nil }

    /// Adds a thing, or replaces the one with the same address.
    /// - Parameter make: Creates the thing with this id.
    @discardableResult
    mutating func add(_ key: Item.Key, _ make: (Int) -> Item) throws(LimitReached) -> Item {
        let index = index(of: key) ?? items.count
        guard index < limit else {
            throw LimitReached(
                text: "there are \(limit) \(Item.plural), which is the limit; restart the sandbox to remove them")
        }
        let item = make(index + 1)
        if index == items.count {
            indices[key] = index
            items.append(item)
        } else {
            if items[index].removedAt != nil { removedCount -= 1 }
            items[index] = item
        }
        return item
    }

    /// Removes a thing.
    /// - Returns: Whether it was there until now.
    mutating func remove(index: Int, at now: Date) -> Bool {
        guard items[index].removedAt == nil else { return false }
        items[index].removedAt = now
        removedCount += 1
        return true
    }

    func page(since: Int, limit: Int) -> (items: [Item], next: Int) {
        let page = items.dropFirst(max(0, since)).prefix(limit)
        return (Array(page), page.last?.id ?? items.count)
    }
}
