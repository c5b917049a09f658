import Foundation
import Testing

extension Databases {
    @Suite("pushchat migrate", .onlySQLite("it starts its own server, and is the same in each run"))
    struct MigrateTests {
        @Test("A file moves into PostgreSQL and back, although each move is killed and stopped in the middle")
        func killed() async throws {
            let folder = try Folder()
            let played = try await Python.run(
                "migrate.py", [Running.executable.path, folder.url.path, "\(Stress.scaled(1_000_000))"], input: Data(),
                within: 560)
            let lines = played.text.split(separator: "\n")
            #expect(played.status == 0, "\(lines.suffix(3)) \(played.errors.suffix(3000))")
            #expect(lines.count >= 20)
            print(lines.filter { $0.hasSuffix("MB") }.joined(separator: "; "))
        }
    }
}
