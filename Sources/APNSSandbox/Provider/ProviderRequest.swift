import APNSWire
import NIOCore
import NIOHPACK

/// A request as it came: what the rules look at, and nothing judged yet.
struct ProviderRequest: Sendable {
    /// What every provider header's name begins with.
    private static let prefix = "apns-"

    private(set) var method = ""
    private(set) var path = ""
    private(set) var authorization: String?
    /// The `apns-…` headers, known and unknown; of a repeated one the first.
    private(set) var headers: [String: String] = [:]
    /// A header of the API, or `authorization`, came more than once.
    private(set) var hasDuplicates = false
    /// The first ``ProviderPolicy/bodyLimit`` bytes of the body.
    private(set) var body = ByteBuffer()
    /// Bytes of the body, those thrown away too.
    private(set) var bodySize = 0

    /// Bytes of the device's token; empty where the path has none that can be read.
    private(set) var token: [UInt8] = []
    /// What stands in the token's place.
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
        guard path.hasPrefix(ProviderHeader.devicePath.dropLast()) else { return }
        if path.hasPrefix(ProviderHeader.devicePath) {
            let text = path.dropFirst(ProviderHeader.devicePath.utf8.count)
            tokenText = text
            // In a path Apple prints plain digits only, of either case.
            token = text.utf8.allSatisfy { $0 != 0x20 && $0 != 0x3C && $0 != 0x3E } ? Self.bytes(text) : []
        } else if path.utf8.count == ProviderHeader.devicePath.utf8.count - 1 {
            tokenText = ""
        }
    }

    private static func bytes(_ text: Substring) -> [UInt8] { TokenText.bytes(of: String(text)) ?? [] }

    /// Takes a piece of the body.
    mutating func append(_ piece: ByteBuffer) {
        bodySize += piece.readableBytes
        let room = ProviderPolicy.bodyLimit - body.readableBytes
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
