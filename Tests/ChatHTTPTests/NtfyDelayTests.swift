import ChatDomain
import Testing

@testable import ChatHTTP

@Suite("The times of ntfy's messages for later")
struct NtfyDelayTests {
    /// 2026-05-28T20:26:40Z.
    private static let now = Timestamp(seconds: 1_780_000_000)

    @Test(
        "Every form of ntfy is read, except words without a time zone",
        arguments: [
            ("1780000010", 10), ("1780003600", 3600), ("90m", 5400), ("1h30m", 5400), ("10s", 10), ("10500ms", 10.5),
            ("30min", 1800), ("2 days", 172_800), ("1 DAY", 86_400), ("3h", 10_800), ("5 Minutes", 300),
            ("20 secs", 20), ("30d", 2_592_000), ("1 hour", 3600),
            ("2026-05-28T20:26:50Z", 10), ("2026-05-28T22:27:00+02:00", 20), ("2026-05-28T22:27:00 02:00", 20),
            ("2026-05-28t20:26:50.5z", 10.5),
        ] as [(String, Double)])
    func forms(text: String, seconds: Double) throws {
        let due = try NtfyDelay.due(text, now: Self.now)
        #expect(due == Self.now + .milliseconds(Int64(seconds * 1000)))
    }

    @Test(
        "Other texts have ntfy's codes",
        arguments: [
            ("10am", 40004), ("tomorrow", 40004), ("Tuesday, 7am", 40004), ("", 40004), ("5", 40005), ("-5", 40005),
            ("1779999999", 40005), ("1780000009", 40005), ("9s", 40005), ("0s", 40005), ("-1h", 40005),
            ("9999ms", 40005), ("0 days", 40005), ("2026-05-28T20:26:49Z", 40005), ("1970-01-01T00:00:00Z", 40005),
            ("31d", 40006), ("2592001s", 40006), ("9223372036854775807", 40006), ("99999999999 days", 40006),
            ("9999-12-31T23:59:59Z", 40006), ("99999999999999999999", 40004), ("1w", 40004), ("2 weeks", 40004),
            ("2026-05-29", 40004), ("2026-05-28T22:27:00", 40004), ("2026-02-30T00:00:00Z", 40004), ("1e3s", 40004),
            ("٣ days", 40004), (String(repeating: "9", count: 65), 40004),
        ] as [(String, Int)])
    func failures(text: String, code: Int) {
        let error = #expect(throws: ErrorResponse.self) { try NtfyDelay.due(text, now: Self.now) }
        #expect(error?.apiCode == code && error?.field == "delay" && error?.status == .badRequest)
    }

    @Test("The limits are exact: 10 seconds and 30 days")
    func limits() throws {
        let day: Int64 = 86_400_000
        #expect(try NtfyDelay.due("10000ms", now: Self.now) == Self.now + .seconds(10))
        #expect(throws: ErrorResponse.self) { try NtfyDelay.due("9999ms", now: Self.now) }
        #expect(try NtfyDelay.due("\(30 * day)ms", now: Self.now) == Self.now + .seconds(30 * 86_400))
        #expect(throws: ErrorResponse.self) { try NtfyDelay.due("\(30 * day + 1)ms", now: Self.now) }
    }
}
