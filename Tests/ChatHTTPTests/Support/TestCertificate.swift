import Crypto
import Foundation
import X509

/// A directory with a self-signed certificate and its key. It is removed with this object.
final class TestCertificate {
    let directory: URL
    var certificate: String { directory.appending(path: "certificate.pem").path }
    var key: String { directory.appending(path: "key.pem").path }

    init() throws {
        directory = FileManager.default.temporaryDirectory.appending(path: "chat-http-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        try renew()
    }

    deinit {
        try? FileManager.default.removeItem(at: directory)
    }

    /// Writes another certificate with another key into the same files.
    /// - Parameter time: The validity in seconds.
    func renew(validFor time: TimeInterval = 86_400) throws {
        let secret = P256.Signing.PrivateKey()
        let name = try DistinguishedName { CommonName("localhost") }
        let certificate = try Certificate(
            version: .v3, serialNumber: Certificate.SerialNumber(),
            publicKey: Certificate.PrivateKey(secret).publicKey,
            notValidBefore: Date(timeIntervalSinceNow: -86_400), notValidAfter: Date(timeIntervalSinceNow: time),
            issuer: name, subject: name, signatureAlgorithm: .ecdsaWithSHA256,
            extensions: Certificate.Extensions {
                Critical(BasicConstraints.isCertificateAuthority(maxPathLength: nil))
            }, issuerPrivateKey: Certificate.PrivateKey(secret))
        try write(certificate.serializeAsPEM().pemString, to: self.certificate)
        try write(secret.pemRepresentation, to: key)
    }

    func write(_ text: String, to path: String) throws {
        try text.write(toFile: path, atomically: true, encoding: .utf8)
    }
}
