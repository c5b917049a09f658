import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Credentials of other apps")
    struct OtherAppTests {
        @Test("The operator lists and revokes credentials beside a running relay; they end when the member leaves")
        func operate() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
            func credential(_ arguments: String...) async throws -> ClientProgram {
                try await ClientProgram.run(relay.store.command(["credential"] + arguments))
            }
            func make(_ number: Int, _ name: String) async throws -> String {
                let (status, text) = try await relay.call([
                    "cmd": "credential", "udid": Name.udid(number), "name": name,
                ])
                #expect(status == 200, "\(text)")
                return String(try #require(text.firstMatch(of: /"credential":"(pcc_[\w-]{43})"/)?.1))
            }
            // Other calls than those of ntfy and Gotify refuse a credential with 403, and an unknown one with 401.
            func status(_ secret: String) async throws -> Int {
                try await relay.admin("GET", "/v1/stats", headers: [("Authorization", "Bearer \(secret)")]).0
            }
            for (number, room) in [(1, "kitchen"), (2, "kitchen"), (3, "hall")] {
                let (status, text) = try await relay.call([
                    "cmd": "join", "udid": Name.udid(number), "token": "0", "name": "n\(number)", "code": room,
                ])
                #expect(status == 200, "\(text)")
            }
            let phone = try await make(1, "phone")
            let (desk, hall) = (try await make(2, "desk"), try await make(3, "hall clock"))
            for secret in [phone, desk, hall] { #expect(try await status(secret) == 403) }

            let table = try await credential("list", "--room", "kitchen")
            let rows = table.text.split(separator: "\n").map {
                $0.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
            }
            #expect(rows.map { Array($0[1...4]) } == [["phone", "n1", "", "kitchen"], ["desk", "n2", "", "kitchen"]])
            let json = try await credential("list", "--json")
            #expect(json.text.split(separator: "\n").count == 3 && json.text.contains(#""name":"hall clock""#))
            for text in [table.text, json.text] { #expect(!text.contains("pcc_") && !text.contains(Name.udid(1))) }
            try await eventually("the last use is recorded") {
                try await credential("list", "--json").text.contains(#""last_used_from":"127.0.0.1""#)
            }

            let revoked = try await credential("revoke", try #require(rows.first?.first))
            #expect((revoked.status, revoked.errors) == (0, "phone is revoked\n"))
            #expect(try await status(phone) == 401)
            let again = try await credential("revoke", try #require(rows.first?.first))
            #expect(again.status == 1 && again.errors.contains("there is no credential"), "\(again.errors)")
            #expect(try await credential("revoke", "phone").status == 64)
            #expect(try await credential("list", "--room", "").status == 64)

            #expect(try await relay.call(["cmd": "leave", "udid": Name.udid(2)]).0 == 200)
            #expect(try await (status(desk), status(hall)) == (401, 403))
            #expect(try await credential().text.split(separator: "\n").count == 1)
        }
    }
}
