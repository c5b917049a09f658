/// One page of a list.
package struct Page<Item: Sendable>: Sendable {
    package let items: [Item]
    /// The cursor for the next page. `nil` at the end of the list.
    package let next: Int64?

    package init(items: [Item], next: Int64?) {
        self.items = items
        self.next = next
    }
}
