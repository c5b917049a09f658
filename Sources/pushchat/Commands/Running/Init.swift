import ArgumentParser
import ChatDomain
import Foundation

/// `pushchat init`
struct Init: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Write a configuration and an admin token for a new relay.",
        discussion: """
            On a terminal it asks for the answers that the flags leave open. Elsewhere it asks nothing.
            It overwrites no file. Only the owner can read the files (mode 0600).
            """)

    @Argument(
        help: "The configuration file to write. The token goes into the same folder, as admin.token.",
        completion: .file(extensions: ["yaml", "yml"]))
    var file = "pushchat.yaml"

    @Option(help: .value("url", "The address for browsers and apps, such as https://chat.example.org."))
    var publicURL: String?
    @Option(
        help: .value("file", "A certificate with its key, for HTTPS without a proxy."),
        completion: .file(extensions: ["pem"]))
    var certificate: String?
    @Option(help: .value("port", "The port to listen on; by default 44447, or that of the URL with --certificate."))
    var port: Int?
    @Option(help: .value("file or url", "The database: a file, or postgres://USER:PASSWORD@HOST/NAME."))
    var database: String?
    @Option(help: .value("address", "Your address for the operators of push services, such as mailto:you@example.org."))
    var contact: String?
    @Option(help: .value("file", "For iPhones: Apple's key."), completion: .file(extensions: ["p8"])) var key: String?
    @Option(help: .value("id", "For iPhones: the key's id, if the name of its file does not contain it."))
    var keyID: String?
    @Option(help: .value("bundle id", "For iPhones: the app.")) var topic: String?
    @Option(help: .value("id", "For iPhones: the team of your account at Apple.")) var teamID: String?
    @Flag(name: .customLong("yes"), help: "Ask nothing.") var asksNothing = false

    /// The folder for the database of a relay that the package or the installer has set up.
    private static let dataFolder = "/var/lib/pushchat"
    private static let databaseName = "pushchat.db"
    /// The number of random bytes in the token.
    private static let tokenSize = 32

    func run() throws {
        var answers = InitialConfiguration(
            publicURL: publicURL ?? "", certificate: certificate ?? "", database: database ?? "",
            port: port, contact: contact ?? "", key: key ?? "", keyID: keyID ?? "", topic: topic ?? "",
            teamID: teamID ?? "")
        let standard =
            access(Self.dataFolder, W_OK) == 0 ? "\(Self.dataFolder)/\(Self.databaseName)" : Self.databaseName
        if !asksNothing, isatty(STDIN_FILENO) == 1 {
            let isComplete = answers.ask(database: standard) { question, standard in
                let hint = standard.isEmpty ? "" : " [\(standard)]"
                FileHandle.standardError.write(Data("\(question)\(hint): ".utf8))
                return readLine()
            }
            guard isComplete else { throw Failure("the input has ended; no file was written") }
        }
        if answers.database.isEmpty { answers.database = standard }
        if answers.usesPostgreSQL { answers.localFiles = standard }
        if let problem = answers.problem { throw ValidationError(problem) }
        try Self.write(answers, to: file)
        print("\(file) and \(InitialConfiguration.tokenFile) beside it are written. Next:")
        for (number, step) in answers.steps(file).enumerated() { print("  \(number + 1). \(step)") }
    }

    /// Writes the files, and checks that a relay accepts them. After an error, no file is left.
    ///
    /// - Parameter workingDirectory: The folder to which paths in the answers refer.
    /// - Throws: ``Failure``.
    static func write(
        _ answers: InitialConfiguration, to file: String,
        workingDirectory: String = FileManager.default.currentDirectoryPath
    ) throws {
        let path = FilePath.absolute(file, in: workingDirectory)
        let folder = FilePath.folder(of: path)
        var answers = answers
        for answer in [\InitialConfiguration.certificate, \.key] where !answers[keyPath: answer].isEmpty {
            answers[keyPath: answer] = FilePath.absolute(answers[keyPath: answer], in: workingDirectory)
        }
        let local: WritableKeyPath<InitialConfiguration, String> =
            answers.usesPostgreSQL ? \.localFiles : \.database
        if !answers[keyPath: local].isEmpty {
            answers[keyPath: local] = FilePath.absolute(answers[keyPath: local], in: workingDirectory)
        }
        let token = AccessToken.randomText(bytes: tokenSize)
        var files = [(path, answers.yaml), ("\(folder)/\(InitialConfiguration.tokenFile)", token + "\n")]
        if answers.usesPostgreSQL {
            files.append(("\(folder)/\(InitialConfiguration.urlFile)", answers.database + "\n"))
        }
        var written: [String] = []
        do {
            for (name, content) in files {
                try create(name, content)
                written.append(name)
            }
            _ = try Configuration.load(
                ConfigurationSources(file: path, variables: [:], workingDirectory: folder))
        } catch {
            for name in written { unlink(name) }
            throw error as? Failure ?? Failure("\(error)")
        }
    }

    private static func create(_ path: String, _ content: String) throws(Failure) {
        do {
            try PrivateFile.create(path, content)
        } catch {
            throw error.number == EEXIST
                ? Failure("\(path) exists already; remove it, or name a file in another folder")
                : Failure("\(path) cannot be created: \(error)")
        }
    }
}
