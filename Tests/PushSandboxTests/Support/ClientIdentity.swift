import NIOSSL

@testable import PushSandbox

/// The identity that a client of the sandbox presents in TLS.
enum ClientIdentity {
    case client
    /// No certificate.
    case none
    /// Another certificate, with its key in the same file.
    case files(String)

    /// - Parameter protocols: The protocols that the client offers by ALPN.
    func context(_ credentials: SandboxCredentials, protocols: [String] = []) throws -> NIOSSLContext {
        var tls = TLSConfiguration.makeClientConfiguration()
        tls.trustRoots = .certificates(try NIOSSLCertificate.fromPEMFile(credentials.authorityFile))
        tls.applicationProtocols = protocols
        let file: String? =
            switch self {
            case .client: credentials.clientFile
            case .none: nil
            case .files(let file): file
            }
        if let file {
            tls.certificateChain = try NIOSSLCertificate.fromPEMFile(file).map { .certificate($0) }
            tls.privateKey = .privateKey(try NIOSSLPrivateKey(file: file, format: .pem))
        }
        return try NIOSSLContext(configuration: tls)
    }
}
