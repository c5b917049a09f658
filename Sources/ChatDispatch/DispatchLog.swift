import ChatDomain
import Logging

/// What the dispatcher tells an operator: one line for each thing that happened, and one for many alike.
struct DispatchLog: Sendable {
    private let logger: Logger
    private let showsTokens: Bool

    init(app: AppName, logger: Logger, showsTokens: Bool) {
        var logger = logger
        logger[metadataKey: "app"] = "\(app)"
        self.logger = logger
        self.showsTokens = showsTokens
    }

    private func text(_ token: DeviceToken) -> String {
        showsTokens ? token.description : token.shortened
    }

    func written(_ lease: Lease) {
        if lease.pushes.count == 1 {
            let push = lease.pushes[0]
            logger.info(
                "pushed",
                metadata: [
                    "entry": "\(push.entry)", "token": "\(text(push.token))",
                    "connection": "\(lease.slot.connection)", "identifier": "\(push.identifier)",
                ])
        } else {
            logger.info(
                "pushed",
                metadata: ["count": "\(lease.pushes.count)", "connection": "\(lease.slot.connection)"])
        }
        if lease.isProbe {
            logger.notice("these were lost with their connections before; asking the gateway about them alone")
        }
    }

    func refused(_ refusals: [Lease.Refusal]) {
        for refusal in refusals {
            logger.warning(
                "not pushed",
                metadata: [
                    "entry": "\(refusal.entry)", "state": "\(refusal.state.rawValue)", "reason": "\(refusal.reason)",
                ])
        }
    }

    func settled(_ settlements: [Settlement]) {
        for settlement in settlements where settlement.count > 0 {
            var metadata: Logger.Metadata = ["connection": "\(settlement.verdict.connection)"]
            if let entry = settlement.entry { metadata["entry"] = "\(entry)" }
            if let token = settlement.token { metadata["token"] = "\(text(token))" }
            if settlement.count > 1 { metadata["count"] = "\(settlement.count)" }
            switch settlement.verdict.outcome {
            case .accepted:
                logger.info("accepted by the gateway", metadata: metadata)
            case .rejected(let reason, let hint):
                metadata["reason"] = "\(reason)"
                if let hint { metadata["hint"] = "\(hint)" }
                logger.warning("refused by the gateway", metadata: metadata)
            case .unregistered(let since, let reason):
                metadata["reason"] = "\(reason)"
                metadata["since"] = "\(since.rfc3339)"
                logger.notice("device no longer wants pushes", metadata: metadata)
            case .retry(let reason):
                metadata["reason"] = "\(reason)"
                logger.notice(
                    settlement.state == .failed ? "failed after repeats" : "to be repeated later", metadata: metadata)
            case .notAuthorized(let reason):
                metadata["reason"] = "\(reason)"
                logger.notice("credentials not accepted, repeating later", metadata: metadata)
            case .sentBack(let reason):
                metadata["reason"] = "\(reason)"
                logger.info("sent back by the gateway, repeating", metadata: metadata)
            case .notProcessed:
                logger.info("not processed, repeating", metadata: metadata)
            case .unanswered(let reason):
                metadata["reason"] = "\(reason)"
                logger.notice("connection went without an answer, repeating", metadata: metadata)
            }
        }
    }

    /// The first failure in a row is an error, the others are details.
    func failed(_ what: Logger.Message, _ error: ChatError, isFirst: Bool) {
        logger.log(level: isFirst ? .error : .debug, what, metadata: ["error": "\(error)"])
    }
}
