import APNSWire
import Foundation
import Hummingbird

/// The actions of a fault, as `POST /faults` spells them.
enum FaultAction: String, CaseIterable {
    case status
    case close
    case reset
    case stopReading = "stop_reading"
    case delay
    case drop
    // HTTP/2 only:
    case closeAccepted = "close_accepted"
    case goAway = "goaway"
    case streamLimit = "stream_limit"
    case resetStream = "reset_stream"
    case refuseStream = "refuse_stream"
    case expireToken = "expire_token"

    static func all(over gateway: GatewayProtocol) -> [FaultAction] {
        gateway == .http2 ? allCases : [.status, .close, .reset, .stopReading, .delay, .drop]
    }

    /// The fields that say more about it.
    func fields(over gateway: GatewayProtocol) -> Set<String> {
        switch self {
        case .status where gateway == .binary: ["status", "identifier", "delay_ms"]
        case .status: ["status", "reason", "timestamp", "delay_ms"]
        case .stopReading, .delay: ["delay_ms"]
        case .goAway: ["reason", "last_stream", "code"]
        case .streamLimit: ["limit", "delay_ms"]
        case .resetStream: ["code"]
        case .close, .reset, .drop, .closeAccepted, .refuseStream, .expireToken: []
        }
    }
}

/// A fault as `POST /faults` asks for it.
struct FaultRequest {
    private static let common: Set<String> = ["protocol", "token", "after", "times", "every", "action"]
    private static let special = [
        "status", "identifier", "reason", "timestamp", "last_stream", "code", "limit", "delay_ms",
    ]
    static let fields = common.union(special)
    /// Bytes of a reason.
    private static let longestReason = 100

    let gateway: GatewayProtocol
    let token: [UInt8]?
    let after: Int
    let times: Int
    let every: Int
    let action: Fault.Action

    init(_ body: ControlBody) throws {
        guard let gateway = try body.string("protocol").flatMap(GatewayProtocol.init) else {
            throw ControlError(.badRequest, "protocol: must be binary or http2")
        }
        self.gateway = gateway
        token = try body.token("token")
        after = try body.integer("after", in: 0...Fault.largestCount) ?? 0
        times = try body.integer("times", in: 1...Fault.largestCount) ?? 1
        every = try body.integer("every", in: 1...Fault.largestCount) ?? 1
        let actions = FaultAction.all(over: gateway)
        guard let action = try body.string("action").flatMap(FaultAction.init), actions.contains(action) else {
            throw ControlError(
                .badRequest, "action: must be one of \(actions.map(\.rawValue).joined(separator: ", "))")
        }
        let fields = action.fields(over: gateway)
        for field in Self.special where body.has(field) && !fields.contains(field) {
            let owners = actions.filter { $0.fields(over: gateway).contains(field) }.map(\.rawValue)
            let hint = owners.isEmpty ? "" : ", but with \(owners.joined(separator: ", "))"
            throw ControlError(.badRequest, "\(field): not with the action \(action.rawValue)\(hint)")
        }
        self.action = try Self.action(action, over: gateway, body)
    }

    private static func action(
        _ action: FaultAction, over gateway: GatewayProtocol, _ body: ControlBody
    ) throws -> Fault.Action {
        let delay = try body.integer("delay_ms", in: 0...Fault.longestDelay)
        switch action {
        case .status:
            return try gateway == .binary ? binaryStatus(body, delay: delay) : answer(body, delay: delay)
        case .stopReading:
            return .stopReading(delay)
        case .delay:
            guard let delay else {
                throw ControlError(
                    .badRequest, "delay_ms: must be given with the action delay, from 0 to \(Fault.longestDelay)")
            }
            return .delay(delay)
        case .close: return .close
        case .reset: return .reset
        case .drop: return .drop
        case .closeAccepted: return .provider(.closeAccepted)
        case .goAway:
            let last = try body.integer("last_stream", in: 0...Int(Int32.max))
            if let last, last != 0, last.isMultiple(of: 2) {
                throw ControlError(.badRequest, "last_stream: must be 0 or odd, as clients number their streams")
            }
            let code = try body.integer("code", in: 0...Int(UInt32.max)) ?? 0
            return .provider(.goAway(reason: try reason(body), lastStream: last, code: code))
        case .streamLimit:
            let limit = try body.integer("limit", in: 0...StreamLimit.unsettled) ?? 1
            return .provider(.limitStreams(limit, milliseconds: delay))
        case .resetStream:
            let code = try body.integer("code", in: 0...Int(UInt32.max))
            return .provider(.resetStream(code: code ?? ProviderFault.internalErrorCode))
        case .refuseStream:
            return .provider(.resetStream(code: ProviderFault.refusedStreamCode))
        case .expireToken: return .provider(.expireToken)
        }
    }

    private static func binaryStatus(_ body: ControlBody, delay: Int?) throws -> Fault.Action {
        guard let status = try body.integer("status", in: 0...255) else {
            throw ControlError(.badRequest, "status: must be given with the action status, from 0 to 255")
        }
        let identifier = try body.integer("identifier", in: 0...Int(UInt32.max))
        return .status(
            BinaryStatus(rawValue: UInt8(status)), delay: delay ?? 0, identifier: identifier.map(UInt32.init))
    }

    /// An HTTP answer: a reason that Apple has brings its status along, another needs one.
    private static func answer(_ body: ControlBody, delay: Int?) throws -> Fault.Action {
        let reason = try reason(body)
        let known = reason.flatMap(ProviderReason.init)
        guard let status = try body.integer("status", in: 300...599) ?? known?.status else {
            throw ControlError(
                .badRequest, "status: must be given with the action status, from 300 to 599, or a reason that Apple has"
            )
        }
        let timestamp = try body.integer("timestamp", in: 0...Int.max).map(Int64.init)
        if timestamp != nil, reason == nil {
            throw ControlError(.badRequest, "timestamp: only with a reason; without one the answer has no body")
        }
        return .provider(
            .answer(
                ProviderRefusal(status: status, reason: reason ?? ProviderFault.noReason, timestamp: timestamp),
                delay: delay ?? 0))
    }

    /// Goes into JSON as it is, so it must need no escapes there.
    private static func reason(_ body: ControlBody) throws -> String? {
        guard let reason = try body.string("reason") else { return nil }
        let isPlain = reason.utf8.allSatisfy { (0x20..<0x7F).contains($0) && $0 != 0x22 && $0 != 0x5C }
        guard isPlain, (1...longestReason).contains(reason.utf8.count) else {
            throw ControlError(
                .badRequest,
                "reason: must be 1 to \(longestReason) printable ASCII characters, without quotes and backslashes")
        }
        return reason
    }
}
