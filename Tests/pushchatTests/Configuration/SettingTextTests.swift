import ChatDomain
import Testing

@testable import pushchat

@Suite struct SettingTextTests {
    @Test(
        "Durations are read in their usual forms",
        arguments: [
            ("30 days", Duration.seconds(2_592_000)), ("7d", .seconds(604_800)), ("1 hour", .seconds(3600)),
            ("1h", .seconds(3600)), ("90s", .seconds(90)), ("500ms", .milliseconds(500)), ("5 min", .seconds(300)),
            ("1h 30m", .seconds(5400)), ("1h30m", .seconds(5400)), (" 2 Weeks ", .seconds(1_209_600)),
            ("0s", .zero), ("1 day", .seconds(86_400)), ("10 seconds", .seconds(10)),
        ])
    func duration(text: String, expected: Duration) {
        #expect(DurationText.duration(text) == expected)
    }

    @Test(
        "Other texts are not durations",
        arguments: [
            "", " ", "30", "d", "1.5h", "-1s", "1 fortnight", "1h 30", "s5", "9999999999999999999s",
            "9223372036854775807d", "9223372036854775807ms 1ms", "٣s",
        ])
    func noDuration(text: String) {
        #expect(DurationText.duration(text) == nil)
    }

    @Test(
        "Durations are written in a form that can be read",
        arguments: [
            (Duration.seconds(2_592_000), "30 days"), (.seconds(86_400), "1 day"), (.seconds(5400), "90 minutes"),
            (.seconds(3600), "1 hour"), (.seconds(1), "1 second"), (.milliseconds(1500), "1500 ms"),
            (.zero, "0 seconds"),
        ])
    func durationText(duration: Duration, expected: String) {
        #expect(DurationText.text(duration) == expected)
        #expect(DurationText.duration(expected) == duration)
    }

    @Test(
        "Rates are read with and without a burst",
        arguments: [
            ("10/s", RequestRate(count: 10, unit: .second, burst: 10), 10.0),
            ("10/s burst 50", RequestRate(count: 10, unit: .second, burst: 50), 10),
            ("600/min  burst 1", RequestRate(count: 600, unit: .minute, burst: 1), 10),
            ("1800/h", RequestRate(count: 1800, unit: .hour, burst: 1800), 0.5),
        ])
    func rate(text: String, expected: RequestRate, perSecond: Double) {
        #expect(RequestRate(parsing: text) == expected)
        #expect(expected.perSecond == perSecond)
        #expect(RequestRate(parsing: expected.description) == expected)
    }

    @Test(
        "Other texts are not rates",
        arguments: [
            "", "10", "0/s", "10/day", "10/s burst", "10/s burst 0", "10/s burst -1", "-1/s", "1/s 5", "1/1/s", "/s",
            "1000001/s", "1/s burst 1000001", "+1/s", "1/s burst 5 6",
        ])
    func noRate(text: String) {
        #expect(RequestRate(parsing: text) == nil)
    }

    @Test(
        "Addresses and networks are read",
        arguments: [
            ("127.0.0.1", true), ("10.0.0.0/8", true), ("0.0.0.0/0", true), ("::1", true), ("fd00::/8", true),
            ("::/128", true), ("", false), ("10.0.0.0/33", false), ("::/129", false), ("10.0.0/8", false),
            ("10.0.0.0/", false), ("10.0.0.0/+8", false), ("10.0.0.0/8/8", false), ("localhost", false),
            ("10.0.0.0/0008", false),
        ])
    func address(text: String, isValid: Bool) {
        #expect((AddressRange(text) != nil) == isValid)
    }

    @Test(
        "The nearest word differs in one letter if short, in a few if long",
        arguments: [
            ("prot", "port"), ("prt", "port"), ("Port", "port"), ("prrot", nil), ("hst", "host"), ("x", nil),
            ("trusted-proxy", "trusted_proxies"), ("", nil),
        ] as [(String, String?)])
    func suggestion(word: String, expected: String?) {
        #expect(Suggestion.nearest(to: word, among: ["port", "host", "trusted_proxies"]) == expected)
    }

    @Test("A very long word has no nearest word")
    func longWord() {
        #expect(Suggestion.nearest(to: String(repeating: "a", count: 1_000_000), among: ["port"]) == nil)
    }

    @Test(
        "Paths become absolute",
        arguments: [
            ("a", "/b", "/b/a"), ("./a//c", "/b/", "/b/a/c"), ("/a", "/b", "/a"), ("../a", "/b", "/b/../a"),
            (".", "/", "/"),
        ])
    func path(path: String, folder: String, expected: String) {
        #expect(FilePath.absolute(path, in: folder) == expected)
    }
}
