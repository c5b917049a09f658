#if PostgreSQL
import CPostgreSQL
import ChatDomain

/// What the server or the way to it answered instead of a result.
struct PostgresError: Error, Sendable, CustomStringConvertible {
    enum Kind: Sendable, Hashable {
        /// The server refused a statement.
        case refused
        /// There is no connection, or it ended: what was sent was not committed.
        case lost
        /// The connection ended after COMMIT was sent and before its answer: nobody knows whether it was committed.
        case inDoubt
        /// A row is not what the statement's reader expects.
        case unexpected
    }

    var kind: Kind
    /// Five characters (PostgreSQL's appendix A); empty where the server said nothing.
    var state = ""
    var message: String
    /// The constraint that was broken.
    var constraint: String?

    /// A column is NULL or does not read as what it is taken for.
    static func column(_ number: Int, _ type: String) -> PostgresError {
        PostgresError(kind: .unexpected, message: "column \(number) of a row is not a \(type)")
    }

    static func lost(_ message: String) -> PostgresError {
        PostgresError(kind: .lost, message: message)
    }

    /// The error of a result. A server that ends the connection ends it with one of these, too.
    ///
    /// Errors go to the log, where no value of a row belongs. DETAIL and CONTEXT show such values, and so do the messages of
    /// class 22: `invalid input syntax for type bigint: "…"`, in the server's language.
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

    /// The server goes or is in recovery; a server that refuses to write has become a standby; a pooler has lost its server.
    private static func endsConnection(_ state: String) -> Bool {
        state.isEmpty || state.hasPrefix("08") || state.hasPrefix("57P") || state == "25006" || state == "25P03"
    }

    /// The server writes nothing: it is a standby, or was made one.
    var isStandby: Bool { state == "25006" }

    /// Another row has the same; of this constraint, or of any.
    func isUniqueViolation(_ name: String? = nil) -> Bool {
        state == "23505" && (name == nil || name == constraint)
    }

    /// The constraint of the numbers of pushes that are due.
    static let numbers = "push_queue_due_id"

    /// The sequence came to the number of a row that another program has inserted.
    static let numberTaken = {
        var error = PostgresError(kind: .refused, state: "23505", message: "the number of a push is taken")
        error.constraint = PostgresError.numbers
        return error
    }()

    /// A push has the number already: another program chose it.
    var isNumberTaken: Bool {
        isUniqueViolation() && constraint?.wholeMatch(of: /push_queue_(?:due|[0-9]{8})_id/) != nil
    }

    /// The same transaction may succeed at once when it is tried again: it was one of two that stood in each other's way, or the
    /// sequence came to a number that another program had chosen.
    var isCollision: Bool { state == "40001" || state == "40P01" || isUniqueViolation(Self.numbers) }

    /// Of the server or the way to it: temporary, and every statement fails alike. 53: no disk, memory or connection left;
    /// 57014: a statement took too long; 55P03: a lock was not to be had; 58: the server's disk.
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
    /// What a failed call of the database means for the user: come later, or a fault of ours.
    init(storing error: any Error) {
        switch error {
        case let error as ChatError:
            self = error
        case let error as PostgresError where error.kind == .inDoubt:
            self = ChatError(
                .unavailable, "The server cannot tell whether it stored this; look, or try again",
                retryAfter: .seconds(2), cause: "the answer to COMMIT was lost: \(error)")
        case let error as PostgresError where error.isServerProblem:
            self = .unavailable(cause: String(describing: error))
        default:
            self = ChatError(
                .internalError, "The server made a mistake; nothing was accepted", cause: String(describing: error))
        }
    }
}
#endif
