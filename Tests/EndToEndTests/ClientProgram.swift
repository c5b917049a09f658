import Foundation

/// A program of others, run to its end.
struct ClientProgram {
    let status: Int32
    let output: Data
    let errors: String

    /// Where the clients' sources are.
    static let sources = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .appending(path: "Clients")

    /// - Parameters:
    ///   - command: the program and its arguments.
    ///   - limit: whole seconds after which it is ended, with status 124.
    static func run(_ command: [String], input: Data = Data(), within limit: Int = 30) async throws -> ClientProgram {
        let folder = try Folder()
        let (out, err, inp) = (folder.file("out"), folder.file("err"), folder.file("in"))
        for file in [out, err] { try Data().write(to: file) }
        try input.write(to: inp)
        let process = Process()
        // The status comes in a file: Foundation does not always notice the end of a process on a busy machine.
        let status = folder.file("status")
        process.executableURL = URL(filePath: "/bin/sh")
        process.arguments =
            ["-c", "\"$@\"; echo $? > \"$0.part\"; mv \"$0.part\" \"$0\"", status.path]
            + ["timeout", "--kill-after", "2", "\(limit)"] + command
        process.standardOutput = try FileHandle(forWritingTo: out)
        process.standardError = try FileHandle(forWritingTo: err)
        process.standardInput = try FileHandle(forReadingFrom: inp)
        try process.run()
        try await eventually("\(command[0]) ends", within: .seconds(limit + 10)) {
            FileManager.default.fileExists(atPath: status.path)
        }
        let text = try String(contentsOf: status, encoding: .utf8).trimmingCharacters(in: .whitespacesAndNewlines)
        return ClientProgram(
            status: Int32(text) ?? -1, output: try Data(contentsOf: out),
            errors: String(decoding: try Data(contentsOf: err), as: UTF8.self))
    }

    var text: String { String(decoding: output, as: UTF8.self) }
    var hex: String { output.hex }
}

extension Data {
    var hex: String { map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined() }

    /// Bytes from hexadecimal digits, with any white space between them.
    init(hex: String) {
        let digits = hex.compactMap { $0.hexDigitValue.map(UInt8.init) }
        self.init(stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] })
    }
}

/// Libraries of Python from PyPI, in a folder of their own.
struct PythonEnvironment {
    /// What `pip` may take from the network, in seconds.
    private static let installLimit = 120
    let python: String

    static func isPossible() async throws -> Bool {
        try await ClientProgram.run(["python3", "-c", "import venv, ensurepip"]).status == 0
    }

    init(_ packages: String..., in folder: Folder) async throws {
        let environment = folder.file("python").path
        let made = try await ClientProgram.run(["python3", "-m", "venv", environment], within: 180)
        guard made.status == 0 else { throw Running.Ended(description: "python3 -m venv failed: \(made.errors)") }
        let installed = try await ClientProgram.run(
            [
                "\(environment)/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--timeout", "15",
                "--retries", "2",
            ] + packages, within: Self.installLimit)
        guard installed.status == 0 else {
            throw Running.Ended(
                description: "pip could not install \(packages); this test needs PyPI or a mirror: \(installed.errors)")
        }
        python = "\(environment)/bin/python"
    }

    /// Runs one of our scripts.
    func run(
        _ script: String, _ arguments: [String], input: Data, within limit: Int = 60
    ) async throws -> ClientProgram {
        try await ClientProgram.run(
            [python, ClientProgram.sources.appending(path: script).path] + arguments, input: input, within: limit)
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

    /// A provider token that openssl signs; its signature is DER, as in Apple's own example.
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
        guard made.status == 0 else { throw Running.Ended(description: "openssl: \(made.errors)") }
        return made.text
    }

    var credential: String { folder.file("sandbox/client.pem").path }
    var authority: String { folder.file("sandbox/ca.pem").path }

    /// Installs an app and removes it.
    /// - Returns: the token that is no more.
    func removedDevice() async throws -> String {
        struct Device: Decodable { let token: String }
        let (status, body) = try await HTTP.post(
            "\(base)/devices", body: Data("{}".utf8), headers: [("Content-Type", "application/json")])
        guard status == 201 else { throw Running.Ended(description: "POST /devices: \(status) \(body)") }
        let token = try JSONDecoder().decode(Device.self, from: Data(body.utf8)).token
        try await removeApp(token: token)
        return token
    }

    /// A certificate and key in one file that the sandbox's authority did not sign.
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
