import Foundation
import TestSupport

/// A third-party program, run to its end.
struct ClientProgram {
    let status: Int32
    let output: Data
    let errors: String

    /// The folder with the sources of the clients.
    static let sources = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .appending(path: "Clients")

    /// - Parameters:
    ///   - command: The program and its arguments.
    ///   - limit: The time in whole seconds after which the program is ended with status 124.
    static func run(_ command: [String], input: Data = Data(), within limit: Int = 60) async throws -> ClientProgram {
        let folder = try Folder()
        let (output, errors) = (folder.file("out"), folder.file("err"))
        try input.write(to: folder.file("in"))
        let inputFile = try FileHandle(forReadingFrom: folder.file("in"))
        let child = try Child(
            ["timeout", "--kill-after", "2", "\(limit)"] + command, input: inputFile.fileDescriptor, output: output,
            errors: errors)
        try await eventually("\(command[0]) ends", within: .seconds(limit + 10)) { child.status != nil }
        return ClientProgram(
            status: child.status ?? -1, output: try Data(contentsOf: output),
            errors: String(decoding: try Data(contentsOf: errors), as: UTF8.self))
    }

    var text: String { String(decoding: output, as: UTF8.self) }
    var hex: String { output.hex }
}

extension Data {
    var hex: String { map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined() }

    /// Decodes hexadecimal digits. White space may separate them.
    init(hex: String) {
        let digits = hex.compactMap { $0.hexDigitValue.map(UInt8.init) }
        self.init(stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] })
    }
}

/// Runs a tool to its end.
/// - Returns: Its standard output.
/// - Throws: Its standard error if its status is not 0.
@discardableResult
func tool(_ command: String, _ arguments: [String]) async throws -> String {
    let run = try await ClientProgram.run([command] + arguments)
    guard run.status == 0 else {
        throw Child.Failure(description: "\(command) \(arguments): status \(run.status): \(run.errors)")
    }
    return run.text
}

/// Python with the third-party libraries that `make setup` installs from PyPI (Tests/Clients/requirements.txt).
enum Python {
    /// A virtual environment below `.build`.
    enum Environment: String {
        case usual = "test-clients"
        /// With packages that ask for a newer Python than Debian's (Tests/Clients/newer-requirements.txt).
        case newer = "test-newer-clients"
    }

    static func program(_ name: String, of environment: Environment = .usual) throws -> String {
        let program = Page.root.appending(path: ".build/\(environment.rawValue)/bin/\(name)").path
        guard FileManager.default.isExecutableFile(atPath: program) else {
            throw Child.Failure(description: "\(program) is missing: run make setup")
        }
        return program
    }

    /// Runs a script of `Tests/Clients`.
    /// - Parameter variables: The words before the command that set its environment (``RelayStore/variables``).
    static func run(
        _ script: String, _ arguments: [String], of environment: Environment = .usual, variables: [String] = [],
        input: Data, within limit: Int = 60
    ) async throws -> ClientProgram {
        try await ClientProgram.run(
            variables + [program("python", of: environment), ClientProgram.sources.appending(path: script).path]
                + arguments,
            input: input, within: limit)
    }
}

extension SandboxProcess {
    struct Names: Decodable {
        let keyID: String
        let teamID: String

        enum CodingKeys: String, CodingKey {
            case keyID = "key_id"
            case teamID = "team_id"
        }
    }

    var providerKey: String { folder.file("sandbox/AuthKey_SANDBOX.p8").path }

    func names() throws -> Names {
        try JSONDecoder().decode(Names.self, from: Data(contentsOf: folder.file("sandbox/credentials.json")))
    }

    /// Returns a provider token that openssl signs. Its signature is DER, as in Apple's own example.
    func providerToken() async throws -> String {
        let script = """
            set -e
            base64url() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }
            header=$(printf '{"alg":"ES256","kid":"%s"}' "$2" | base64url)
            claims=$(printf '{"iss":"%s","iat":%s}' "$3" "$(date +%s)" | base64url)
            signature=$(printf %s "$header.$claims" | openssl dgst -sha256 -sign "$1" | base64url)
            printf %s "$header.$claims.$signature"
            """
        let names = try names()
        let made = try await ClientProgram.run(["bash", "-c", script, "-", providerKey, names.keyID, names.teamID])
        guard made.status == 0 else { throw Child.Failure(description: "openssl: \(made.errors)") }
        return made.text
    }

    var credential: String { folder.file("sandbox/client.pem").path }
    var authority: String { folder.file("sandbox/ca.pem").path }

    /// Installs an app and removes it.
    /// - Returns: The device's token, which is no longer valid.
    func removedDevice() async throws -> String {
        struct Device: Decodable { let token: String }
        let (status, body) = try await HTTP.post(
            "\(base)/devices", body: Data("{}".utf8), headers: [("Content-Type", "application/json")])
        guard status == 201 else { throw Child.Failure(description: "POST /devices: \(status) \(body)") }
        let token = try JSONDecoder().decode(Device.self, from: Data(body.utf8)).token
        try await removeApp(token: token)
        return token
    }

    /// Creates a file with a certificate and key that the sandbox's authority did not sign.
    func strangersCertificate() async throws -> String {
        let file = folder.file("stranger.pem").path
        try await tool(
            "openssl",
            [
                "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
                file + ".key", "-out", file + ".crt", "-subj", "/CN=Stranger/UID=com.example.PushChat", "-days", "2",
            ])
        try await tool("sh", ["-c", "cat '\(file).crt' '\(file).key' > '\(file)'"])
        return file
    }
}
