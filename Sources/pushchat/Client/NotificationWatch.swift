import ArgumentParser
import ChatDomain

/// Polls the relay for a notification's state until every push is settled. Then prints the counts and the failures.
struct NotificationWatch {
    let id: Int64
    /// The relay's URL, for messages.
    let base: String
    let json: Bool
    /// Sends a GET request to the relay.
    let get: (_ path: String) async throws -> JSONValue

    /// The pauses between the first requests. They are short, because most notifications are done in a moment.
    private static let pauses: [Duration] = [.milliseconds(50), .milliseconds(100), .milliseconds(250)]
    private static let maxPause = Duration.seconds(1)
    /// The maximum number of devices to print for each kind of failure.
    private static let maxShown = 100

    /// Polls until all pushes are settled or `limit` has passed, and prints the result.
    ///
    /// - Throws: ``ExitCode`` 1 unless there was at least one push and all were sent.
    func run(within limit: Duration, clock: some Clock<Duration> = ContinuousClock()) async throws {
        let deadline = clock.now.advanced(by: limit)
        var line = ProgressLine()
        var requests = 0
        while true {
            let response = try await get("/v1/notifications/\(id)?limit=1")
            guard var status = response.object, let counts = status["counts"]?.object else {
                throw Failure("unexpected response from the relay: \(response)")
            }
            let state = status["state"]?.text ?? ""
            let isSettled = ["done", "cancelled"].contains(state)
            guard isSettled || clock.now >= deadline else {
                line.show("notification \(id): \(state), \(Self.summary(counts))")
                let pause = requests < Self.pauses.count ? Self.pauses[requests] : Self.maxPause
                try await clock.sleep(for: pause)
                requests += 1
                continue
            }
            line.end()
            status["deliveries"] = nil
            status["next"] = nil
            try await report(status, state, counts, isSettled: isSettled)
            let hasLoss = ["failed", "expired", "cancelled"].contains { counts[$0]?.integer != 0 }
            let hasNoDevices = devices(status) == 0 && counts["skipped"]?.integer == 0
            if hasNoDevices { Output.note("no device matches") }
            guard isSettled, !hasLoss, !hasNoDevices else { throw ExitCode(1) }
            return
        }
    }

    private func report(_ status: JSONObject, _ state: String, _ counts: JSONObject, isSettled: Bool) async throws {
        if json {
            Output.print(json: .object(status))
        } else {
            print("notification \(id): \(Send.devices(devices(status))), \(Self.summary(counts))")
            for state in ["failed", "expired"] where counts[state]?.integer != 0 {
                try await list(state)
            }
        }
        if !isSettled {
            Output.note("it is still \(state); to ask again: GET \(base)/v1/notifications/\(id)")
        }
    }

    private func list(_ state: String) async throws {
        let (deliveries, next) = try await get("/v1/notifications/\(id)?state=\(state)&limit=\(Self.maxShown)")
            .page(of: "deliveries")
        for delivery in deliveries {
            let hint = delivery["hint"]?.text.map { " (\($0))" } ?? ""
            print("\(delivery["token"]?.text ?? "") \(state) \(delivery["reason"]?.text ?? "")\(hint)".oneLine)
        }
        if next != nil { Output.note("only the first \(Self.maxShown) are shown") }
    }

    private func devices(_ status: JSONObject) -> Int64 { status["devices"]?.integer ?? 0 }

    /// The counts above 0, in the order of the states: `2 sent, 1 failed`.
    static func summary(_ counts: JSONObject) -> String {
        let parts = counts.members.compactMap { name, value in
            value.integer.flatMap { $0 > 0 ? "\($0) \(name)" : nil }
        }
        return parts.isEmpty ? "nothing to send" : parts.joined(separator: ", ")
    }
}
