package import ChatDomain

/// A row of a result. Columns count from 0. Reading a column throws if it is NULL or has another type.
package protocol SQLRow {
    func int(_ column: Int) throws -> Int64
    func optionalInt(_ column: Int) throws -> Int64?
    func text(_ column: Int) throws -> String
    func optionalText(_ column: Int) -> String?
    func bytes(_ column: Int) throws -> [UInt8]
    func bool(_ column: Int) throws -> Bool
    /// The same row, which stays valid while later rows are read.
    func copy() -> Self
}

/// A column of another type than the statement expects.
package struct UnexpectedColumn: Error {
    let column: Int

    package init(column: Int) {
        self.column = column
    }
}

extension SQLRow {
    /// The time in a column made by `ms(time)`.
    package func time(_ column: Int) throws -> Timestamp { try Timestamp(milliseconds: int(column)) }

    package func optionalTime(_ column: Int) throws -> Timestamp? {
        try optionalInt(column).map(Timestamp.init(milliseconds:))
    }
}
