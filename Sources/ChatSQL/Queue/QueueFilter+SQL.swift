import ChatDomain

extension SQLTransaction {
    /// Reads rows `q` of `push_queue` that match a filter, in the order of the queue.
    /// - Parameters:
    ///   - columns: The first one has to be `q.message_id`.
    ///   - condition: A further condition on the row, without parameters.
    func page(
        _ columns: String, _ filter: QueueFilter, where condition: String? = nil, after: Int64, upTo last: Int64,
        limit: Int
    ) throws -> (rows: [Row], next: Int64?) {
        var (after, last) = (after, last)
        if let notification = filter.notification {
            let ends = try row(
                "SELECT first_push, last_push FROM notifications WHERE notification_id = $1", [.int(notification)])
            guard let first = try ends?.optionalInt(0), let end = try ends?.optionalInt(1) else { return ([], nil) }
            (after, last) = (max(after, first - 1), min(last, end))
        }
        var parameters = SQLParameters()
        var candidates = "push_queue q WHERE q.message_id > \(parameters.add(.int(after)))"
        if let ids = filter.ids {
            candidates += " AND " + dialect.isAny("q.message_id", of: parameters.list(.ints(ids)), "bigint")
        }
        let ends = parameters.values
        let conditions = filter.conditions(dialect, &parameters) + (condition.map { ["(\($0))"] } ?? [])
        return try page(
            columns, key: "q.message_id", of: candidates, ends, upTo: last,
            where: conditions.isEmpty ? nil : conditions.joined(separator: " AND "),
            Array(parameters.values[ends.count...]), limit: limit)
    }
}

extension QueueFilter {
    /// Conditions on a row `q` of `push_queue`, in addition to its id.
    ///
    /// The additions to columns keep the databases from using their indexes. Rows then come in the order of the queue,
    /// and no page has to be sorted.
    fileprivate func conditions(_ dialect: SQLDialect, _ parameters: inout SQLParameters) -> [String] {
        var conditions: [String] = []
        if let notification { conditions.append("q.notification + 0 = \(parameters.add(.int(notification)))") }
        if let app { conditions.append("q.app || '' = \(parameters.text(app.text))") }
        if let states {
            let list = parameters.list(.texts(states.map(\.rawValue).sorted()))
            conditions.append(dialect.isAny("q.state || ''", of: list, "text"))
        }
        if let token {
            conditions.append("\(DeviceToken.storedSQL("q.device_token")) = \(parameters.text(token.description))")
        }
        if let reason { conditions.append("q.reason = \(parameters.text(reason))") }
        if let queuedBefore { conditions.append("q.time_queued < at(\(parameters.add(.time(queuedBefore))))") }
        if let queuedAfter { conditions.append("q.time_queued > at(\(parameters.add(.time(queuedAfter))))") }
        return conditions
    }
}

extension DeviceToken {
    /// Returns the form in which devices have the token of a column that scripts write. They may write bytes in upper
    /// case, with blanks and in angle brackets. Other tokens have one form: with a colon, or of one length.
    package static func storedSQL(_ column: String) -> String {
        """
        CASE WHEN \(column) LIKE '%:%' OR length(\(column)) = \(TokenKind.installationID) THEN \(column)
            ELSE lower(replace(replace(replace(\(column), ' ', ''), '<', ''), '>', '')) END
        """
    }
}
