import CPostgreSQL
import ChatDomain

/// An error of the server, or of the connection to it.
struct PostgresError: Error, Sendable, CustomStringConvertible {
    enum Kind: Sendable, Hashable {
        /// The server refused a statement.
        case refused
        /// There is no connection, or it was lost. The transaction was not committed.
        case lost
        /// The connection was lost after COMMIT was sent and before its response. It is unknown whether the transaction
        /// was committed.
        case inDoubt
        /// A row does not have the form that the code expects.
        case unexpected
    }

    var kind: Kind
    /// The SQLSTATE, five characters (PostgreSQL's documentation, Appendix A). Empty if the server sent none.
    var state = ""
    var message: String
    /// The constraint that was violated. `nil` if there is none.
    var constraint: String?

    /// A column is NULL or does not have the expected type.
    static func column(_ number: Int, _ type: String) -> PostgresError {
        PostgresError(kind: .unexpected, message: "column \(number) of a row is not a \(type)")
    }

    static func lost(_ message: String) -> PostgresError {
        PostgresError(kind: .lost, message: message)
    }

    /// The error of a result. A server that ends the connection reports it with such a result as well.
    ///
    /// Errors go to the log, which must not contain values of rows. DETAIL and CONTEXT contain such values, and so do
    /// the messages of class 22: `invalid input syntax for type bigint: "…"`, in the server's language.
    init(result: OpaquePointer) {
        func field(_ code: Int32) -> String? { PQresultErrorField(result, code).map { String(cString: $0) } }
        state = field(PostgresConnection.Field.state) ?? ""
        let text = field(PostgresConnection.Field.message) ?? String(cString: PQresultErrorMessage(result))
        message = state.hasPrefix("22") ? "a value does not fit its type" : text
        constraint = field(PostgresConnection.Field.constraint)
        kind = Self.endsConnection(state) ? .lost : .refused
    }

    init(kind: Kind, state: String = "", message: String) {
        self.kind = kind
        self.state = state
        self.message = message
    }

    /// Whether the state ends the connection. Either the server shuts down, is in recovery, or refuses to write because
    /// it has become a standby, or a pooler has lost its server.
    private static func endsConnection(_ state: String) -> Bool {
        state.isEmpty || state.hasPrefix("08") || state.hasPrefix("57P") || state == "25006" || state == "25P03"
    }

    /// Whether the server is a standby, which cannot write.
    var isStandby: Bool { state == "25006" }

    /// Whether the server's disk, or the disk of a tablespace, is full.
    var isDiskFull: Bool { state == "53100" }

    /// Whether the statement violated this unique constraint, or any if `name` is `nil`.
    func isUniqueViolation(_ name: String? = nil) -> Bool {
        state == "23505" && (name == nil || name == constraint)
    }

    /// The unique constraint on the ids of due pushes.
    static let numbers = "push_queue_due_id"

    /// The sequence returned a push id that another program has already inserted.
    static let numberTaken = {
        var error = PostgresError(kind: .refused, state: "23505", message: "the push id is taken")
        error.constraint = PostgresError.numbers
        return error
    }()

    /// Whether a push with the same id exists, because another program chose the id.
    var isNumberTaken: Bool {
        isUniqueViolation() && constraint?.wholeMatch(of: /push_queue_(?:due|[0-9]{8})_id/) != nil
    }

    /// Whether an immediate retry of the transaction may succeed: it conflicted with another one, or the sequence
    /// returned a push id that another program had chosen.
    var isCollision: Bool { state == "40001" || state == "40P01" || isUniqueViolation(Self.numbers) }

    /// Whether the cause is the server or the network. The problem is then temporary, and every statement fails in the
    /// same way. States: 53, no disk space, memory or connections left; 57014, a statement took too long; 55P03, a lock
    /// was not available; 58, the server's disk.
    var isServerProblem: Bool {
        switch kind {
        case .lost, .inDoubt: true
        case .unexpected: false
        case .refused:
            isCollision || state.hasPrefix("53") || state.hasPrefix("58") || state == "57014" || state == "55P03"
        }
    }

    var description: String {
        let code = state.isEmpty ? "" : " [\(state)]"
        return message.split(whereSeparator: \.isNewline).joined(separator: " ") + code
    }
}

extension ChatError {
    /// Maps a failed database call to an error for the client: unavailable if a retry can help, internal error
    /// otherwise.
    init(storing error: any Error) {
        switch error {
        case let error as ChatError:
            self = error
        case let error as PostgresError where error.kind == .inDoubt:
            self = ChatError(
                .unavailable, "The server cannot tell whether it stored this; check, or try again",
                retryAfter: .seconds(2), cause: "the response to COMMIT was lost: \(error)")
        case let error as PostgresError where error.isServerProblem:
            self = .unavailable(cause: String(describing: error))
        default:
            self = ChatError(
                .internalError, "The server made a mistake; nothing was accepted", cause: String(describing: error))
        }
    }
}
