import Foundation
import TestSupport

/// A temporary folder of a test. It is deleted with this object.
final class TemporaryFolder: Sendable {
    let url: URL

    init() throws {
        url = FileManager.default.temporaryDirectory.appending(path: "pushchat-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
    }

    deinit {
        try? FileManager.default.removeItem(at: url)
    }

    func file(_ name: String) -> String { url.appending(path: name).path }

    @discardableResult
    func write(_ text: String, _ name: String) throws -> String {
        try text.write(toFile: file(name), atomically: true, encoding: .utf8)
        return file(name)
    }
}

/// A folder with an authority and client certificates with their keys, created by the `openssl` command.
final class TestCertificates: Sendable {
    private let folder: TemporaryFolder

    init() throws {
        folder = try TemporaryFolder()
        try openssl([
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
            file("ca.key"), "-out", file("ca.pem"), "-subj", "/CN=Test Authority", "-days", "30",
        ])
        try openssl(["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", file("rsa.key")])
        try openssl(["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-out", file("ec.key")])
        for kind in ["rsa", "ec"] {
            try issue(
                key: "\(kind).key", into: file("\(kind).pem"), subject: "/CN=Apple Push/UID=com.example.\(kind)",
                days: 20)
        }
    }

    func remove() throws { try FileManager.default.removeItem(at: folder.url) }

    func file(_ name: String) -> String { folder.file(name) }

    func text(_ name: String) throws -> String { try String(contentsOfFile: file(name), encoding: .utf8) }

    /// Issues a certificate for a key of this folder, signed by the authority.
    /// - Parameter extensions: Object identifiers, with an arbitrary value, or `identifier=value` for openssl.
    func issue(key: String, into path: String, subject: String, days: Int, extensions: [String] = []) throws {
        try openssl(
            [
                "req", "-x509", "-new", "-key", file(key), "-CA", file("ca.pem"), "-CAkey", file("ca.key"), "-subj",
                subject, "-days", "\(days)", "-out", path,
            ] + extensions.flatMap { ["-addext", $0.contains("=") ? $0 : "\($0)=DER:0500"] })
    }

    /// Returns a key as text. Encrypted forms use ``ClientCredentialsTests/passphrase``.
    func key(_ kind: String, _ form: ClientCredentialsTests.KeyForm) throws -> String {
        let passphrase = ["-passout", "pass:\(ClientCredentialsTests.passphrase)"]
        return switch form {
        case .pkcs8: try text("\(kind).key")
        case .pkcs8Encrypted: try openssl(["pkey", "-in", file("\(kind).key"), "-aes256"] + passphrase)
        case .traditional: try openssl([kind, "-in", file("\(kind).key")] + Self.traditional(kind))
        case .traditionalEncrypted:
            try openssl([kind, "-in", file("\(kind).key"), "-aes256"] + Self.traditional(kind) + passphrase)
        }
    }

    /// `openssl ec` writes only the traditional form, so it needs no flag.
    private static func traditional(_ kind: String) -> [String] { kind == "rsa" ? ["-traditional"] : [] }

    /// Writes a PKCS#12 file with a certificate and its key.
    func archive(_ kind: String, _ path: String, passphrase: String, _ options: [String]) throws -> String {
        try openssl(
            [
                "pkcs12", "-export", "-in", file("\(kind).pem"), "-inkey", file("\(kind).key"), "-out", path,
                "-passout", "pass:\(passphrase)",
            ] + options)
        return path
    }
}

/// The standard output of a command.
struct CommandOutput {
    let bytes: [UInt8]
    var text: String { String(decoding: bytes, as: UTF8.self) }
}

struct CommandFailed: Error, CustomStringConvertible {
    let description: String
}

@discardableResult
func openssl(_ arguments: [String]) throws -> String {
    try openssl(arguments, \.text)
}

func openssl<Value>(_ arguments: [String], _ part: (CommandOutput) -> Value) throws -> Value {
    part(try run("/usr/bin/env", ["openssl"] + arguments))
}

/// Runs a command to its end, for 30 seconds at most.
@discardableResult
func run(_ path: String, _ arguments: [String]) throws -> CommandOutput {
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments = ["timeout", "30", path] + arguments
    // openssl decodes passphrases on its command line by the locale.
    process.environment = ProcessInfo.processInfo.environment.merging(["LC_ALL": "C.UTF-8"]) { $1 }
    let folder = try TemporaryFolder()
    for name in ["out", "err"] { try Data().write(to: folder.url.appending(path: name)) }
    process.standardInput = FileHandle.nullDevice
    process.standardOutput = try FileHandle(forWritingTo: folder.url.appending(path: "out"))
    process.standardError = try FileHandle(forWritingTo: folder.url.appending(path: "err"))
    try process.run()
    process.waitUntilExit()
    guard process.terminationStatus == 0 else {
        let error = try String(contentsOfFile: folder.file("err"), encoding: .utf8)
        throw CommandFailed(description: "\(arguments): status \(process.terminationStatus): \(error)")
    }
    return CommandOutput(bytes: Array(try Data(contentsOf: folder.url.appending(path: "out"))))
}
