import ChatDomain

/// A list that the relay gives out in pages, up to a limit.
struct PagedList {
    let json: Bool
    /// 0 for all.
    let limit: Int
    /// Where the items stand in a page.
    let member: String
    /// The page after a cursor, of at most so many items.
    let page: (_ cursor: Int64?, _ size: Int) async throws -> JSONValue

    private static let largestPage = 500

    /// As JSON the items are printed, one a line; else they are handed over.
    /// - Returns: whether that was all.
    func run(_ item: (JSONObject) -> Void) async throws -> Bool {
        var cursor: Int64?
        var count = 0
        while true {
            let size = limit == 0 ? Self.largestPage : min(limit - count, Self.largestPage)
            let answer = try await page(cursor, size)
            for case .object(let object) in answer.object?[member]?.array ?? [] {
                count += 1
                if json { print(JSONValue.object(object).description) } else { item(object) }
            }
            guard let next = answer.object?["next"]?.integer else { return true }
            guard limit == 0 || count < limit else { return false }
            cursor = next
        }
    }
}
