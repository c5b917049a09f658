import Foundation
import NIOSSL

/// A certificate or key that cannot be used: which, why, and how to mend it.
package struct CredentialsError: Error, Sendable, CustomStringConvertible {
    package let description: String

    init(_ description: String) {
        self.description = description
    }
}

/// The certificate and private key with which an app proves itself to the gateway.
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
    ///   - certificate: a PEM or PKCS#12 file; which of them, its content says.
    ///   - key: a PEM file, if the key is not in the certificate's.
    ///   - passphrase: of the key or the PKCS#12 file.
    package init(certificate: String, key: String? = nil, passphrase: String? = nil) throws(CredentialsError) {
        let bytes = try Self.read(certificate)
        if String(decoding: bytes, as: UTF8.self).contains("-----BEGIN ") {
            chain = try Self.chain(bytes, file: certificate)
            self.key = try Self.key(try key.map(Self.read) ?? bytes, file: key ?? certificate, passphrase: passphrase)
        } else {
            (chain, self.key) = try Self.unpack(bytes, file: certificate, passphrase: passphrase)
        }
        do {
            summary = try CertificateSummary(der: chain[0].toDERBytes())
        } catch {
            throw CredentialsError("\(certificate): the certificate cannot be parsed: \(error)")
        }
    }

    private static func read(_ file: String) throws(CredentialsError) -> [UInt8] {
        guard let handle = FileHandle(forReadingAtPath: file) else {
            throw CredentialsError("\(file) cannot be opened: \(String(cString: strerror(errno)))")
        }
        defer { try? handle.close() }
        guard let data = try? handle.read(upToCount: longestFile + 1) else {
            throw CredentialsError("\(file) is empty or cannot be read")
        }
        guard data.count <= longestFile else {
            throw CredentialsError("\(file) has over \(longestFile) bytes and is no certificate file")
        }
        return Array(data)
    }

    private static func chain(_ bytes: [UInt8], file: String) throws(CredentialsError) -> [NIOSSLCertificate] {
        do {
            let chain = try NIOSSLCertificate.fromPEMBytes(bytes)
            guard !chain.isEmpty else { throw CredentialsError("\(file) holds no certificate") }
            return chain
        } catch let error as CredentialsError {
            throw error
        } catch {
            throw CredentialsError("\(file) holds no PEM certificate that can be read: \(error)")
        }
    }

    private static func key(
        _ bytes: [UInt8], file: String, passphrase: String?
    ) throws(CredentialsError) -> NIOSSLPrivateKey {
        guard String(decoding: bytes, as: UTF8.self).contains("PRIVATE KEY-----") else {
            throw CredentialsError(
                "\(file) holds no private key; put it into the same file, or name its file in certificate_key")
        }
        do {
            return try NIOSSLPrivateKey(bytes: bytes, format: .pem) { (setter: ([UInt8]) -> Void) in
                setter(Array((passphrase ?? "").utf8))
            }
        } catch {
            let hint = passphrase == nil ? "is it encrypted? then set passphrase" : "is the passphrase right?"
            throw CredentialsError("the private key in \(file) cannot be read (\(hint)): \(error)")
        }
    }

    private static func unpack(
        _ bytes: [UInt8], file: String, passphrase: String?
    ) throws(CredentialsError) -> ([NIOSSLCertificate], NIOSSLPrivateKey) {
        do {
            let bundle =
                if let passphrase {
                    try NIOSSLPKCS12Bundle(buffer: bytes, passphrase: Array(passphrase.utf8))
                } else {
                    try NIOSSLPKCS12Bundle(buffer: bytes)
                }
            guard !bundle.certificateChain.isEmpty else {
                throw CredentialsError("\(file) holds no certificate, only a key")
            }
            return (bundle.certificateChain, bundle.privateKey)
        } catch let error as CredentialsError {
            throw error
        } catch {
            let stem = (file as NSString).deletingPathExtension
            throw CredentialsError(
                """
                \(file) is neither PEM nor a PKCS#12 file that can be read with \
                \(passphrase == nil ? "no passphrase" : "the passphrase given") (\(error)). If the passphrase is right, convert it: \
                openssl pkcs12 -legacy -in \(file) -nodes -out \(stem).pem
                """)
        }
    }
}
