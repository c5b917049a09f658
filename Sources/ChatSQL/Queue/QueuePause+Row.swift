package import ChatDomain

extension QueuePause {
    package static let columns = "app, reason, actor, ms(time_paused)"

    /// - Parameter row: Begins with ``columns``.
    package init(_ row: some SQLRow) throws {
        self.init(
            app: AppName(try row.text(0)), reason: row.optionalText(1), actor: try row.text(2), since: try row.time(3))
    }
}

extension SQLTransaction {
    /// All pauses, in the order of the apps' names.
    package func queuePauses() throws -> [QueuePause] {
        try rows("SELECT \(QueuePause.columns) FROM queue_pauses ORDER BY app", []).map { try QueuePause($0) }
    }
}
