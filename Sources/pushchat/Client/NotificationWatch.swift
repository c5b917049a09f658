import ArgumentParser
import ChatDomain

/// Looks at a notification until every push has come to its end, and says what became of them.
struct NotificationWatch {
    let client: RelayClient
    let id: Int64
    let json: Bool

    /// Between looks: short at first, because most are done in a moment.
    private static let pauses: [Duration] = [.milliseconds(50), .milliseconds(100), .milliseconds(250)]
    private static let longestPause = Duration.seconds(1)
    /// Devices whose failure is printed.
    private static let mostShown = 100

    func run(within limit: Duration) async throws {
        let deadline = ContinuousClock.now + limit
        var line = ProgressLine()
        var look = 0
        while true {
            let answer = try await client.call(.GET, "/v1/notifications/\(id)?limit=1")
            guard var status = answer.object, let counts = status["counts"]?.object else {
                throw Failure("the relay's answer is not understood: \(answer)")
            }
            let state = status["state"]?.text ?? ""
            let isOver = ["done", "cancelled"].contains(state)
            guard isOver || ContinuousClock.now >= deadline else {
                line.show("notification \(id): \(state), \(Self.summary(counts))")
                try await Task.sleep(for: look < Self.pauses.count ? Self.pauses[look] : Self.longestPause)
                look += 1
                continue
            }
            line.end()
            status["deliveries"] = nil
            status["next"] = nil
            try await report(status, state, counts, isOver: isOver)
            let lost = ["failed", "expired", "cancelled"].contains { counts[$0]?.integer != 0 }
            let isForNobody = devices(status) == 0 && counts["skipped"]?.integer == 0
            if isForNobody { Output.note("no device is meant by that") }
            guard isOver, !lost, !isForNobody else { throw ExitCode(1) }
            return
        }
    }

    private func report(_ status: JSONObject, _ state: String, _ counts: JSONObject, isOver: Bool) async throws {
        if json {
            Output.print(json: .object(status))
        } else {
            print("notification \(id): \(Send.devices(devices(status))), \(Self.summary(counts))")
            for state in ["failed", "expired"] where counts[state]?.integer != 0 {
                try await list(state)
            }
        }
        if !isOver {
            Output.note("it is still \(state); to look again: GET \(client.base)/v1/notifications/\(id)")
        }
    }

    private func list(_ state: String) async throws {
        let page = try await client.call(.GET, "/v1/notifications/\(id)?state=\(state)&limit=\(Self.mostShown)")
        for case .object(let delivery) in page.object?["deliveries"]?.array ?? [] {
            let hint = delivery["hint"]?.text.map { " (\($0))" } ?? ""
            print(Output.oneLine("\(delivery["token"]?.text ?? "") \(state) \(delivery["reason"]?.text ?? "")\(hint)"))
        }
        if page.object?["next"]?.integer != nil { Output.note("only the first \(Self.mostShown) are shown") }
    }

    private func devices(_ status: JSONObject) -> Int64 { status["devices"]?.integer ?? 0 }

    /// `2 sent, 1 failed`: what there is, in the order of the states.
    static func summary(_ counts: JSONObject) -> String {
        let parts = counts.members.compactMap { name, value in
            value.integer.flatMap { $0 > 0 ? "\($0) \(name)" : nil }
        }
        return parts.isEmpty ? "nothing to send" : parts.joined(separator: ", ")
    }
}
