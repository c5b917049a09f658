import Foundation

/// A rejection as the HTTP/2 provider API reports it: a status, and a JSON body `{"reason":"…","timestamp":…}`.
package struct ProviderRefusal: Error, Sendable, Hashable {
    /// The maximum number of bytes of a body that are read. Apple's bodies have fewer than a hundred.
    package static let bodyLimit = 4096
    /// The maximum number of bytes of a reason that are read.
    private static let maxReasonBytes = 100

    package let status: Int
    /// The reason in the gateway's spelling, which may be unknown to the relay. `Status<n>` if the body contains none.
    package let reason: String
    /// The time in UNIX milliseconds at which the device token became invalid. Only in responses with status 410,
    /// otherwise `nil`.
    package let timestamp: Int64?

    package init(status: Int, reason: String, timestamp: Int64? = nil) {
        self.status = status
        self.reason = reason
        self.timestamp = timestamp
    }

    package init(_ reason: ProviderReason, timestamp: Int64? = nil) {
        self.init(status: reason.status, reason: reason.rawValue, timestamp: timestamp)
    }

    /// Reads a response. If the body is not the expected JSON, the reason is `Status<n>`.
    package init(status: Int, body: [UInt8]) {
        let response = Self.read(body)
        self.init(status: status, reason: response?.reason ?? "Status\(status)", timestamp: response?.timestamp)
    }

    /// Returns the reason in a body, or in the debug data of a GOAWAY. `nil` if there is none.
    package static func reason(in body: [UInt8]) -> String? { read(body)?.reason }

    private static func read(_ body: [UInt8]) -> Body? {
        var response = try? JSONDecoder().decode(Body.self, from: Data(body.prefix(bodyLimit)))
        if let reason = response?.reason {
            // Other characters could change how the text around the reason looks.
            let shown = reason.utf8.prefix(maxReasonBytes).filter { (0x20...0x7E).contains($0) }
            response?.reason = shown.allSatisfy { $0 == 0x20 } ? nil : String(decoding: shown, as: UTF8.self)
        }
        return response
    }

    /// The body as Apple sends it.
    package var body: String { Self.body(reason: reason, timestamp: timestamp) }

    /// Returns the JSON body of a rejection. The debug data of a GOAWAY has the same format.
    /// - Parameter reason: A text without characters that JSON must escape.
    package static func body(reason: String, timestamp: Int64? = nil) -> String {
        #"{"reason":"\#(reason)"\#(timestamp.map { #","timestamp":\#($0)"# } ?? "")}"#
    }

    /// The reason, if the relay knows it.
    package var known: ProviderReason? { ProviderReason(rawValue: reason) }

    /// The action that the reason requires. For an unknown reason, the status decides.
    package var action: RefusalAction {
        if let known { return known.action }
        switch status {
        // Apple sends no such status, so another server has responded, which says nothing about the push.
        case ..<400: return .retryService
        case 403: return .waitForCredentials
        // A proxy, or a server for another host, has responded. The request may succeed later, or over another
        // connection (RFC 9110 §15.5.9 and §15.5.20, RFC 8470).
        case 408, 425: return .retryService
        case 421: return .reconnect
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
