import Foundation
import Testing

extension Databases {
    @Suite("Relays on one PostgreSQL", .onlySQLite("it starts its own server, and is the same in each run"))
    struct SharedDatabaseTests {
        @Test(
            "Killing three relays and the server while clients post and listen loses no message and repeats none"
        )
        func killed() async throws {
            let folder = try Folder()
            let seed = UInt32(truncatingIfNeeded: Stress.seed)
            print("PostgreSQL test: seed \(seed)")
            let played = try await Python.run(
                "postgres_relays.py",
                [Running.executable.path, folder.url.path, "\(max(1, Stress.scaled(8)))", "\(seed)"], input: Data(),
                within: 560)
            let lines = played.text.split(separator: "\n")
            #expect(played.status == 0, "\(lines.suffix(3)) \(played.errors.suffix(3000))")
            #expect(lines.count >= 60)
            print(lines.last ?? "")
        }
    }
}
