import ArgumentParser
import ChatDomain
import Foundation
import NIOCore

/// The flags that name the running relay.
struct RelayAddress: ParsableArguments {
    @Option(help: .value("url", "The relay's URL; by default the address that the configuration names."))
    var relay: String?

    @OptionGroup var source: ConfigurationChoice

    /// Loads the configuration that the flags select. With `--relay` and without `--config` it ignores configuration
    /// files, because a file that the search finds would belong to another relay.
    func configuration(_ flags: [ConfigurationFlag]) throws -> Configuration {
        try .loaded(
            relay != nil && source.config == nil
                ? ConfigurationSources(flags: flags, searched: [])
                : ConfigurationSources(file: source.config, flags: flags))
    }

    /// Creates a client for the relay that the flags name.
    ///
    /// - Parameters:
    ///   - silence: The longest pause within a response, as in ``RelayClient``.
    ///   - token: Returns the token to send, given the configuration.
    func client(
        _ flags: [ConfigurationFlag], silence: TimeAmount? = nil, token: (Configuration) -> String?
    ) throws -> RelayClient {
        let configuration = try configuration(flags)
        let token = token(configuration)
        if let relay { return try RelayClient(base: Self.base(relay), token: token, silence: silence) }
        return try configuration.client(token: token, silence: silence)
    }

    private static func base(_ url: String) throws -> String {
        guard let parts = URLComponents(string: url), ["http", "https"].contains(parts.scheme), parts.host != nil,
            parts.query == nil, parts.fragment == nil
        else { throw ValidationError("--relay \(url): must be a URL like http://127.0.0.1:44447") }
        return String(url.reversed().drop { $0 == "/" }.reversed())
    }
}

/// The flags that name the running relay and the operator's token for it.
struct RelayOptions: ParsableArguments {
    @OptionGroup var address: RelayAddress

    @Option(
        help: .value(
            "file", "A file with the relay's admin.token.",
            discussion: "By default the token of the configuration or of PUSHCHAT_ADMIN_TOKEN."),
        completion: .file())
    var adminTokenFile: String?

    var relay: String? { address.relay }
    var source: ConfigurationChoice { address.source }

    var flags: [ConfigurationFlag] {
        source.flags
            + (adminTokenFile.map { [ConfigurationFlag("admin.token_file", $0, name: "--admin-token-file")] } ?? [])
    }

    func configuration() throws -> Configuration { try address.configuration(flags) }

    /// Creates a client for the admin API.
    ///
    /// - Parameter token: A token to send instead of the operator's.
    func client(token: String? = nil) throws -> RelayClient {
        try address.client(flags) { token ?? $0.admin.tokens.first?.text }
    }
}

extension Configuration {
    /// Whether a file, variable or flag may say where the relay listens.
    fileprivate var namesAddress: Bool {
        file != nil || ["http.host", "http.port"].contains { origins[SettingKey(name: $0)] != nil }
    }

    /// Creates a client for the relay that the configuration describes. If nothing says where that relay listens, the
    /// relay of `pushchat dev` in the working directory comes first.
    ///
    /// - Parameter silence: The longest pause within a response, as in ``RelayClient``.
    func client(token: String?, silence: TimeAmount? = nil) throws -> RelayClient {
        if !namesAddress, let address = DevFolder.address, address != localAddress {
            Output.note("using \(address), the relay of pushchat dev")
            return try RelayClient(base: address, token: token, silence: silence)
        }
        return try RelayClient(
            base: localAddress, token: token, certificate: http.tls?.certificate, silence: silence)
    }

    /// The URL at which this machine reaches the relay that the configuration describes.
    var localAddress: String {
        let anyAddress = ["0.0.0.0", "::", "*"].contains(http.host)
        let host = anyAddress ? "127.0.0.1" : http.host.contains(":") ? "[\(http.host)]" : http.host
        return "\(http.tls == nil ? "http" : "https")://\(host):\(http.port)"
    }
}
