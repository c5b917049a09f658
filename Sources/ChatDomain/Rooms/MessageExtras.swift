/// The fields of a message that are only displayed. The databases store them as JSON in one column, which is NULL if
/// there are none, so that a further field needs no statement.
package struct MessageExtras: Sendable, Hashable {
    /// The names of the fields: in requests, in the column, in lists and in streams.
    package static let names: [String] = []

    /// Also has the members that a newer relay wrote, under other names.
    private let members: JSONObject

    package init() {
        members = JSONObject()
    }

    /// - Parameter text: The value of the column. `nil` for NULL. A text that is not a JSON object has no fields.
    package init(stored text: String?) {
        members = text.flatMap { try? JSONValue(parsing: $0).object } ?? JSONObject()
    }

    /// The value of the column. `nil` for NULL.
    package var stored: String? { members.isEmpty ? nil : JSONValue.object(members).description }

    /// The fields that lists and streams show.
    package var shown: [(name: String, value: JSONValue)] {
        members.isEmpty ? [] : Self.names.compactMap { name in members[name].map { (name, $0) } }
    }
}
