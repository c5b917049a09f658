import ChatDomain

extension Page {
    /// Returns the items of all pages of a list.
    static func all(_ page: (Int64?) async throws -> Page) async throws -> [Item] {
        var items: [Item] = []
        var cursor: Int64?
        repeat {
            let page = try await page(cursor)
            items += page.items
            cursor = page.next
        } while cursor != nil
        return items
    }
}
