import CPostgreSQL
import Foundation

/// The way in which a connection string ensures that it reaches the right server, and that no third party can read the
/// traffic.
///
/// By default libpq encrypts only "if the server can", and checks nothing. An attacker who can redirect packets then
/// reads the password and every message. The relay therefore uses `sslmode=verify-full` if a host is not local.
struct ServerTrust: Equatable {
    /// Files with the certificates of the system's CAs, on Debian and Alpine, Fedora, and SUSE.
    static let bundles = [
        "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
    ]

    /// Whether the mode is the relay's default, because neither the string nor `PGSSLMODE` sets one.
    let isDefault: Bool
    /// The certificate file to pass to libpq, because no setting names one. `nil` if libpq finds one or needs none.
    let rootCertificates: String?
    /// A sentence for the operator if another server could pose as this one. `nil` otherwise.
    let weakness: String?

    /// - Parameters:
    ///   - options: The options of the connection string.
    ///   - environment: The process's environment. libpq's variables in it replace missing options.
    ///   - exists: Returns whether a file exists.
    init(options: [String: String], environment: [String: String], exists: (String) -> Bool) {
        func value(_ option: String, _ variable: String) -> String? {
            [options[option], environment[variable]].compactMap { $0 }.first { !$0.isEmpty }
        }
        let usesService = value("service", "PGSERVICE") != nil
        let hosts = value("hostaddr", "PGHOSTADDR") ?? value("host", "PGHOST")
        // A service file may name any host.
        let isLocal =
            hosts.map { $0.split(separator: ",", omittingEmptySubsequences: false).allSatisfy(Self.isLocal) }
            ?? !usesService
        let given = value("sslmode", "PGSSLMODE")
        isDefault = given == nil && !isLocal
        let mode = given ?? (isLocal ? nil : Self.full)
        let home = environment["HOME"] ?? NSHomeDirectory()
        let isNamed = usesService || value("sslrootcert", "PGSSLROOTCERT") != nil
        // With the weaker modes any certificate of a public CA would be accepted.
        rootCertificates =
            mode != Self.full || isNamed || exists("\(home)/.postgresql/root.crt")
            ? nil : Self.bundles.first(where: exists)
        weakness =
            mode == nil || mode == Self.full || isLocal
            ? nil
            : """
            sslmode=\(mode ?? ""): another server could pose as this one\
            \(mode == "require" || mode == "verify-ca" ? "" : ", and others read the connection"); use verify-full
            """
    }

    private static let full = "verify-full"

    /// Whether the host is the folder of a socket, an abstract socket, empty (the default socket), or a loopback
    /// address.
    private static func isLocal(_ host: Substring) -> Bool {
        let host = host.trimmingCharacters(in: .whitespaces)
        if host.isEmpty || host.hasPrefix("/") || host.hasPrefix("@") || host.lowercased() == "localhost" {
            return true
        }
        var (v4, v6) = (in_addr(), in6_addr())
        if inet_pton(AF_INET, host, &v4) == 1 { return UInt32(bigEndian: v4.s_addr) >> 24 == 127 }
        guard inet_pton(AF_INET6, host, &v6) == 1 else { return false }
        return withUnsafeBytes(of: v6) { $0.dropLast().allSatisfy { $0 == 0 } && $0.last == 1 }
    }

    /// Parses a string in libpq's format: a URL, or `host=… dbname=…`.
    init(
        of string: String, environment: [String: String] = ProcessInfo.processInfo.environment,
        exists: (String) -> Bool = { access($0, R_OK) == 0 }
    ) {
        var options: [String: String] = [:]
        // If libpq cannot parse the string, there are no options. Connecting reports the reason.
        if libpq_load() == nil, let parsed = PQconninfoParse(string, nil) {
            defer { PQconninfoFree(parsed) }
            var option = parsed
            while let keyword = option.pointee.keyword {
                if let value = option.pointee.val { options[String(cString: keyword)] = String(cString: value) }
                option += 1
            }
        }
        self.init(options: options, environment: environment, exists: exists)
    }

    /// Parameters for libpq. They precede the string, which overrides them.
    var parameters: [(String, String)] {
        (isDefault ? [("sslmode", Self.full)] : []) + (rootCertificates.map { [("sslrootcert", $0)] } ?? [])
    }
}
