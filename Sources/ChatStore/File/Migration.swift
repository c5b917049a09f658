package import ChatDomain
import Crypto

/// Copies all data from one store into another, empty one, table by table: `pushchat migrate`. One of the two is a
/// SQLite file (``SQLiteMigration``), so the type is in this target.
///
/// Reads the target back and compares it by a hash of all rows in their canonical form (``RowWriter``). If it throws,
/// the caller has to discard the target.
package enum Migration {
    /// A table whose content is the same in both stores.
    package struct Copied: Sendable, Hashable {
        package let table: String
        package let rows: Int
        /// The SHA-256 of its rows, in lower-case hexadecimal.
        package let hash: String
    }

    /// The number of rows of a table that were copied, or read back.
    package struct Progress: Sendable {
        package let table: String
        package let rows: Int
        package let isCheck: Bool
    }

    /// The reason why the migration failed. Nothing of it is kept.
    package struct Failure: Error, CustomStringConvertible {
        package let description: String
    }

    /// The number of rows between two progress reports.
    private static let step = 1000

    /// - Parameters:
    ///   - progress: Called after each ``step`` rows.
    ///   - isStopped: Called equally often. Throws ``Failure`` if it returns true.
    package static func run(
        from source: any MigrationSource, to target: any MigrationTarget,
        progress: (Progress) -> Void = { _ in }, isStopped: () -> Bool = { false }
    ) throws -> [Copied] {
        try MigratedTable.all.map { table in
            var (sent, kept) = (RowHash(), RowHash())
            func add(_ row: UnsafeRawBufferPointer, to hash: inout RowHash, isCheck: Bool) throws {
                hash.add(row)
                guard hash.rows.isMultiple(of: step) else { return }
                if isStopped() { throw Failure(description: "it was stopped") }
                progress(Progress(table: table.name, rows: hash.rows, isCheck: isCheck))
            }
            try target.write(table) { write in
                try source.read(table) { row in
                    try add(row, to: &sent, isCheck: false)
                    try write(row)
                }
            }
            try target.read(table) { try add($0, to: &kept, isCheck: true) }
            let (rows, hash) = (sent.rows, sent.text)
            guard kept.rows == rows, kept.text == hash else {
                throw Failure(
                    description: """
                        \(table.name) differs in the target: \(rows) rows were read, and \(kept.rows) are stored \
                        (SHA-256 \(hash) and \(kept.text))
                        """)
            }
            if table.isNumbered {
                let number = try source.highestNumber(of: table)
                try target.setHighestNumber(of: table, number)
                guard try target.highestNumber(of: table) == number else {
                    throw Failure(description: "the next id of \(table.name) could not be set")
                }
            }
            return Copied(table: table.name, rows: rows, hash: hash)
        }
    }
}

/// The hash of consecutive rows.
private struct RowHash {
    private(set) var rows = 0
    private var hash = SHA256()

    mutating func add(_ row: UnsafeRawBufferPointer) {
        rows += 1
        hash.update(bufferPointer: row)
    }

    var text: String { Hex.text(Array(hash.finalize())) }
}
