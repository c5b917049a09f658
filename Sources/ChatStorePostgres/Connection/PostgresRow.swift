import CPostgreSQL
import ChatDomain
import ChatSQL

/// The result of a statement.
final class PostgresResult {
    private let result: OpaquePointer

    init(owning result: OpaquePointer) {
        self.result = result
    }

    deinit { PQclear(result) }

    var rows: [PostgresRow] { (0..<PQntuples(result)).map { PostgresRow(result: self, row: $0) } }

    /// The number of rows that the statement changed or returned.
    var count: Int { Int(String(cString: PQcmdTuples(result))) ?? 0 }

    /// The command tag, for example `COMMIT` or `UPDATE 3`.
    var tag: String { String(cString: PQcmdStatus(result)) }

    /// The text of a column. `nil` for NULL. Valid as long as this object.
    fileprivate func bytes(_ row: Int32, _ column: Int) -> UnsafeRawBufferPointer? {
        guard column < Int(PQnfields(result)), PQgetisnull(result, row, Int32(column)) == 0 else { return nil }
        return UnsafeRawBufferPointer(
            start: PQgetvalue(result, row, Int32(column)), count: Int(PQgetlength(result, row, Int32(column))))
    }
}

/// A row of a result. Columns count from 0. Reading a column throws ``PostgresError`` if it is NULL or has another
/// type.
package struct PostgresRow: SQLRow {
    fileprivate let result: PostgresResult
    fileprivate let row: Int32

    private func bytes(_ column: Int) -> UnsafeRawBufferPointer? { result.bytes(row, column) }

    private static func number(_ bytes: UnsafeRawBufferPointer, _ column: Int) throws -> Int64 {
        let isNegative = bytes.first == UInt8(ascii: "-")
        var number: Int64 = 0
        for byte in bytes.dropFirst(isNegative ? 1 : 0) {
            guard byte.isASCIIDigit else { throw PostgresError.column(column, "whole number") }
            // Accumulates negative numbers, because `Int64` has one more of them.
            let (tens, isTooLarge) = number.multipliedReportingOverflow(by: 10)
            let (sum, isTooSmall) = tens.subtractingReportingOverflow(Int64(byte & 15))
            guard !isTooLarge, !isTooSmall else { throw PostgresError.column(column, "whole number") }
            number = sum
        }
        guard !bytes.isEmpty, isNegative || number > .min else { throw PostgresError.column(column, "whole number") }
        return isNegative ? number : -number
    }

    func isNull(_ column: Int) -> Bool { bytes(column) == nil }

    package func optionalInt(_ column: Int) throws -> Int64? { try bytes(column).map { try Self.number($0, column) } }

    package func int(_ column: Int) throws -> Int64 {
        guard let number = try optionalInt(column) else { throw PostgresError.column(column, "whole number") }
        return number
    }

    package func optionalText(_ column: Int) -> String? { bytes(column).map { String(decoding: $0, as: UTF8.self) } }

    package func text(_ column: Int) throws -> String {
        guard let text = optionalText(column) else { throw PostgresError.column(column, "text") }
        return text
    }

    package func bytes(_ column: Int) throws -> [UInt8] {
        guard let text = bytes(column), text.starts(with: "\\x".utf8),
            let bytes = Hex.bytes(UnsafeRawBufferPointer(rebasing: text.dropFirst(2)))
        else { throw PostgresError.column(column, "bytea") }
        return bytes
    }

    package func bool(_ column: Int) throws -> Bool {
        switch bytes(column)?.first {
        case UInt8(ascii: "t"): return true
        case UInt8(ascii: "f"): return false
        default: throw PostgresError.column(column, "boolean")
        }
    }

    package func copy() -> Self { self }
}
