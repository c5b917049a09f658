import Crypto
import CryptoExtras
import Foundation
import SwiftASN1

/// A PKCS#12 file with one certificate and its key, like a push certificate that Keychain Access exports.
///
/// Both bags are encrypted with PBES2 (PBKDF2-HMAC-SHA256, AES-256-CBC). An HMAC-SHA256 protects the whole file.
/// OpenSSL 3 writes this form by default, and every current reader accepts it (RFC 7292, RFC 8018).
struct PKCS12Archive {
    /// The rounds of each key derivation: OpenSSL's default. The sandbox's documentation prints the passphrase, so more
    /// rounds would only slow down the start.
    static let rounds = 2048

    /// The certificate in DER.
    var certificate: [UInt8]
    /// The key in DER, as PKCS#8.
    var privateKey: [UInt8]
    /// The name that Keychain Access shows.
    var friendlyName: String

    /// Returns the file in DER.
    func serialized(passphrase: String, randomBytes: (Int) -> [UInt8]) throws -> [UInt8] {
        let keyIdentifier = Array(Insecure.SHA1.hash(data: certificate))
        let certificateBag = try bag(.certificateBag, keyIdentifier) { certificate in
            try certificate.serialize(ASN1ObjectIdentifier.x509Certificate)
            try certificate.tagged(0) { try $0.octets(self.certificate) }
        }
        let sealedCertificate = try seal(certificateBag, passphrase, randomBytes)
        let sealedKey = try seal(privateKey, passphrase, randomBytes)
        let keyBag = try bag(.shroudedKeyBag, keyIdentifier) { key in
            try sealedKey.algorithm(into: &key)
            try key.octets(sealedKey.ciphertext)
        }
        let safe = try der { safe in
            try safe.sequence { safe in
                try safe.sequence { info in
                    try info.serialize(ASN1ObjectIdentifier.encryptedData)
                    try info.tagged(0) { content in
                        try content.sequence { data in
                            try data.serialize(0)
                            try data.sequence { info in
                                try info.serialize(ASN1ObjectIdentifier.data)
                                try sealedCertificate.algorithm(into: &info)
                                try ASN1OctetString(contentBytes: sealedCertificate.ciphertext[...]).serialize(
                                    into: &info,
                                    withIdentifier: ASN1Identifier(tagWithNumber: 0, tagClass: .contextSpecific))
                            }
                        }
                    }
                }
                try safe.contentInfo(keyBag)
            }
        }
        let salt = randomBytes(16)
        let macKey = Self.macKey(passphrase: passphrase, salt: salt)
        let mac = Array(HMAC<SHA256>.authenticationCode(for: safe, using: macKey))
        return try der { file in
            try file.sequence { file in
                try file.serialize(3)
                try file.contentInfo(safe)
                try file.sequence { macData in
                    try macData.sequence { digest in
                        try digest.sequence { algorithm in
                            try algorithm.serialize(ASN1ObjectIdentifier.sha256)
                            try algorithm.serialize(ASN1Null())
                        }
                        try digest.octets(mac)
                    }
                    try macData.octets(salt)
                    try macData.serialize(Self.rounds)
                }
            }
        }
    }

    /// Returns a SafeContents with one bag. The bag's attributes are the name, and the identifier that ties the key to
    /// its certificate. The attributes are a SET OF, so DER orders them by their bytes.
    private func bag(
        _ kind: ASN1ObjectIdentifier, _ keyIdentifier: [UInt8], _ value: (inout DER.Serializer) throws -> Void
    ) throws -> [UInt8] {
        func attribute(
            _ type: ASN1ObjectIdentifier, _ value: (inout DER.Serializer) throws -> Void
        ) throws -> [UInt8] {
            try der { coder in
                try coder.sequence { attribute in
                    try attribute.serialize(type)
                    try attribute.set(value)
                }
            }
        }
        let attributes = [
            try attribute(.friendlyName) {
                try $0.serialize(ASN1BMPString(contentBytes: Self.utf16(friendlyName)[...]))
            },
            try attribute(.localKeyIdentifier) { try $0.octets(keyIdentifier) },
        ]
        return try der { coder in
            try coder.sequence { contents in
                try contents.sequence { bag in
                    try bag.serialize(kind)
                    try bag.tagged(0) { try $0.sequence(value) }
                    try bag.set { set in
                        for attribute in attributes.sorted(by: { $0.lexicographicallyPrecedes($1) }) {
                            set.serializeRawBytes(attribute)
                        }
                    }
                }
            }
        }
    }

    /// Returns the text in UTF-16, big endian.
    private static func utf16(_ text: String) -> [UInt8] {
        text.utf16.flatMap { [UInt8($0 >> 8), UInt8($0 & 0xFF)] }
    }

    private func seal(_ plaintext: [UInt8], _ passphrase: String, _ randomBytes: (Int) -> [UInt8]) throws -> Sealed {
        let salt = randomBytes(16)
        let vector = randomBytes(16)
        let key = try KDF.Insecure.PBKDF2.deriveKey(
            from: Data(passphrase.utf8), salt: salt, using: .sha256, outputByteCount: 32,
            unsafeUncheckedRounds: Self.rounds)
        let ciphertext = try AES._CBC.encrypt(plaintext, using: key, iv: AES._CBC.IV(ivBytes: vector))
        return Sealed(salt: salt, vector: vector, ciphertext: Array(ciphertext))
    }

    /// Derives the key of the archive's MAC (RFC 7292 appendix B.2, with the identifier 3, one block of SHA-256).
    private static func macKey(passphrase: String, salt: [UInt8]) -> SymmetricKey {
        let block = 64
        func filled(_ bytes: [UInt8]) -> [UInt8] {
            guard !bytes.isEmpty else { return [] }
            let count = (bytes.count + block - 1) / block * block
            return (0..<count).map { bytes[$0 % bytes.count] }
        }
        // The passphrase is UTF-16 in big endian, with a terminating zero.
        let password = utf16(passphrase + "\0")
        var digest = Array(SHA256.hash(data: [UInt8](repeating: 3, count: block) + filled(salt) + filled(password)))
        for _ in 1..<rounds {
            digest = Array(SHA256.hash(data: digest))
        }
        return SymmetricKey(data: digest)
    }

    /// Encrypted bytes, with the parameters that decryption needs besides the passphrase.
    private struct Sealed {
        var salt: [UInt8]
        var vector: [UInt8]
        var ciphertext: [UInt8]

        /// Writes the AlgorithmIdentifier of PBES2 (RFC 8018 appendix A.4).
        func algorithm(into coder: inout DER.Serializer) throws {
            try coder.sequence { algorithm in
                try algorithm.serialize(ASN1ObjectIdentifier.pbes2)
                try algorithm.sequence { parameters in
                    try parameters.sequence { derivation in
                        try derivation.serialize(ASN1ObjectIdentifier.pbkdf2)
                        try derivation.sequence { parameters in
                            try parameters.octets(salt)
                            try parameters.serialize(PKCS12Archive.rounds)
                            try parameters.sequence { function in
                                try function.serialize(ASN1ObjectIdentifier.hmacSHA256)
                                try function.serialize(ASN1Null())
                            }
                        }
                    }
                    try parameters.sequence { cipher in
                        try cipher.serialize(ASN1ObjectIdentifier.aes256CBC)
                        try cipher.octets(vector)
                    }
                }
            }
        }
    }
}

/// Returns the bytes that `write` writes.
private func der(_ write: (inout DER.Serializer) throws -> Void) throws -> [UInt8] {
    var coder = DER.Serializer()
    try write(&coder)
    return coder.serializedBytes
}

extension DER.Serializer {
    fileprivate mutating func sequence(_ write: (inout DER.Serializer) throws -> Void) throws {
        try appendConstructedNode(identifier: .sequence, write)
    }

    fileprivate mutating func set(_ write: (inout DER.Serializer) throws -> Void) throws {
        try appendConstructedNode(identifier: .set, write)
    }

    /// Writes a value inside an explicit context-specific tag.
    fileprivate mutating func tagged(_ number: UInt, _ write: (inout DER.Serializer) throws -> Void) throws {
        try serialize(explicitlyTaggedWithTagNumber: number, tagClass: .contextSpecific, write)
    }

    fileprivate mutating func octets(_ bytes: [UInt8]) throws {
        try serialize(ASN1OctetString(contentBytes: bytes[...]))
    }

    /// Writes a ContentInfo of the type `data`.
    fileprivate mutating func contentInfo(_ bytes: [UInt8]) throws {
        try sequence { info in
            try info.serialize(ASN1ObjectIdentifier.data)
            try info.tagged(0) { try $0.octets(bytes) }
        }
    }
}

extension ASN1ObjectIdentifier {
    fileprivate static let data: Self = [1, 2, 840, 113549, 1, 7, 1]
    fileprivate static let encryptedData: Self = [1, 2, 840, 113549, 1, 7, 6]
    fileprivate static let shroudedKeyBag: Self = [1, 2, 840, 113549, 1, 12, 10, 1, 2]
    fileprivate static let certificateBag: Self = [1, 2, 840, 113549, 1, 12, 10, 1, 3]
    fileprivate static let x509Certificate: Self = [1, 2, 840, 113549, 1, 9, 22, 1]
    fileprivate static let friendlyName: Self = [1, 2, 840, 113549, 1, 9, 20]
    fileprivate static let localKeyIdentifier: Self = [1, 2, 840, 113549, 1, 9, 21]
    fileprivate static let pbes2: Self = [1, 2, 840, 113549, 1, 5, 13]
    fileprivate static let pbkdf2: Self = [1, 2, 840, 113549, 1, 5, 12]
    fileprivate static let hmacSHA256: Self = [1, 2, 840, 113549, 2, 9]
    fileprivate static let aes256CBC: Self = [2, 16, 840, 1, 101, 3, 4, 1, 42]
    fileprivate static let sha256: Self = [2, 16, 840, 1, 101, 3, 4, 2, 1]
}
