import Foundation

/// A refusal as the HTTP/2 provider API answers it: status, and a JSON body `{"reason":"…","timestamp":…}`.
package struct ProviderRefusal: Error, Sendable, Hashable {
    /// Bytes of a body that are read; Apple's have under a hundred.
    package static let bodyLimit = 4096
    /// Bytes of an unknown reason that are carried on.
    private static let longestReason = 100

    /// The HTTP status.
    package let status: Int
    /// As the gateway spells it, known to us or not; `Status<n>` where the body names none.
    package let reason: String
    /// UNIX milliseconds, with 410 only: since when the device's token is not good any more.
    package let timestamp: Int64?

    package init(status: Int, reason: String, timestamp: Int64? = nil) {
        self.status = status
        self.reason = reason
        self.timestamp = timestamp
    }

    package init(_ reason: ProviderReason, timestamp: Int64? = nil) {
        self.init(status: reason.status, reason: reason.rawValue, timestamp: timestamp)
    }

    /// Reads an answer; a body that is no such JSON loses its reason, never the status.
    package init(status: Int, body: [UInt8]) {
        let answer = try? JSONDecoder().decode(Body.self, from: Data(body.prefix(Self.bodyLimit)))
        let reason = answer?.reason.map {
            String(decoding: $0.utf8.prefix(Self.longestReason).filter { $0 >= 0x20 }, as: UTF8.self)
        }
        self.init(status: status, reason: reason ?? "Status\(status)", timestamp: answer?.timestamp)
    }

    /// The body as Apple sends it.
    package var body: String { Self.body(reason: reason, timestamp: timestamp) }

    /// The same JSON, which also stands in a GOAWAY. The reason must need no escapes.
    package static func body(reason: String, timestamp: Int64? = nil) -> String {
        #"{"reason":"\#(reason)"\#(timestamp.map { #","timestamp":\#($0)"# } ?? "")}"#
    }

    package var known: ProviderReason? { ProviderReason(rawValue: reason) }

    /// What to do: the reason says; of an unknown one, the status.
    package var action: RefusalAction {
        if let known { return known.action }
        switch status {
        case 403: return .waitForCredentials
        case 410: return .deactivate
        case 429: return .retryDevice
        case 500...: return .retryService
        default: return .giveUp
        }
    }

    private struct Body: Decodable {
        var reason: String?
        var timestamp: Int64?

        enum CodingKeys: CodingKey { case reason, timestamp }

        init(from decoder: any Decoder) throws {
            let values = try decoder.container(keyedBy: CodingKeys.self)
            reason = try? values.decode(String.self, forKey: .reason)
            timestamp = try? values.decode(Int64.self, forKey: .timestamp)
        }
    }
}
