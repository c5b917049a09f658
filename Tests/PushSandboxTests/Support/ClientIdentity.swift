import NIOSSL

@testable import PushSandbox

/// Who a client of the sandbox says it is, within TLS.
enum ClientIdentity {
    case client
    /// No certificate at all.
    case none
    /// Another certificate, with its key in the same file.
    case files(String)

    /// - Parameter protocols: what the client offers (ALPN).
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
