import NIOCore
import NIOPosix
import NIOSSL

/// Describes for operators why a connection failed. The texts of NIO and BoringSSL are for developers.
package enum ConnectionFailure {
    /// - Parameter wasUp: Whether the peer has spoken on the connection, and not only during its handshake.
    package static func text(_ error: any Error, wasUp: Bool = false) -> String {
        switch error {
        case let error as NIOConnectionError:
            if let failure = error.connectionErrors.first { return text(failure.error) }
            if error.dnsAError != nil || error.dnsAAAAError != nil { return "the host name is unknown" }
            return "no address responds"
        case let error as IOError:
            return String(cString: strerror(error.errnoCode))
        case ChannelError.connectTimeout:
            return "no response in time"
        case ChannelError.eof, NIOSSLError.uncleanShutdown:
            return wasUp ? "it closed the connection without notice" : "it closed the connection before TLS was up"
        case NIOSSLError.handshakeFailed where isUntrusted(error):
            return "its certificate is not trusted; if its authority is your own, name it in trust"
        case NIOSSLError.handshakeFailed(let cause):
            return "the TLS handshake failed: \(reasons(in: cause))"
        case is NIOSSLExtraError:
            return "its certificate is for another name"
        default:
            return String(describing: error)
        }
    }

    /// Whether a TLS handshake failed because no trusted authority has issued the server's certificate.
    package static func isUntrusted(_ error: any Error) -> Bool {
        guard case NIOSSLError.handshakeFailed(let cause)? = error as? NIOSSLError else { return false }
        return String(describing: cause).contains("CERTIFICATE_VERIFY_FAILED")
    }

    /// Returns the capitalized words of BoringSSL's text, without its source paths. Returns the text of any other error
    /// unchanged.
    package static func reasons(in error: any Error) -> String {
        guard error is BoringSSLError || error is NIOSSLError else { return String(describing: error) }
        let words = String(describing: error).split(whereSeparator: { !($0.isUppercase || $0.isNumber || $0 == "_") })
            .filter { $0.contains("_") && $0.count > 6 && $0.first?.isNumber == false }
        return words.isEmpty ? String(describing: error) : words.joined(separator: ", ")
    }
}
