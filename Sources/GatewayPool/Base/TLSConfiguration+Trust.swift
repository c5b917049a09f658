package import NIOSSL

extension TLSConfiguration {
    /// Returns the configuration for connections to a push service.
    ///
    /// - Parameter trust: A PEM file with further authorities, for a sandbox. The system's authorities are always
    ///   trusted.
    package static func client(trust: String?) throws(CredentialsError) -> TLSConfiguration {
        var configuration = makeClientConfiguration()
        configuration.minimumTLSVersion = .tlsv12
        do {
            if let trust {
                configuration.additionalTrustRoots = [.certificates(try NIOSSLCertificate.fromPEMFile(trust))]
            }
        } catch {
            throw CredentialsError(
                "\(trust ?? "") cannot be read as PEM certificates (trust): \(ConnectionFailure.reasons(in: error))")
        }
        return configuration
    }
}
