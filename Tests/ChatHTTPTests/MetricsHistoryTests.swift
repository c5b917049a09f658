import ChatDomain
import Foundation
import Logging
import Synchronization
import TestSupport
import Testing

@testable import ChatHTTP

@Suite("A day of the relay's own metrics")
final class MetricsHistoryTests: Sendable {
    private let folder = FileManager.default.temporaryDirectory.appending(path: "pushchat-\(UUID().uuidString)")
    private let time = WallClock(Timestamp(seconds: 1_780_000_020))
    private var file: String { folder.appending(path: "relay.db.figures").path }

    init() throws {
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    }

    deinit {
        try? FileManager.default.removeItem(at: folder)
    }

    private func history(_ file: String? = nil, kept: Int = MetricsHistory.day) -> MetricsHistory {
        MetricsHistory(
            file: file ?? self.file, kept: kept, now: { [self] in time.now },
            logger: .silent)
    }

    /// Advances the wall clock by minutes.
    private func pass(_ minutes: Int64 = 1) { time.advance(by: .seconds(60 * minutes)) }

    private func totals(_ sent: Int, queue: Int = 0) -> MetricsHistory.Totals {
        MetricsHistory.Totals(queue: queue, oldest: 1.5, sent: sent, failed: sent / 10, messages: sent / 2, streams: 3)
    }

    private var lines: Int {
        (try? String(contentsOfFile: file, encoding: .utf8).split(separator: "\n").count) ?? -1
    }

    @Test("Each minute has its own counts, which survive a restart that counts from 0")
    func restart() throws {
        let first = history()
        for sent in [100, 150] {
            first.add(totals(sent, queue: 7))
            pass()
        }
        let second = history()
        #expect(second.latest(10).map(\.metrics) == first.latest(10).map(\.metrics))
        second.add(totals(30))
        #expect(second.latest(10).map(\.metrics.sent) == [100, 50, 30])
        #expect(second.latest(10).map(\.metrics.messages) == [50, 25, 15])
        #expect(second.latest(2).map(\.metrics.queue) == [7, 0])
        #expect(history().latest(1).first?.json == second.latest(1).first?.json)
        #expect(lines == 3)
    }

    @Test("The history keeps one day, also after a longer stop")
    func day() {
        history().add(totals(1))
        pass(Int64(MetricsHistory.day) - 1)
        #expect(history().latest(.max).count == 1)
        pass()
        #expect(history().latest(.max).isEmpty)
    }

    @Test("The history keeps its last minutes, and the file never has more than twice as many")
    func bounded() {
        let (kept, history) = (60, { self.history(kept: 60) })
        let first = history()
        for sent in 1...(3 * kept) {
            pass()
            first.add(totals(sent))
            if sent.isMultiple(of: 7) { #expect(lines <= 2 * kept) }
        }
        #expect(first.latest(.max).count == kept)
        #expect(history().latest(.max).count == kept)
        pass(7)
        #expect(history().latest(.max).count == kept - 7)
        pass(Int64(kept))
        #expect(history().latest(.max).isEmpty)
    }

    @Test("When the clock is set back, later minutes are dropped, also from the file")
    func clock() {
        let kept = history()
        for sent in 1...10 {
            pass()
            kept.add(totals(sent))
        }
        pass(-5)
        kept.add(totals(11))
        #expect(kept.latest(.max).count == 5 && lines == 5)
        #expect(kept.latest(1).first?.metrics.sent == 1)
        #expect(history().latest(.max).map(\.at) == kept.latest(.max).map(\.at))
    }

    @Test("A file that is truncated, foreign or not writable does not stop the relay")
    func damage() throws {
        let good = history()
        good.add(totals(1))
        let line = try String(contentsOfFile: file, encoding: .utf8)
        pass()
        for damage in [
            line + String(line.prefix(30)), "\n{}\n[]\n\u{0}\n" + line, line + #"{"at":"2026-05-28T20:27:30Z"}"#,
            line + "{}\r\n",
        ] {
            try damage.write(toFile: file, atomically: false, encoding: .utf8)
            let kept = history()
            #expect(kept.latest(.max).count == 1)
            kept.add(totals(2))
            #expect(history().latest(.max).count == 2)
        }
        try Data(count: 2 << 20).write(to: URL(filePath: file))
        #expect(history().latest(.max).isEmpty)
        let nowhere = history(folder.appending(path: "gone/metrics").path)
        nowhere.add(totals(5))
        #expect(nowhere.latest(.max).count == 1)
    }

    @Test("The server samples at each full minute; /v1/stats returns the requested number of minutes")
    func server() async throws {
        let clock = TestClock()
        var relay = Relay(
            ScriptedStore(
                admin: AdminResponses(
                    depths: { [QueueDepth(app: .default, due: 3, written: 1, oldest: Sample.time - .seconds(9))] },
                    totals: { StoreTotals() }, usage: { [] },
                    outcomes: [
                        OutcomeCount(app: .default, state: .sent, reason: nil, total: 40, lastMinute: 1),
                        OutcomeCount(app: .default, state: .expired, reason: "Expired", total: 2, lastMinute: 1),
                    ])), settings: ChatHTTPSettings(adminTokens: ["t"]))
        relay.clock = clock
        relay.history = file
        try await relay.listening { port in
            try await RawConnection.open(port: port) { connection in
                func stats(_ query: String) async throws -> (Int, String) {
                    try await connection.write(
                        Array("GET /v1/stats\(query) HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer t\r\n\r\n".utf8))
                    let answer = try await connection.answer()
                    return (answer.status, answer.body)
                }
                #expect(try await stats("?minutes=10").1.contains(#""history":[]"#))
                let deadline = ContinuousClock.now + .seconds(60)
                while !(try await stats("?minutes=10").1.contains(#""history":[{"#)) {
                    try #require(ContinuousClock.now < deadline)
                    clock.advance(by: .seconds(30))
                }
                #expect(
                    try await stats("?minutes=1").1.contains(
                        #""history":[{"at":"2026-05-28T20:26:40.000Z","queue":4,"oldest_age_seconds":9.0,"sent":"#))
                #expect(try await stats("").1.contains(#""history":[]"#))
                for query in ["?minutes=-1", "?minutes=1441", "?minutes=x"] {
                    #expect(try await stats(query).0 == 400)
                }
            }
        }
    }
}
