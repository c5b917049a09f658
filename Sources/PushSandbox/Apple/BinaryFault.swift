import PushWire

/// The faults of the binary protocol.
enum BinaryFault: FaultAction, Hashable {
    /// Responds with the status after the delay. Everything that arrives until then is read and discarded.
    ///
    /// With ``BinaryStatus/shutdown`` the notification is accepted, and the packet names it as the last good one.
    /// `identifier` replaces the notification's own identifier in the packet.
    case status(BinaryStatus, delay: Int, identifier: UInt32?)
    /// Closes the connection cleanly without a response. The notification is not processed.
    case close
    /// Resets the connection. The notification is not processed.
    case reset
    /// Accepts the notification, then stops reading for this time, or for good if the time is `nil`.
    case stopReading(Int?)
    /// Processes the notification, and all later ones of its connection, after this time.
    case delay(Int)
    /// Records the notification as dropped and continues. The client believes that it was accepted.
    case drop

    static let gateway = GatewayProtocol.binary

    static let forms = [
        FaultForm("status", .status, .identifier, .delay) { fields in
            let delay = try fields.responseDelay()
            guard let status = try fields.integer(.status, in: 0...255) else {
                throw ControlError("status: must be given with the action status, from 0 to 255")
            }
            let identifier = try fields.integer(.identifier, in: 0...Int(UInt32.max))
            return Self.status(
                BinaryStatus(rawValue: UInt8(status)), delay: delay, identifier: identifier.map(UInt32.init))
        },
        FaultForm("close", Self.close), FaultForm("reset", Self.reset),
        FaultForm("stop_reading", .delay) { Self.stopReading(try $0.delay()) },
        .delay(Self.delay), FaultForm("drop", Self.drop),
        FaultForm("probe", .answer, .status) { try ProbeFault(&$0) },
    ]
}

/// The fault of probes: it hits only them, and no other fault does.
struct ProbeFault: FaultAction {
    static let gateway = GatewayProtocol.binary
    /// The default status of an unidentified error. A fault can name another.
    static let unidentifiedStatus = BinaryStatus.processingError

    let answer: SandboxConfiguration.ProbeResponse
    /// The status of an unidentified error.
    var status = Self.unidentifiedStatus
}

extension ProbeFault {
    fileprivate init(_ fields: inout FaultFields) throws(ControlError) {
        guard !fields.has(.token) else {
            throw ControlError("token: not allowed with the action probe, because a probe has no token")
        }
        guard let answer = try fields.string(.answer).flatMap(SandboxConfiguration.ProbeResponse.init) else {
            let answers = SandboxConfiguration.ProbeResponse.allCases.map(\.rawValue).joined(separator: ", ")
            throw ControlError("answer: must be one of \(answers), with the action probe")
        }
        let status = try fields.integer(.status, in: 0...255)
        guard status == nil || answer == .unidentified else {
            throw ControlError("status: allowed with the action probe only if answer is unidentified")
        }
        self.init(
            answer: answer,
            status: status.map { BinaryStatus(rawValue: UInt8($0)) } ?? Self.unidentifiedStatus)
        if answer == .unidentified { fields.set(.status, self.status.rawValue) }
    }
}
