import Foundation
import NIOSSL

/// A certificate or key that cannot be used: which, why, and how to mend it.
package struct CredentialsError: Error, Sendable, CustomStringConvertible {
    package let description: String

    init(_ description: String) {
        self.description = description
    }

    /// Reads a file whole.
    /// - Parameter wanted: what it should be, for the error.
    static func read(_ file: String, limit: Int, wanted: String) throws(CredentialsError) -> [UInt8] {
        guard let handle = FileHandle(forReadingAtPath: file) else {
            throw CredentialsError("\(file) cannot be opened: \(String(cString: strerror(errno)))")
        }
        defer { try? handle.close() }
        guard let data = try? handle.read(upToCount: limit + 1), !data.isEmpty else {
            throw CredentialsError("\(file) is empty or cannot be read; \(wanted)")
        }
        guard data.count <= limit else { throw CredentialsError("\(file) has over \(limit) bytes; \(wanted)") }
        return Array(data)
    }
}

/// The certificate and private key with which an app authenticates to the gateway.
///
/// Read from PEM (certificate and key in one file or in two, the key encrypted or not) or PKCS#12, as Keychain and
/// `openssl pkcs12`, with or without `-legacy`, write it.
package struct ClientCredentials: Sendable {
    /// Bytes of a certificate or key file: far more than any chain has.
    private static let longestFile = 1 << 20

    let chain: [NIOSSLCertificate]
    let key: NIOSSLPrivateKey
    package let summary: CertificateSummary

    /// - Parameters:
    ///   - certificate: a PEM or PKCS#12 file; its content decides which.
    ///   - key: a PEM file, if the key is not in the certificate's.
    ///   - passphrase: of the key or the PKCS#12 file.
    package init(certificate: String, key: String? = nil, passphrase: String? = nil) throws(CredentialsError) {
        let bytes = try Self.read(certificate)
        let found: [NIOSSLCertificate]
        if String(decoding: bytes, as: UTF8.self).contains("-----BEGIN ") {
            found = try Self.certificates(bytes, file: certificate)
            self.key = try Self.key(try key.map(Self.read) ?? bytes, file: key ?? certificate, passphrase: passphrase)
        } else {
            (found, self.key) = try PKCS12File(path: certificate, bytes: bytes).unpack(passphrase: passphrase)
        }
        guard let chain = Self.leafFirst(found, key: self.key) else {
            throw CredentialsError(
                """
                the private key in \(key ?? certificate) belongs to no certificate in \(certificate); \
                name the key with which that certificate was requested
                """)
        }
        self.chain = chain
        do {
            summary = try CertificateSummary(der: chain[0].toDERBytes())
        } catch {
            throw CredentialsError("\(certificate): the certificate cannot be parsed: \(error)")
        }
    }

    private static func read(_ file: String) throws(CredentialsError) -> [UInt8] {
        try CredentialsError.read(file, limit: longestFile, wanted: "wanted is a PEM or PKCS#12 (.p12) file")
    }

    private static func certificates(_ bytes: [UInt8], file: String) throws(CredentialsError) -> [NIOSSLCertificate] {
        guard String(decoding: bytes, as: UTF8.self).contains("CERTIFICATE-----") else {
            throw CredentialsError("\(file) holds no certificate; put it there beside the key")
        }
        do {
            return try NIOSSLCertificate.fromPEMBytes(bytes)
        } catch {
            throw CredentialsError(
                "\(file) is damaged, its PEM cannot be read; copy it anew: \(ConnectionFailure.reasons(in: error))")
        }
    }

    private static func key(
        _ bytes: [UInt8], file: String, passphrase: String?
    ) throws(CredentialsError) -> NIOSSLPrivateKey {
        let text = String(decoding: bytes, as: UTF8.self)
        guard text.contains("PRIVATE KEY-----") else {
            throw CredentialsError(
                "\(file) holds no private key; put it into the same file, or name its file in certificate_key")
        }
        // NIOSSL's callback for PEM traps on a byte beyond ASCII.
        if text.contains("ENCRYPTED"), let passphrase, !passphrase.utf8.allSatisfy({ $0 < 0x80 }) {
            throw CredentialsError(
                """
                the passphrase of the private key in \(file) is not plain ASCII; give the key another: \
                openssl pkey -in \(shellQuoted(file)) -aes256 -out \(shellQuoted(file + ".new"))
                """)
        }
        do {
            return try NIOSSLPrivateKey(bytes: bytes, format: .pem) { (setter: ([UInt8]) -> Void) in
                setter(Array((passphrase ?? "").utf8))
            }
        } catch {
            let hint = passphrase == nil ? "is it encrypted? then set passphrase" : "is the passphrase right?"
            throw CredentialsError(
                "the private key in \(file) cannot be read (\(hint)): \(ConnectionFailure.reasons(in: error))")
        }
    }

    /// The certificates with the key's own in front, where TLS wants it; files have them in any order.
    /// - Returns: nil if none is the key's. Of several, as after a renewal with the same key, the last to expire.
    private static func leafFirst(_ found: [NIOSSLCertificate], key: NIOSSLPrivateKey) -> [NIOSSLCertificate]? {
        let leaf = found.indices.filter { fits(found[$0], key) }
            .max { found[$0].notValidAfter < found[$1].notValidAfter }
        guard let leaf else { return nil }
        return [found[leaf]] + found[..<leaf] + found[(leaf + 1)...]
    }

    /// Whether TLS takes the two together.
    private static func fits(_ certificate: NIOSSLCertificate, _ key: NIOSSLPrivateKey) -> Bool {
        var configuration = TLSConfiguration.makeClientConfiguration()
        // Spares reading the system's authorities; nothing connects with this.
        configuration.certificateVerification = .none
        configuration.certificateChain = [.certificate(certificate)]
        configuration.privateKey = .privateKey(key)
        return (try? NIOSSLContext(configuration: configuration)) != nil
    }
}

/// A path as one word of a shell's command line.
func shellQuoted(_ path: String) -> String {
    let isPlain = path.wholeMatch(of: #/[A-Za-z0-9\/._-]*/#) != nil
    return isPlain ? path : "'" + path.unicodeScalars.map { $0 == "'" ? "'\\''" : String($0) }.joined() + "'"
}
