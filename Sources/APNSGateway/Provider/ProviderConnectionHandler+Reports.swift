import APNSWire
import ChatDomain
import Logging
import NIOCore

/// What those around a connection are told.
extension ProviderConnectionHandler {
    struct Listeners: Sendable {
        /// It may take pushes again.
        var changed: @Sendable () -> Void
        /// The gateway does not take our certificate or provider token.
        var credentialsRefused: @Sendable (ProviderRefusal) -> Void
    }

    /// Hands over what was concluded.
    func deliver(now: NIODeadline) {
        if !state.outcomes.isEmpty { noteService(state.takeReport(), now: now) }
        let outcomes = state.takeOutcomes()
        // First, so that who has seen a verdict does not get a slot that its end has made void.
        let isOfInterest = desk.publish(
            settled: outcomes.count, capacity: isOver ? 0 : state.capacity(at: now),
            canBeSaturated: !isOver && state.isSaturated, hesitates: !isOver && state.hesitates(at: now))
        mailbox.put(VerdictBatch.verdicts(outcomes, on: epoch))
        if isOfInterest { listeners.changed() }
        if let reason = state.retirement, !isRetired { noteRetired(reason) }
    }

    private func noteService(_ report: ProviderConnectionState.Report, now: NIODeadline) {
        guard
            let delay = temper.note(good: report.good, troubles: report.troubles, now: now, random: .random(in: 0...1))
        else { return }
        logger.warning(
            "the push service is in trouble, sending pauses", metadata: ["ms": "\(delay.nanoseconds / 1_000_000)"])
        state.handBack()
        let changed = listeners.changed
        context?.eventLoop.scheduleTask(in: delay) { changed() }
    }

    private func noteRetired(_ reason: ProviderConnectionState.Retirement) {
        isRetired = true
        if case .credentials(let refusal) = reason {
            logger.error(
                "gateway does not accept the credentials; what waits is sent once it does",
                metadata: ["reason": "\(refusal.reason)", "advice": "\(AnswerJudge.advice(refusal.known))"])
            listeners.credentialsRefused(refusal)
        } else {
            logger.debug("connection takes no more", metadata: ["reason": "\(reason)"])
        }
        retirement.succeed()
    }
}
