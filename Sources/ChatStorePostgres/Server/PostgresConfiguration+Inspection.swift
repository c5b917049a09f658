package import ChatDomain
import ChatSQL
import Foundation

extension PostgresConfiguration {
    /// The report of `pushchat check` about a database.
    package struct Inspection: Sendable {
        package var text: String
        /// Warnings for the operator.
        package var problems: [String] = []
        package var pushesToSend: [AppName: Int] = [:]
        package var pauses: [QueuePause] = []
        package var members: [AppName: Int] = [:]
        /// Members' credentials whose user is unknown.
        package var credentialsWithoutUser = 0
        package var scheduled = ScheduledMessage.Backlog()
        package var webhooks = WebhookTotals()
    }

    /// The tolerated difference between the server's clock and this machine's. The relays' clocks set the times of
    /// messages.
    private static let mostDifference = Duration.seconds(5)

    /// Inspects the database without changing it. Blocks for a few seconds at most.
    /// - Throws: ``Unusable``.
    package func inspect() throws -> Inspection {
        do {
            let connection = try PostgresConnection(url: url)
            connection.deadline = .now + .seconds(20)
            return try inspect(connection)
        } catch let error as PostgresError {
            throw Unusable(description: "PostgreSQL cannot be used: \(error)")
        }
    }

    private func inspect(_ connection: PostgresConnection) throws -> Inspection {
        let major = connection.serverVersion / 10_000
        guard major >= PostgresSchema.oldestServer else {
            throw Unusable(
                description: "PostgreSQL \(major) is too old; at least \(PostgresSchema.oldestServer) is needed")
        }
        try connection.run("BEGIN READ ONLY")
        if let schema {
            try connection.run("SELECT set_config('search_path', quote_ident($1::text), true)", [.text(schema)])
        }
        let begin = ContinuousClock.now
        let before = Timestamp.now()
        let row = try connection.run(
            """
            SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, current_setting('server_version'),
                to_regclass('relay_schema') IS NOT NULL, current_schema() IS NULL,
                has_database_privilege(current_database(), 'CREATE'),
                COALESCE(has_schema_privilege(current_schema(), 'CREATE'), false),
                current_setting('synchronous_commit'), current_setting('server_encoding')
            """
        ).first
        let latency = ContinuousClock.now - begin
        guard let row else { throw Unusable(description: "PostgreSQL does not answer") }
        var found = Inspection(text: "PostgreSQL \(try row.text(1)), \(max(1, latency.milliseconds)) ms away")
        if let weakness = ServerTrust(of: url).weakness { found.problems.append(weakness) }
        let difference = Duration.milliseconds(try row.int(0) - before.milliseconds) - latency / 2
        if abs(difference.milliseconds) > Self.mostDifference.milliseconds {
            found.problems.append("its clock differs from this machine's by \(difference.components.seconds) s")
        }
        if try row.text(6) == "off" {
            found.problems.append("synchronous_commit is off: accepted data may be lost if the server loses power")
        }
        guard try row.text(7) == "UTF8" else {
            throw Unusable(description: "\(found.text); its encoding is \(try row.text(7)), and must be UTF8")
        }
        guard try row.bool(2) else {
            let mayMake = try row.bool(3) ? row.bool(4) && schema != nil : row.bool(5)
            guard mayMake else { throw Unusable(description: "\(found.text); this user may not create tables in it") }
            found.text += ", no tables yet: they will be created"
            return found
        }
        let version = try connection.run("SELECT version FROM relay_schema").first?.int(0) ?? 0
        guard version <= PostgresSchema.current.version else {
            throw Unusable(description: "schema version \(version) belongs to a newer pushchat: run that")
        }
        func count(_ table: String) throws -> [AppName: Int] {
            try connection.run("SELECT app, count(*) FROM \(table) GROUP BY app").reduce(into: [:]) {
                $0[AppName(try $1.text(0))] = Int(try $1.int(1))
            }
        }
        found.members = try count("active_users")
        found.pushesToSend = try count("push_queue_due WHERE state = 'pending'")
        if try connection.run("SELECT to_regclass('queue_pauses') IS NOT NULL").first?.bool(0) == true {
            found.pauses = try connection.run("SELECT \(QueuePause.columns) FROM queue_pauses ORDER BY app")
                .map { try QueuePause($0) }
        }
        if version >= 4 {
            found.credentialsWithoutUser =
                try connection.run(Credential.countWithoutUserSQL).first.map { Int(try $0.int(0)) } ?? 0
        }
        if version >= 6, let row = try connection.run(ScheduledMessage.Backlog.sql(at: .now())).first {
            found.scheduled = try ScheduledMessage.Backlog(row)
        }
        if version >= 8, let row = try connection.run(WebhookTotals.sql).first {
            found.webhooks = try WebhookTotals(row)
        }
        let relays = try connection.run("SELECT count(*) FROM relay_starts WHERE time_ended IS NULL").first?.int(0) ?? 0
        found.text += """
            , schema version \(version), \(relays) relays, \(found.members.values.reduce(0, +)) members, \
            \(found.pushesToSend.values.reduce(0, +)) pushes to send
            """
        return found
    }
}
