/// Decides what a device needs next of a changed message, from the pushes of the message that it was sent before.
package enum DeviceUpdate {
    /// A push of the message for the device.
    package struct Row: Sendable, Hashable {
        package let id: Int64
        package let state: PushState
        /// Whether the push replaces or removes the notification without a ring.
        package let isSilent: Bool
        /// Whether the push has the message's newest form.
        package let isCurrent: Bool
        /// Whether a gateway may still have the push, although the message has changed since.
        package let isHeldByGateway: Bool

        package init(id: Int64, state: PushState, isSilent: Bool, isCurrent: Bool, isHeldByGateway: Bool) {
            self.id = id
            self.state = state
            self.isSilent = isSilent
            self.isCurrent = isCurrent
            self.isHeldByGateway = isHeldByGateway
        }
    }

    package enum Next: Sendable, Hashable {
        /// The device has the newest form, or needs none.
        case nothing
        /// A gateway has an older push. Of one message, a device gets at most one push at a time.
        case wait
        case send(AlertUpdate)
    }

    /// - Parameters:
    ///   - rows: The message's pushes for the device. Empty if the device had none, because its member joined later.
    ///   - removes: Whether the last change removes the notification.
    ///   - ringAfter: The last push id when a change last asked for a ring. 0 if none did.
    package static func next(_ rows: [Row], removes: Bool, ringAfter: Int64) -> Next {
        if rows.contains(where: \.isCurrent) { return .nothing }
        if rows.contains(where: \.isHeldByGateway) { return .wait }
        let wasSent = rows.contains { $0.state == .sent }
        if removes { return wasSent ? .send(.remove) : .nothing }
        let ringing = rows.filter { !$0.isSilent }
        // The ring that the last change asked for, or the first one, has been heard.
        if ringing.contains(where: { $0.state == .sent && $0.id > ringAfter }) { return .send(.replace) }
        // No ring may be lost: neither one that an edit overtook, nor one that a change asked for.
        if ringAfter > 0 || ringing.contains(where: { $0.state == .cancelled }) { return .send(.ring) }
        return wasSent ? .send(.replace) : .nothing
    }
}
