package import Crypto
import Foundation

/// The blocks of a PEM text (RFC 7468). Reads the forms in which people copy keys: with any line ends or all on one
/// line, with `\n` in place of line ends as in JSON, and with text between the blocks.
package struct PEM {
    package struct Block: Sendable, Hashable {
        package let label: String
        /// The content, in DER. `nil` if it is not base64, or is encrypted.
        package let bytes: [UInt8]?
        /// Whether the content is encrypted, in PKCS#8 or in the older form with headers (RFC 1421 §4.6.1.1).
        package let isEncrypted: Bool
    }

    package let blocks: [Block]

    package init(_ text: String) {
        var blocks: [Block] = []
        var rest = Substring(text.replacing("\\r", with: "\r").replacing("\\n", with: "\n"))
        while let begin = rest.firstRange(of: "-----BEGIN "),
            let head = rest[begin.upperBound...].firstRange(of: "-----")
        {
            let label = String(rest[begin.upperBound..<head.lowerBound])
            rest = rest[head.upperBound...]
            guard let end = rest.firstRange(of: "-----END \(label)-----") else { continue }
            let content = rest[..<end.lowerBound]
            blocks.append(
                Block(
                    label: label, bytes: Base64URL.bytesOfAny(content),
                    isEncrypted: label.hasPrefix("ENCRYPTED") || content.contains("4,ENCRYPTED")))
            rest = rest[end.upperBound...]
        }
        self.blocks = blocks
    }

    /// The first block with a private key. `nil` if there is none.
    package var privateKey: Block? { blocks.first { $0.label.hasSuffix("PRIVATE KEY") } }

    /// The text with all blocks as other readers expect them. Parameters of curves are left out, because they
    /// repeat what the key says.
    package var text: String {
        blocks.filter { $0.label != "EC PARAMETERS" }.map { block in
            let content = Data(block.bytes ?? []).base64EncodedString(options: [
                .lineLength64Characters, .endLineWithLineFeed,
            ])
            return "-----BEGIN \(block.label)-----\n\(content)\n-----END \(block.label)-----\n"
        }.joined()
    }
}

/// The reason why a text is not a private key on the curve P-256.
package enum NoP256Key: Error, Sendable, Hashable, CustomStringConvertible {
    case missing
    case encrypted
    /// The text has something else than a private key.
    case other(String)
    /// The key is on another curve, or of another kind.
    case otherKind(String)
    case damaged

    package var description: String {
        switch self {
        case .missing: "no private key was found"
        case .encrypted: "the key is encrypted; decrypt it with openssl pkcs8 -topk8 -nocrypt"
        case .other(let content): "it is \(content)"
        case .otherKind(let kind): "it is a key \(kind)"
        case .damaged: "the key is incomplete or damaged"
        }
    }
}

extension P256.Signing.PrivateKey {
    /// Reads a key in PEM: PKCS#8, or SEC 1 with or without a block of parameters before it.
    package init(_ pem: PEM) throws(NoP256Key) {
        guard let block = pem.privateKey else {
            for (label, content) in [("CERTIFICATE", "a certificate"), ("PUBLIC KEY", "a public key")]
            where pem.blocks.contains(where: { $0.label.hasSuffix(label) }) {
                throw .other(content)
            }
            throw .missing
        }
        if block.isEncrypted { throw .encrypted }
        guard let bytes = block.bytes else { throw .damaged }
        try self.init(der: bytes)
    }

    /// Reads a key in DER, PKCS#8 or SEC 1. Crypto does not compare the curve that a key in SEC 1 names.
    package init(der: [UInt8]) throws(NoP256Key) {
        if let kind = Self.otherKinds.first(where: { der.firstRange(of: $0.identifier) != nil }) {
            throw .otherKind(kind.name)
        }
        guard let key = try? P256.Signing.PrivateKey(derRepresentation: der) else { throw .damaged }
        self = key
    }

    /// Object identifiers in DER, with the kinds of keys that have them (RFC 5480 §2.1.1.1, SEC 2 §A.2, RFC 8017 §A.1).
    private static let otherKinds: [(name: String, identifier: [UInt8])] = [
        ("on the curve secp256k1", [0x06, 0x05, 0x2B, 0x81, 0x04, 0x00, 0x0A]),
        ("on the curve P-384", [0x06, 0x05, 0x2B, 0x81, 0x04, 0x00, 0x22]),
        ("on the curve P-521", [0x06, 0x05, 0x2B, 0x81, 0x04, 0x00, 0x23]),
        ("for RSA", [0x06, 0x09, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x01]),
        ("for Ed25519", [0x06, 0x03, 0x2B, 0x65, 0x70]),
    ]
}
