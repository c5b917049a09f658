import Foundation
import Testing

extension Clients {
    /// Replays the requests of phone apps that the tests cannot run.
    @Suite("Phone apps of ntfy and Gotify")
    struct PhoneAppTests {
        @Test(
            "The apps' requests, over raw sockets with TLS, get what the apps expect; kills lose and repeat nothing")
        func replay() async throws {
            let folder = try Folder()
            let (authority, certificate) = try await folder.makeServerCertificate()
            let file = folder.file("relay.yaml")
            try Data(
                """
                http:
                  certificate: \(certificate)
                  host: 127.0.0.1
                  ntfy_at_root: on
                ntfy: {unifiedpush: on, base_url: "https://chat.example.org"}
                admin: {token: the-token-of-this-test}
                log: {level: trace}
                """.utf8
            ).write(to: file)
            try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file.path)
            let database = folder.file("pushchat.db").path
            let store = try folder.store(at: database)
            let log = folder.file("relay.log").path
            let played = try await ClientProgram.run(
                [
                    "python3", ClientProgram.sources.appending(path: "phone_apps.py").path, authority,
                    StoreKind.ofThisRun == .postgres ? "yes" : "no", log,
                ] + store.variables + [
                    Running.executable.path, "serve", "--config", file.path, "--database", database,
                ], within: 300)
            let lines = played.text.split(separator: "\n")
            #expect(played.status == 0, "\(lines.suffix(3)) \(played.errors)")
            #expect(lines.count > 150)
        }
    }
}

extension Folder {
    /// Creates a certificate for 127.0.0.1, and the authority that signed it.
    ///
    /// - Returns: The path of the authority's certificate, and that of the certificate with its key.
    fileprivate func makeServerCertificate() async throws -> (authority: String, certificate: String) {
        let (authority, certificate) = (file("ca.pem").path, file("server.pem").path)
        let common = [
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        ]
        try await tool(
            "openssl", common + ["-subj", "/CN=Authority", "-keyout", file("ca.key").path, "-out", authority])
        try await tool(
            "openssl",
            common + [
                "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", certificate + ".key",
                "-out", certificate + ".crt", "-CA", authority, "-CAkey", file("ca.key").path,
            ])
        try await tool("sh", ["-c", "cat '\(certificate).crt' '\(certificate).key' > '\(certificate)'"])
        return (authority, certificate)
    }
}
