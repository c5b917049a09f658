import ChatDomain
import Foundation

/// The answers from which ``Init`` writes a configuration. An empty text is an answer that was left out.
struct InitialConfiguration: Sendable, Equatable {
    /// A question of `pushchat init`.
    enum Question: Sendable {
        case publicURL, certificate, database, contact, key
        /// Asked only if there is a key.
        case topic, teamID
        /// Asked only if there is a key, and the name of its file does not contain the id.
        case keyID

        var text: String {
            switch self {
            case .publicURL: "The address for browsers and apps, such as https://chat.example.org (empty: none yet)"
            case .certificate:
                "A file with a certificate and its key (empty: a proxy on this machine, such as Caddy, serves HTTPS)"
            case .database: "The database: a file, or postgres://USER:PASSWORD@HOST/NAME"
            case .contact: "Your address for the operators of push services, such as mailto:you@example.org"
            case .key: "For iPhones: the key file of Apple, AuthKey_….p8 (empty: browsers only)"
            case .keyID: "The key's id, ten letters and digits"
            case .topic: "The app's bundle id, such as com.example.PushChat"
            case .teamID: "The team id of your account at Apple"
            }
        }
    }

    var publicURL = ""
    /// The file with the relay's own certificate. Empty if a proxy serves HTTPS.
    var certificate = ""
    /// The path of a file, or the URL of PostgreSQL.
    var database = ""
    /// With PostgreSQL: the path beside which the relay keeps its local files.
    var localFiles = ""
    /// The port to listen on. `nil` for the usual one.
    var port: Int?
    var contact = ""
    /// The path of the key for Apple's push service.
    var key = ""
    /// Empty if the name of the key's file contains the id.
    var keyID = ""
    var topic = ""
    var teamID = ""

    /// The names of the files that hold secrets, beside the configuration.
    static let tokenFile = "admin.token"
    static let urlFile = "database-url"
    /// The port of a relay that serves only this machine or a proxy on it.
    private static let localPort = 44447

    var hasHTTPS: Bool { publicURL.lowercased().hasPrefix("https://") }
    var isBehindProxy: Bool { hasHTTPS && certificate.isEmpty }
    var usesPostgreSQL: Bool { ["postgres://", "postgresql://"].contains { database.hasPrefix($0) } }

    /// Asks for everything that has no answer yet.
    ///
    /// - Parameters:
    ///   - database: The answer if the user gives none.
    ///   - ask: Asks a question. Receives the default, and returns the user's answer. `nil` at the end of the input.
    /// - Returns: Whether all questions were answered. The user may end the input to write nothing.
    mutating func ask(database standard: String, _ ask: (_ question: String, _ standard: String) -> String?)
        -> Bool
    {
        let answers: [(Question, WritableKeyPath<Self, String>)] = [
            (.publicURL, \.publicURL), (.certificate, \.certificate), (.database, \.database), (.contact, \.contact),
            (.key, \.key), (.keyID, \.keyID), (.topic, \.topic), (.teamID, \.teamID),
        ]
        for (question, path) in answers where self[keyPath: path].isEmpty && applies(question) {
            let standard = question == .database ? standard : ""
            guard let answer = ask(question.text, standard) else { return false }
            let text = answer.trimmingCharacters(in: .whitespaces)
            self[keyPath: path] = text.isEmpty ? standard : text
        }
        return true
    }

    private func applies(_ question: Question) -> Bool {
        switch question {
        case .certificate: hasHTTPS
        case .keyID: lacksKeyID
        case .topic, .teamID: !key.isEmpty
        default: true
        }
    }

    private var lacksKeyID: Bool { !key.isEmpty && keyID.isEmpty && AppConfiguration.keyID(ofFile: key) == nil }

    /// The answers that are missing, in the words of the flags.
    var problem: String? {
        if key.isEmpty, !(keyID.isEmpty && topic.isEmpty && teamID.isEmpty) {
            return "--key-id, --topic and --team-id: only together with --key"
        }
        if !key.isEmpty, topic.isEmpty || teamID.isEmpty { return "--key: needs --topic and --team-id" }
        if lacksKeyID { return "--key: needs --key-id, unless the file has Apple's name, AuthKey_ABC123DEFG.p8" }
        if let port, !(1...65_535).contains(port) { return "--port \(port): must be 1 to 65535" }
        if !certificate.isEmpty, !hasHTTPS { return "--certificate: only with an https address in --public-url" }
        return nil
    }

    /// The configuration file. Its paths must be absolute, or relative to the file's folder.
    var yaml: String {
        var lines = [
            "# PushChat Relay. All settings: pushchat config --reference", "environment: production", "", "http:",
        ]
        if certificate.isEmpty {
            lines += ["  host: 127.0.0.1              # only for this machine", "  port: \(listeningPort)"]
        } else {
            lines += ["  host: 0.0.0.0", "  port: \(listeningPort)"]
        }
        if isBehindProxy {
            lines += ["  trusted_proxies: [127.0.0.1, \"::1\"]   # their X-Forwarded-For names the client"]
        }
        lines += setting("public_url", publicURL.isEmpty ? localURL : publicURL)
        lines += setting("certificate", certificate) + ["", "database:"]
        if usesPostgreSQL {
            lines += ["  url_file: \(Self.urlFile)       # the URL has a password"]
            lines += setting("path", localFiles)
        } else {
            lines += setting("path", database)
        }
        lines += ["", "admin:", "  token_file: \(Self.tokenFile)"]
        if !contact.isEmpty { lines += ["", "push:"] + setting("contact", contact) }
        if !key.isEmpty {
            let app = [("topic", topic), ("key", key), ("key_id", keyID), ("team_id", teamID)].flatMap(setting)
            lines += ["", "apps:", "  default:"] + app.map { "  " + $0 }
        }
        return lines.joined(separator: "\n") + "\n"
    }

    /// The port to listen on: with the relay's own certificate, the one in the public address.
    private var listeningPort: Int {
        port ?? (certificate.isEmpty ? Self.localPort : URLComponents(string: publicURL)?.port ?? 443)
    }

    /// The address of a relay that serves only this machine.
    private var localURL: String { "http://127.0.0.1:\(listeningPort)" }

    private func setting(_ name: String, _ value: String) -> [String] {
        value.isEmpty ? [] : ["  \(name): \(JSONValue.string(value))"]
    }

    /// The next steps of the user, one in each line.
    func steps(_ file: String) -> [String] {
        var steps: [String] = []
        if isBehindProxy {
            steps.append("Set up the proxy, with the file for Caddy, nginx or HAProxy in docs/https.md")
        }
        if usesPostgreSQL { steps.append("Create the empty database that the URL names (docs/postgresql.md)") }
        steps.append("pushchat serve --config \(file)")
        steps.append("pushchat check --config \(file)     in a second terminal; it explains what is still missing")
        steps.append("Open \(publicURL.isEmpty ? localURL : publicURL), and enter a room")
        return steps
    }
}
