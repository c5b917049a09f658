import Foundation
import Testing

extension Surroundings {
    @Suite("Event streams")
    struct EventStreamTests {
        @Test(
            "With thousands of streams in many rooms, each stream gets each message of its room once, in bounded memory"
        )
        func many() async throws {
            let folder = try Folder()
            let sandbox = try await SandboxProcess.start(folder)
            let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
            let rooms = Stress.scaled(200)
            let before = try relay.process.residentMegabytes()
            let played = try await ClientProgram.run(
                [
                    "python3", ClientProgram.sources.appending(path: "event_streams.py").path, "\(relay.port)",
                    "\(rooms * 20)", "\(rooms)",
                    "50", "5",
                ], within: 120)
            #expect(played.status == 0, "\(played.errors.suffix(2000))")
            struct Result: Decodable {
                let expected: Int
                let seen: Int
                let doubles: Int
            }
            let result = try JSONDecoder().decode(Result.self, from: played.output)
            let grown = try relay.process.residentMegabytes() - before
            print(
                "event streams: \(played.text.trimmingCharacters(in: .newlines)), \(grown) MB for \(rooms * 20) streams"
            )
            #expect(result.expected == 5000 && result.seen == result.expected && result.doubles == 0)
            #expect(grown < 250)
        }

        @Test(
            "Streams of ntfy's apps, a third each JSON, WebSocket and SSE, cost at most 1.2 times as much as those of /events"
        )
        func apps() async throws {
            struct Result: Decodable {
                let expected: Int
                let seen: Int
                let doubles: Int
                let medianMilliseconds: Double
                let kilobytesPerStream: Double

                enum CodingKeys: String, CodingKey {
                    case expected, seen, doubles
                    case medianMilliseconds = "median_ms"
                    case kilobytesPerStream = "stream_kb"
                }
            }
            func measure(_ option: String) async throws -> Result {
                let folder = try Folder()
                let sandbox = try await SandboxProcess.start(folder)
                let relay = try await RelayProcess.start(folder, configuration: try await sandbox.relayConfiguration())
                let rooms = Stress.scaled(500)
                let played = try await ClientProgram.run(
                    [
                        "python3", ClientProgram.sources.appending(path: "event_streams.py").path, "\(relay.port)",
                        "\(rooms * 20)", "\(rooms)", "50", "5", option, relay.process.identifier,
                    ], within: 280)
                #expect(played.status == 0, "\(played.errors.suffix(2000))")
                print("\(rooms * 20) streams, \(option): \(played.text.trimmingCharacters(in: .newlines))")
                let result = try JSONDecoder().decode(Result.self, from: played.output)
                #expect(result.expected == 5000 && result.seen == result.expected && result.doubles == 0, "\(option)")
                return result
            }
            let (events, apps) = (try await measure("credentials"), try await measure("apps"))
            let memory = apps.kilobytesPerStream / events.kilobytesPerStream
            let delay = apps.medianMilliseconds / events.medianMilliseconds
            print("streams of ntfy's apps: \(memory) times the memory, \(delay) times the delay")
            // A tenth of the streams is too few for a ratio.
            if Stress.isFull { #expect(memory <= 1.2 && delay <= 1.2) }
        }
    }
}
