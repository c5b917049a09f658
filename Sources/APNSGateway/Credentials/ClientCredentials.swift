import Foundation
package import GatewayPool
import NIOSSL

/// The certificate and private key with which an app authenticates to the gateway.
///
/// Reads PEM and PKCS#12. In PEM, certificate and key may be in one file or in two, and the key may be encrypted.
/// PKCS#12 files may come from Keychain or from `openssl pkcs12`, with or without `-legacy`.
package struct ClientCredentials: Sendable {
    /// The maximum size of a certificate or key file, in bytes. No chain of certificates comes near it.
    private static let longestFile = 1 << 20

    let chain: [NIOSSLCertificate]
    let key: NIOSSLPrivateKey
    package let summary: CertificateSummary

    /// Reads the certificate and its key.
    /// - Parameters:
    ///   - certificate: A PEM or PKCS#12 file. Its content decides which.
    ///   - key: A PEM file, if the key is not in the certificate's file.
    ///   - passphrase: The passphrase of the key or of the PKCS#12 file.
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
        try CredentialsError.read(file, limit: longestFile, expected: "expected a PEM or PKCS#12 (.p12) file")
    }

    private static func certificates(_ bytes: [UInt8], file: String) throws(CredentialsError) -> [NIOSSLCertificate] {
        guard String(decoding: bytes, as: UTF8.self).contains("CERTIFICATE-----") else {
            throw CredentialsError("\(file) holds no certificate; put it there beside the key")
        }
        do {
            return try NIOSSLCertificate.fromPEMBytes(bytes)
        } catch {
            throw CredentialsError(
                "\(file) is damaged, its PEM cannot be read; copy it again: \(ConnectionFailure.reasons(in: error))")
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
        // NIOSSL's callback for PEM traps on a byte that is not ASCII.
        if text.contains("ENCRYPTED"), let passphrase, !passphrase.utf8.allSatisfy({ $0 < 0x80 }) {
            throw CredentialsError(
                """
                the passphrase of the private key in \(file) is not plain ASCII; encrypt the key with another one: \
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

    /// Puts the key's own certificate first, as TLS requires. Files have the certificates in any order.
    /// - Returns: `nil` if no certificate belongs to the key. If several do, for example after a renewal with the same
    ///   key, the last one to expire comes first.
    private static func leafFirst(_ found: [NIOSSLCertificate], key: NIOSSLPrivateKey) -> [NIOSSLCertificate]? {
        let leaf = found.indices.filter { fits(found[$0], key) }
            .max { found[$0].notValidAfter < found[$1].notValidAfter }
        guard let leaf else { return nil }
        return [found[leaf]] + found[..<leaf] + found[(leaf + 1)...]
    }

    /// Whether certificate and key belong together, as TLS checks it.
    private static func fits(_ certificate: NIOSSLCertificate, _ key: NIOSSLPrivateKey) -> Bool {
        var configuration = TLSConfiguration.makeClientConfiguration()
        // Avoids reading the system's authorities. Nothing connects with this configuration.
        configuration.certificateVerification = .none
        configuration.certificateChain = [.certificate(certificate)]
        configuration.privateKey = .privateKey(key)
        return (try? NIOSSLContext(configuration: configuration)) != nil
    }
}

/// Returns a path as one word of a shell command line.
func shellQuoted(_ path: String) -> String {
    let isPlain = path.wholeMatch(of: #/[A-Za-z0-9\/._-]*/#) != nil
    return isPlain ? path : "'" + path.unicodeScalars.map { $0 == "'" ? "'\\''" : String($0) }.joined() + "'"
}
