import ArgumentParser
import ChatDomain
import Synchronization
import TestSupport
import Testing

@testable import pushchat

@Suite("Waiting for a notification") struct NotificationWatchTests {
    private static func status(_ state: String, devices: Int = 2, _ counts: JSONObject) -> JSONValue {
        .object([
            "state": .string(state), "devices": .number(devices), "counts": .object(counts), "deliveries": .array([]),
        ])
    }

    /// Responds with the states in their order, then with the last one again.
    /// - Returns: The requested paths.
    private static func watch(
        _ states: [JSONValue], within limit: Duration, _ clock: SteppingClock = SteppingClock()
    ) async throws -> [String] {
        var paths: [String] = []
        let watch = NotificationWatch(id: 7, base: "http://relay", json: true) { path in
            paths.append(path)
            return states[min(paths.count, states.count) - 1]
        }
        do {
            try await watch.run(within: limit, clock: clock)
        } catch let error as ExitCode {
            paths.append("status \(error.rawValue)")
        }
        return paths
    }

    private static let request = "/v1/notifications/7?limit=1"
    private static let sending = status("sending", ["sent": .number(1), "failed": .number(0)])

    @Test("The command polls with growing pauses until every push is settled")
    func settled() async throws {
        let clock = SteppingClock()
        let done = Self.status(
            "done", ["sent": .number(2), "failed": .number(0), "expired": .number(0), "cancelled": .number(0)])
        let paths = try await Self.watch(Array(repeating: Self.sending, count: 5) + [done], within: .seconds(60), clock)
        #expect(paths == Array(repeating: Self.request, count: 6))
        #expect(
            clock.pauses == [
                .milliseconds(50), .milliseconds(100), .milliseconds(250), .seconds(1), .seconds(1),
            ])
    }

    @Test("The status is 1 after the time limit")
    func late() async throws {
        let paths = try await Self.watch([Self.sending], within: .milliseconds(120))
        #expect(paths == Array(repeating: Self.request, count: 3) + ["status 1"])
    }

    @Test("The status is 1 when a push failed, or there was no device", arguments: [2, 0])
    func failed(devices: Int) async throws {
        let state = Self.status(
            "done", devices: devices,
            [
                "sent": .number(1), "failed": .number(devices == 2 ? 1 : 0), "expired": .number(0),
                "cancelled": .number(0), "skipped": .number(0),
            ])
        #expect(try await Self.watch([state], within: .seconds(60)) == [Self.request, "status 1"])
    }

    @Test("An unexpected response is an error")
    func wrong() async {
        await #expect(throws: Failure.self) { try await Self.watch([.object([:])], within: .seconds(60)) }
    }
}
