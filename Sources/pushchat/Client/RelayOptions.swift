import ArgumentParser
import Foundation

/// Where the running relay is, and how to prove oneself to it.
struct RelayOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Where the relay is; unless given, as the configuration says it.",
            valueName: "url"))
    var relay: String?

    @Option(
        help: ArgumentHelp(
            "A file with the relay's admin.token.",
            discussion: "Unless given, the token of the configuration or of PUSHCHAT_ADMIN_TOKEN.", valueName: "file"),
        completion: .file())
    var adminTokenFile: String?

    @OptionGroup var source: ConfigurationChoice

    var flags: [ConfigurationFlag] {
        source.flags
            + (adminTokenFile.map { [ConfigurationFlag("admin.token_file", $0, name: "--admin-token-file")] } ?? [])
    }

    /// With `--relay` and no `--config`, no file is looked for: it would be another relay's.
    func configuration() throws -> Configuration {
        try .loaded(
            relay != nil && source.config == nil
                ? ConfigurationSources(flags: flags, searched: [])
                : ConfigurationSources(file: source.config, flags: flags))
    }

    func client() throws -> RelayClient {
        let configuration = try configuration()
        let token = configuration.admin.token?.text
        if let relay { return RelayClient(base: try Self.base(relay), token: token) }
        return RelayClient(
            base: configuration.localAddress, token: token, certificate: configuration.http.tls?.certificate)
    }

    private static func base(_ url: String) throws -> String {
        guard let parts = URLComponents(string: url), ["http", "https"].contains(parts.scheme), parts.host != nil,
            parts.query == nil, parts.fragment == nil
        else { throw ValidationError("--relay \(url): must be a URL like http://127.0.0.1:44447") }
        return String(url.reversed().drop { $0 == "/" }.reversed())
    }
}

extension Configuration {
    /// How this machine reaches the relay that the configuration describes.
    var localAddress: String {
        let anyAddress = ["0.0.0.0", "::", "*"].contains(http.host)
        let host = anyAddress ? "127.0.0.1" : http.host.contains(":") ? "[\(http.host)]" : http.host
        return "\(http.tls == nil ? "http" : "https")://\(host):\(http.port)"
    }
}
