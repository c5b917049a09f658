package import ChatDomain

/// Either database, as the stores of this target use it.
package protocol SQLDatabase: Sendable {
    associatedtype Transaction: SQLTransaction
    /// The wall clock.
    var now: TimeSource { get }
    var longReads: LongReads { get }

    /// Reads the state of the last commit, within some milliseconds. Reads that may take longer are a ``LongRead``.
    /// `body` may run several times.
    func read<Value: Sendable>(
        _ body: @escaping @Sendable (Transaction) throws -> Value
    ) async throws(ChatError) -> Value

    /// Writes in one transaction. `body` may run several times, so it must have no effects outside the database. A
    /// ``ChatError`` has to be thrown before the first write.
    ///
    /// - Parameter committed: Called after the commit, before the caller resumes: in SQLite on the writer's thread, in the
    ///   order of the commits. It has to be quick.
    func write<Value: Sendable>(
        as terms: WriteTerms, _ body: @escaping @Sendable (Transaction) throws -> Value,
        committed: @escaping @Sendable (Value) -> Void
    ) async throws(ChatError) -> Value
}

extension SQLDatabase {
    package var dialect: SQLDialect { Transaction.dialect }

    package func write<Value: Sendable>(
        as terms: WriteTerms, _ body: @escaping @Sendable (Transaction) throws -> Value
    ) async throws(ChatError) -> Value {
        try await write(as: terms, body, committed: { _ in })
    }

    /// Repeats a statement that changes few rows at a time, so that other writes do not wait.
    ///
    /// - Parameter sql: A statement that uses an index. Its last parameter is the maximum number of rows to change.
    package func changeInSteps(_ sql: String, _ values: [SQLValue]) async throws(ChatError) {
        let step = 500
        while try await write(as: .upkeep, { try $0.run(sql, values + [.int(Int64(step))]) }) == step {}
    }
}

/// The conditions under which a transaction writes.
package struct WriteTerms: Sendable {
    /// The work that waits together, and does not delay other work.
    package enum Priority: Sendable {
        /// A client waits for the response.
        case answer
        /// The store's own work.
        case upkeep
        /// Long work in steps, which runs when the database has time for it.
        case background
    }

    package let priority: Priority
    /// Whether to repeat the transaction even if it is unknown whether the commit succeeded. For PostgreSQL.
    package var isRepeatable = true
    /// False if a power cut may undo the writes. For SQLite.
    package var isDurable = true

    package static let answer = WriteTerms(priority: .answer)
    package static let upkeep = WriteTerms(priority: .upkeep)
    /// For writes that must not happen twice, like an insert without a key.
    package static let answerOnce = WriteTerms(priority: .answer, isRepeatable: false)
    package static let upkeepOnce = WriteTerms(priority: .upkeep, isRepeatable: false)
    /// For a step of long work.
    package static let job = WriteTerms(priority: .background, isRepeatable: false)
    /// For writes that are repeated or replaced later, so that a power cut may undo them.
    package static let notes = WriteTerms(priority: .upkeep, isDurable: false)
}
