package import ChatDomain

/// A parameter of a statement. `$1` in the statement is the first one.
package enum SQLValue: Sendable, Hashable {
    case null
    case int(Int64)
    case text(String)
    case bytes([UInt8])
    case bool(Bool)
    /// Read it with `at($1)`, which makes it a time of the database.
    case time(Timestamp)
    /// Lists. ``SQLDialect/each(_:_:)`` and ``SQLDialect/table(_:_:)`` read them in both databases.
    case ints([Int64])
    case texts([String])
    case optionalInts([Int64?])
    case optionalTexts([String?])

    package static func int(_ value: Int?) -> SQLValue { value.map { .int(Int64($0)) } ?? .null }
    package static func optional(_ value: Int64?) -> SQLValue { value.map { .int($0) } ?? .null }
    package static func optional(_ text: String?) -> SQLValue { text.map { .text($0) } ?? .null }
    package static func optional(_ time: Timestamp?) -> SQLValue { time.map { .time($0) } ?? .null }
}

extension SQLValue: ExpressibleByIntegerLiteral, ExpressibleByStringLiteral, ExpressibleByBooleanLiteral {
    package init(integerLiteral value: Int64) { self = .int(value) }
    package init(stringLiteral value: String) { self = .text(value) }
    package init(booleanLiteral value: Bool) { self = .bool(value) }
}
