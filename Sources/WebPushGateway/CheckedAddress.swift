package import AsyncHTTPClient
package import ChatDomain
package import NIOCore
package import NIOSSL

extension TLSConfiguration {
    /// The client configuration for hosts that strangers choose.
    package static func ofChosenHost() -> TLSConfiguration {
        var tls = makeClientConfiguration()
        tls.minimumTLSVersion = .tlsv12
        // Do not wait for a service that does not respond to the TLS close.
        tls.shutdownTimeout = .milliseconds(500)
        return tls
    }
}

extension HTTPClient.Configuration {
    /// Creates a configuration that connects to exactly one address of an endpoint, which the caller has checked, over
    /// HTTP/1.1.
    package init(
        _ endpoint: PushEndpoint, at address: IPAddress, _ tls: TLSConfiguration, timeLimit: TimeAmount
    ) {
        self.init(
            tlsConfiguration: tls, redirectConfiguration: .disallow,
            timeout: .init(connect: timeLimit, read: timeLimit), decompression: .disabled)
        httpVersion = .http1Only
        connectionPool.retryConnectionEstablishment = false
        // The relay does not read trace spans, and a span for each request would cost time.
        tracing.tracer = nil
        // A proxy from the environment would look up the name itself.
        proxy = nil
        if IPAddress(endpoint.host) == nil { dnsOverride = [endpoint.host: address.description] }
    }
}
