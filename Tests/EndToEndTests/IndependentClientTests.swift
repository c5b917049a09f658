import Foundation
import TestSupport
import Testing

extension Clients {
    /// Runs third-party programs, or programs that were written from Apple's description alone, against the sandbox.
    @Suite("Independent clients", .onlySQLite("no relay takes part"))
    struct IndependentClientTests {
        let sandbox: SandboxProcess

        init() async throws {
            sandbox = try await SandboxProcess.start(try Folder())
        }

        // MARK: openssl s_client

        /// The token, payload and expiry of the worked examples of the binary protocol.
        static let token = "0f744707bebcf74f9b7c25d48e3358945f6aa01da5ddb387462c7eaf61bbad78"
        static let payload = #"{"aps":{"alert":"SteveJ: Hello, world!","sound":"default"}}"#
        static let expiration = "1304805449"

        /// The worked examples of commands 0, 1 and 2, byte for byte.
        static let simple = Data(
            hex: """
                00 00 20 0f 74 47 07 be bc f7 4f 9b 7c 25 d4 8e 33 58 94 5f 6a a0 1d a5 dd b3 87 46 2c 7e af 61
                bb ad 78 00 3b 7b 22 61 70 73 22 3a 7b 22 61 6c 65 72 74 22 3a 22 53 74 65 76 65 4a 3a 20 48 65
                6c 6c 6f 2c 20 77 6f 72 6c 64 21 22 2c 22 73 6f 75 6e 64 22 3a 22 64 65 66 61 75 6c 74 22 7d 7d
                """)
        static let enhanced = Data(
            hex: """
                01 00 00 00 01 4d c5 c0 49 00 20 0f 74 47 07 be bc f7 4f 9b 7c 25 d4 8e 33 58 94 5f 6a a0 1d a5
                dd b3 87 46 2c 7e af 61 bb ad 78 00 3b 7b 22 61 70 73 22 3a 7b 22 61 6c 65 72 74 22 3a 22 53 74
                65 76 65 4a 3a 20 48 65 6c 6c 6f 2c 20 77 6f 72 6c 64 21 22 2c 22 73 6f 75 6e 64 22 3a 22 64 65
                66 61 75 6c 74 22 7d 7d
                """)
        static let framed = Data(
            hex: """
                02 00 00 00 73 01 00 20 0f 74 47 07 be bc f7 4f 9b 7c 25 d4 8e 33 58 94 5f 6a a0 1d a5 dd b3 87
                46 2c 7e af 61 bb ad 78 02 00 3b 7b 22 61 70 73 22 3a 7b 22 61 6c 65 72 74 22 3a 22 53 74 65 76
                65 4a 3a 20 48 65 6c 6c 6f 2c 20 77 6f 72 6c 64 21 22 2c 22 73 6f 75 6e 64 22 3a 22 64 65 66 61
                75 6c 74 22 7d 7d 03 00 04 00 00 00 01 04 00 04 4d c5 c0 49 05 00 01 0a
                """)
        /// A frame without a token, with identifier 42.
        static let bad = Data(hex: "02 00 00 00 0c 02 00 02 7b 7d 03 00 04 00 00 00 2a")

        struct Arrival: Decodable {
            let token: String
            let topic: String
            let command: Int
            let identifier: Int?
            let headers: [String: String]
            let payload: String
            let answer: String
        }

        private func inbox() async throws -> [Arrival] {
            struct Page: Decodable { let notifications: [Arrival] }
            return try JSONDecoder().decode(Page.self, from: await HTTP.get("\(sandbox.base)/notifications?limit=1000"))
                .notifications
        }

        private func connect(
            _ port: Int, certificate: String?, input: Data, _ options: [String]
        ) async throws -> ClientProgram {
            try await ClientProgram.run(
                [
                    "openssl", "s_client", "-connect", "127.0.0.1:\(port)", "-CAfile", sandbox.authority,
                    "-verify_return_error", "-quiet",
                ] + (certificate.map { ["-cert", $0] } ?? []) + options, input: input, within: 20)
        }

        @Test(
            "openssl s_client: worked frames arrive byte for byte; a bad one gets a response and voids those after it",
            arguments: ["-tls1_2", "-tls1_3"])
        func goldenFrames(version: String) async throws {
            let frames = [Self.simple, Self.enhanced, Self.framed]
            #expect(frames.map(\.count) == [96, 104, 120])
            let client = try await connect(
                sandbox.binary, certificate: sandbox.credential,
                input: frames.reduce(Data(), +) + Self.bad + Self.framed,
                [version])
            #expect(client.hex == "08020000002a", "\(client.errors)")

            let arrivals = try await inbox()
            #expect(arrivals.map(\.answer) == ["accepted", "accepted", "accepted", "MissingDeviceToken"])
            let good = arrivals.prefix(3)
            #expect(good.map(\.command) == [0, 1, 2])
            #expect(good.map(\.identifier) == [nil, 1, 1])
            #expect(good.map(\.headers["apns-expiration"]) == [nil, Self.expiration, Self.expiration])
            #expect(good.map(\.headers["apns-priority"]) == [nil, nil, "10"])
            for arrival in good {
                #expect(arrival.token == Self.token)
                #expect(arrival.payload == Self.payload)
                #expect(arrival.topic == "com.example.PushChat")
            }
        }

        @Test("openssl s_client: success is silent, and a bad command 0 closes the connection without a response")
        func silence() async throws {
            let good = try await connect(
                sandbox.binary, certificate: sandbox.credential, input: Self.simple + Self.enhanced, ["-no_ign_eof"])
            #expect(good.output.isEmpty)
            try await eventually("both are there") { try await inbox().count == 2 }
            // An empty token. The gateway closes the connection: s_client stays open after the end of its input.
            let bad = try await connect(
                sandbox.binary, certificate: sandbox.credential, input: Data(hex: "00 00 00 00 02 7b 7d"), [])
            #expect(bad.status != 124, "the connection was not closed")
            #expect(bad.output.isEmpty)
        }

        @Test(
            "openssl s_client: the gateway rejects a client without a certificate or with a foreign one",
            arguments: [false, true],
            ["-tls1_2", "-tls1_3"])
        func refused(hasCertificate: Bool, version: String) async throws {
            let certificate = hasCertificate ? try await sandbox.strangersCertificate() : nil
            for port in [sandbox.binary, sandbox.feedback] {
                let client = try await connect(port, certificate: certificate, input: Self.framed, [version])
                #expect(client.status != 124, "the connection was not closed")
                #expect(client.errors.contains("alert"), "\(client.errors)")
                #expect(client.output.isEmpty)
            }
            #expect(try await inbox().isEmpty)
        }

        @Test(
            "openssl s_client: the feedback service sends 38 bytes for a removed app, once",
            arguments: [
                "-tls1_2", "-tls1_3",
            ])
        func feedback(version: String) async throws {
            let before = UInt32(Date().timeIntervalSince1970)
            let token = try await sandbox.removedDevice()
            let client = try await connect(sandbox.feedback, certificate: sandbox.credential, input: Data(), [version])
            #expect(client.output.count == 38, "\(client.errors)")
            #expect(client.hex.dropFirst(8) == "0020" + token)
            let time = client.output.prefix(4).reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
            #expect((before...UInt32(Date().timeIntervalSince1970)).contains(time))
            // The sandbox clears the list when the first client has closed.
            try await eventually("the list is empty") {
                try await connect(sandbox.feedback, certificate: sandbox.credential, input: Data(), [version]).output
                    .isEmpty
            }
        }

        // MARK: A C client

        @Test("A C client on libssl: all arrive in order, and the bad one gets the documented error packet")
        func cClient() async throws {
            let program = try await compiled()
            let count = 2000
            let client = try await ClientProgram.run(
                [program, "127.0.0.1", "\(sandbox.binary)", sandbox.credential, sandbox.authority, "\(count)"])
            #expect(client.status == 0, "\(client.errors)")
            #expect(client.text == "0802000007d1\n")
            let arrivals = try await sandbox.notifications()
            #expect(arrivals.map(\.identifier) == (1...(count + 1)).map { $0 })
            #expect(arrivals.map(\.answer) == Array(repeating: "accepted", count: count) + ["MissingDeviceToken"])
            for (number, arrival) in zip(1..., arrivals.prefix(count)) {
                let digits = String(number, radix: 16)
                #expect(arrival.token == String(repeating: "0", count: 64 - digits.count) + digits)
                #expect(arrival.payload == #"{"aps":{"alert":"number \#(number)","sound":"default"}}"#)
            }
        }

        @Test(
            "A C client on libssl is rejected with a foreign certificate, and rejects an authority that it does not trust"
        )
        func cClientRefused() async throws {
            let program = try await compiled()
            let stranger = try await sandbox.strangersCertificate()
            for (certificate, authority) in [(stranger, sandbox.authority), (sandbox.credential, stranger)] {
                let client = try await ClientProgram.run(
                    [program, "127.0.0.1", "\(sandbox.binary)", certificate, authority, "3"])
                #expect(client.status == 4)
                #expect(client.errors.contains(certificate == stranger ? "alert" : "certificate verify failed"))
                #expect(client.output.isEmpty)
            }
            #expect(try await sandbox.notifications().isEmpty)
        }

        private func compiled() async throws -> String {
            let program = sandbox.folder.file("gateway_client").path
            try await tool(
                "cc",
                [
                    "-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o", program,
                    ClientProgram.sources.appending(path: "gateway_client.c").path, "-lssl", "-lcrypto",
                ])
            return program
        }

        // MARK: A Python library

        @Test(
            "pushjack, a Python library of 2018, delivers, resumes after an error, and reads the feedback service")
        func pushjack() async throws {
            let removed = try await sandbox.removedDevice()
            var tokens = (0..<200).map(Name.token)
            tokens[120] = removed
            let client = try await Python.run(
                "pushjack_client.py", ["\(sandbox.binary)", "\(sandbox.feedback)", sandbox.credential, "grüße"],
                input: Data(tokens.joined(separator: "\n").utf8), within: 40)
            #expect(client.status == 0, "\(client.errors)")

            struct Report: Decodable {
                struct Failure: Decodable, Equatable {
                    let code: Int
                    let identifier: Int
                }
                let errors: [Failure]
                let failures: [String]
                let successes: Int
                let expired: [String]
                let expiredAgain: [String]
            }
            let report = try JSONDecoder().decode(Report.self, from: client.output)
            #expect(report.errors == [.init(code: 8, identifier: 120)])
            #expect(report.failures == [removed])
            #expect(report.successes == 199)
            #expect(report.expired == [removed])
            #expect(report.expiredAgain.isEmpty, "the list was not cleared")

            let arrivals = try await sandbox.notifications()
            #expect(arrivals.filter { $0.answer == "accepted" }.map(\.token) == tokens.filter { $0 != removed })
            #expect(arrivals.filter { $0.answer != "accepted" }.map(\.answer) == ["InvalidToken"])
            let payload = #"{"aps":{"alert":"gr\u00fc\u00dfe","badge":3,"sound":"default"}}"#
            #expect(arrivals.allSatisfy { $0.payload == payload })
        }
    }
}
