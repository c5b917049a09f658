import ChatDomain
import Logging

/// The dispatcher's log lines for operators: one line per event, and a single line for many pushes with the same event.
struct DispatchLog: Sendable {
    private let logger: Logger
    private let showsTokens: Bool

    init(app: AppName, logger: Logger, showsTokens: Bool) {
        var logger = logger
        logger[metadataKey: "app"] = "\(app)"
        self.logger = logger
        self.showsTokens = showsTokens
    }

    private func text(_ address: String) -> String {
        showsTokens ? address : address.prefix(8) + "…"
    }

    /// Logs that pushes were written: one line, and at the debug level one line for each push.
    /// - Parameter rows: The queue's rows of the lease's pushes, in the same order.
    func written(_ lease: Lease, _ rows: [QueuedPush]) {
        if lease.pushes.count == 1 {
            logger.info("pushed", metadata: metadata(lease.pushes[0], rows[0], lease))
        } else {
            logger.info(
                "pushed",
                metadata: ["connection": "\(lease.slot.connection)", "count": "\(lease.pushes.count)"])
            if logger.logLevel <= .debug {
                for (push, row) in zip(lease.pushes, rows) {
                    logger.debug("pushed, one of several", metadata: metadata(push, row, lease))
                }
            }
        }
        if lease.isProbe {
            logger.info(
                "earlier pushes may have been lost: sending these first, as a probe")
        }
    }

    /// The metadata by which an operator finds a push again, from its message and at Apple.
    private func metadata(_ push: Push, _ row: QueuedPush, _ lease: Lease) -> Logger.Metadata {
        var metadata: Logger.Metadata = [
            "connection": "\(lease.slot.connection)", "entry": "\(push.id)",
            "token": "\(text(push.address.description))", "identifier": "\(push.identifier)",
        ]
        if let message = row.message { metadata["message_id"] = "\(message)" }
        if let notification = row.notification { metadata["notification"] = "\(notification)" }
        if let id = push.apnsID { metadata["apns_id"] = "\(id)" }
        return metadata
    }

    func notSent(_ settlements: [Settlement]) {
        for settlement in settlements {
            logger.warning(
                "not pushed",
                metadata: [
                    "entry": "\(settlement.pushIDs.lowerBound)", "state": "\(settlement.transition.state.rawValue)",
                    "reason": "\(settlement.transition.reason ?? "")",
                ])
        }
    }

    func released(_ count: Int) {
        logger.info("not processed, retrying", metadata: ["count": "\(count)"])
    }

    func settled(_ settlements: [(settlement: Settlement, report: DeliveryReport)], _ settled: [SettledPushes]) {
        for ((settlement, report), changed) in zip(settlements, settled) where changed.count > 0 {
            var metadata: Logger.Metadata = ["connection": "\(report.connection)"]
            if settlement.count == 1 { metadata["entry"] = "\(settlement.pushIDs.lowerBound)" }
            if let address = changed.address { metadata["token"] = "\(text(address))" }
            if changed.count > 1 { metadata["count"] = "\(changed.count)" }
            if settlement.count > 1 {
                metadata["entries"] = "\(settlement.pushIDs.lowerBound)-\(settlement.pushIDs.upperBound)"
            }
            if let reason = settlement.transition.reason { metadata["reason"] = "\(reason)" }
            let isOver = settlement.transition.state == .failed
            switch report.outcome {
            case .accepted:
                logger.info("accepted by the gateway", metadata: metadata)
            case .rejected, .badAddress:
                if case .rejected(_, let hint?) = report.outcome { metadata["hint"] = "\(hint)" }
                logger.warning("refused by the gateway", metadata: metadata)
            case .unregistered(let since, _):
                metadata["since"] = "\(since.rfc3339)"
                logger.notice("device is no longer registered", metadata: metadata)
            case .retry:
                logger.notice(isOver ? "failed: no retries left" : "retrying later", metadata: metadata)
            case .postponed:
                logger.debug("push service accepts no pushes now, waiting", metadata: metadata)
            case .notAuthorized(_, let hint):
                if let hint { metadata["hint"] = "\(hint)" }
                logger.notice(
                    isOver
                        ? "failed: credentials rejected"
                        : "credentials rejected, retrying later",
                    metadata: metadata)
            case .sentBack:
                logger.info(
                    isOver ? "failed: no retries left" : "sent back by the gateway, retrying", metadata: metadata)
            case .notProcessed:
                logger.info("not processed, retrying", metadata: metadata)
            case .unanswered:
                logger.notice(
                    isOver
                        ? "failed: its connections end without a response"
                        : "connection ended without a response, retrying",
                    metadata: metadata)
            }
        }
    }

    /// Logs that the process stops before these outcomes could be recorded.
    func notRecorded(_ settlements: [Settlement]) {
        logger.error(
            "outcomes lost while stopping: the next start sends these pushes and later ones again",
            metadata: ["count": "\(settlements.reduce(0) { $0 + $1.count })"])
    }

    /// Logs the first failure of a series as an error, and the following ones at the debug level.
    func failed(_ message: Logger.Message, _ error: ChatError, isFirst: Bool) {
        logger.log(level: isFirst ? .error : .debug, message, metadata: ["error": "\(error)"])
    }
}
