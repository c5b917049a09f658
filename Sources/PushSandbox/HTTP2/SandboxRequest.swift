import APNSWire
import NIOCore
import NIOHPACK

/// A request as it came, not decided yet.
struct SandboxRequest: Sendable {
    /// Bytes of a body that are kept: one more than any payload may have.
    private static let bodyLimit = PushType.voip.payloadLimit + 1
    /// Bytes of a body after which the request is refused without waiting for its end. Less than a stream's window, which
    /// is never opened further.
    static let discardLimit = 32 << 10
    /// What every header of the API begins with.
    private static let prefix = "apns-"

    private(set) var method = ""
    private(set) var path = ""
    private(set) var authorization: String?
    /// The `apns-…` headers, known and unknown; of a repeated one the first.
    private(set) var headers: [String: String] = [:]
    /// A header of the API, or `authorization`, came more than once.
    private(set) var hasDuplicates = false
    /// The first ``bodyLimit`` bytes of the body.
    private(set) var body = ByteBuffer()
    /// Bytes of the body, discarded ones included.
    private(set) var bodySize = 0

    /// Bytes of the device's token; empty where the path has none that can be read.
    private(set) var token: [UInt8] = []
    /// What the path has in the token's place.
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
            // In a path Apple prints plain digits only, of either case.
            if text.utf8.allSatisfy({ $0.hexDigit != nil }) { token = TokenText.bytes(of: text) ?? [] }
        } else if path == devicePath.dropLast() {
            tokenText = ""
        }
    }

    /// Appends a piece of the body.
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
    var collapseID: String? { headers[ProviderHeader.collapseID] }
}
