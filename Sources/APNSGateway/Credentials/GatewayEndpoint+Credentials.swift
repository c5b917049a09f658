package import GatewayPool

extension GatewayEndpoint {
    /// Creates an endpoint with an app's client certificate. Opens no connection.
    ///
    /// - Parameter credentials: `nil` if the app authenticates with provider tokens.
    package init(
        host: String, port: Int, credentials: ClientCredentials?, trust: String?, applicationProtocols: [String] = []
    ) throws(CredentialsError) {
        try self.init(
            host: host, port: port, chain: credentials?.chain ?? [], key: credentials?.key, trust: trust,
            applicationProtocols: applicationProtocols)
    }
}
