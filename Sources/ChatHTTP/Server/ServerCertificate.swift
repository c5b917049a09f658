import ChatDomain
import Foundation
import NIOCore
import NIOSSL
import Synchronization

/// The server's certificate and key, from PEM files. They can be reloaded while the server runs.
package final class ServerCertificate: Sendable {
    /// A file that cannot be used, with the reason.
    package struct Failure: Error, Sendable, CustomStringConvertible {
        package let description: String
    }

    private struct Pair: Sendable {
        let chain: [NIOSSLCertificateSource]
        let key: NIOSSLPrivateKeySource
        let expiresAt: Timestamp
    }

    private let certificatePath: String
    private let keyPath: String
    private let pair: Mutex<Pair>

    /// Reads the files.
    ///
    /// - Parameters:
    ///   - certificate: The path of the certificate, followed by its issuers' certificates.
    ///   - key: The path of the key. `nil` if it is in the certificate's file.
    package init(certificate: String, key: String?) throws(Failure) {
        certificatePath = certificate
        keyPath = key ?? certificate
        pair = Mutex(try Self.load(certificate, keyPath))
    }

    /// Reads the files again, for new connections. If they cannot be used, the current certificate and key remain.
    package func reload() throws(Failure) {
        let new = try Self.load(certificatePath, keyPath)
        pair.withLock { $0 = new }
    }

    /// The expiry of the certificate that new connections receive.
    var expiresAt: Timestamp { pair.withLock { $0.expiresAt } }

    func configuration() -> TLSConfiguration {
        let pair = pair.withLock { $0 }
        var configuration = TLSConfiguration.makeServerConfiguration(
            certificateChain: pair.chain, privateKey: pair.key)
        configuration.applicationProtocols = ["http/1.1"]
        // RFC 8996 forbids TLS 1.0 and 1.1.
        configuration.minimumTLSVersion = .tlsv12
        // Called for every connection.
        configuration.sslContextCallback = { [self] _, promise in
            let pair = self.pair.withLock { $0 }
            var override = NIOSSLContextConfigurationOverride()
            override.certificateChain = pair.chain
            override.privateKey = pair.key
            promise.succeed(override)
        }
        return configuration
    }

    private static func load(_ certificatePath: String, _ keyPath: String) throws(Failure) -> Pair {
        try requireReadable(certificatePath, "http.certificate")
        try requireReadable(keyPath, "http.key")
        let certificates: [NIOSSLCertificate]
        do {
            certificates = try NIOSSLCertificate.fromPEMFile(certificatePath)
        } catch {
            throw Failure(
                description: "http.certificate: \(certificatePath) holds no certificate in PEM format (\(error))")
        }
        guard let own = certificates.first else {
            throw Failure(description: "http.certificate: \(certificatePath) holds no certificate in PEM format")
        }
        let key: NIOSSLPrivateKey
        do {
            key = try NIOSSLPrivateKey(file: keyPath, format: .pem)
        } catch {
            throw Failure(
                description: "http.key: \(keyPath) holds no private key in PEM format without a passphrase (\(error))")
        }
        let pair = Pair(
            chain: certificates.map { .certificate($0) }, key: .privateKey(key),
            expiresAt: Timestamp(seconds: Int64(own.notValidAfter)))
        do {
            _ = try NIOSSLContext(
                configuration: .makeServerConfiguration(certificateChain: pair.chain, privateKey: pair.key))
        } catch {
            throw Failure(
                description: "http.key: the key in \(keyPath) does not belong to the certificate in "
                    + "\(certificatePath) (\(error))")
        }
        return pair
    }

    private static func requireReadable(_ path: String, _ setting: String) throws(Failure) {
        guard let file = fopen(path, "r") else {
            throw Failure(description: "\(setting): cannot read \(path): \(String(cString: strerror(errno)))")
        }
        fclose(file)
    }
}
