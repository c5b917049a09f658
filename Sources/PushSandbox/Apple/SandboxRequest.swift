import Foundation
import NIOCore
import NIOHPACK
import PushWire

/// A request as the client sent it, before the decision.
struct SandboxRequest: Sendable {
    /// The maximum number of body bytes to keep: one more than any payload may have.
    private static let bodyLimit = PushType.voip.payloadLimit + 1
    /// The size of a body in bytes above which the request is rejected without waiting for its end. It is less than a
    /// stream's window, which is never opened further.
    static let discardLimit = 32 << 10
    /// The common prefix of the API's headers.
    private static let prefix = "apns-"

    private(set) var method = ""
    private(set) var path = ""
    private(set) var authorization: String?
    /// The `apns-…` headers, known and unknown. The first value counts if a header is repeated.
    private(set) var headers: [String: String] = [:]
    /// Whether `authorization` or an `apns-…` header occurs more than once.
    private(set) var hasDuplicates = false
    /// The first ``bodyLimit`` bytes of the body.
    private(set) var body = ByteBuffer()
    /// The size of the body in bytes, including discarded bytes.
    private(set) var bodySize = 0

    /// The device's token. Empty if the path has none that can be parsed.
    private(set) var token: [UInt8] = []
    /// The text at the token's place in the path. `nil` with any other path.
    private(set) var tokenText: Substring?

    init(_ fields: HPACKHeaders) {
        for (name, value, _) in fields {
            switch name {
            case ":method": method = value
            case ":path": path = value
            case ProviderHeader.authorization:
                if authorization != nil { hasDuplicates = true }
                authorization = authorization ?? value
            case _ where name.hasPrefix(Self.prefix):
                if headers[name] == nil {
                    headers[name] = value
                } else {
                    hasDuplicates = true
                }
            default: break
            }
        }
        let devicePath = ProviderHeader.devicePath
        if path.hasPrefix(devicePath) {
            let text = path.dropFirst(devicePath.utf8.count)
            tokenText = text
            // In a path, Apple prints plain digits only, in either case.
            if text.utf8.allSatisfy({ $0.hexDigit != nil }) { token = TokenText.bytes(of: text) ?? [] }
        } else if path == devicePath.dropLast() {
            tokenText = ""
        }
    }

    /// Appends a piece of the body. Bytes beyond ``bodyLimit`` are counted and discarded.
    mutating func append(_ piece: ByteBuffer) {
        bodySize += piece.readableBytes
        let room = Self.bodyLimit - body.readableBytes
        guard room > 0, piece.readableBytes > 0 else { return }
        var piece = piece
        if body.readableBytes == 0, piece.readableBytes <= room {
            body = piece
        } else {
            var kept = piece.readSlice(length: min(room, piece.readableBytes)) ?? ByteBuffer()
            body.writeBuffer(&kept)
        }
    }

    var topic: String? { headers[ProviderHeader.topic] }
    var pushType: String? { headers[ProviderHeader.pushType] }
    var id: String? { headers[ProviderHeader.id] }
    var expiration: String? { headers[ProviderHeader.expiration] }
    var priority: String? { headers[ProviderHeader.priority] }
    /// The id of a broadcast or of a management request. One of Apple's samples sends `apns-id` instead.
    var requestID: String? { headers[ProviderHeader.requestID] ?? id }
    /// Whether the path is one of broadcasts.
    var isBroadcast: Bool { path.hasPrefix(BroadcastWire.path.dropLast()) }
    /// The event of a Live Activity push. `nil` for any other request.
    var activityEvent: ActivityPayload.Event? {
        guard pushType == PushType.liveactivity.rawValue else { return nil }
        return ActivityPayload(json: Data(body.readableBytesView))?.event
    }
    var collapseID: String? { headers[ProviderHeader.collapseID] }
}
