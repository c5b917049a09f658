import ChatDomain
import Foundation
import Logging
import Testing

@testable import pushchat

@Suite struct LogRecordTests {
    /// 2026-11-20T23:55:00.123Z
    static let time = Timestamp(milliseconds: 1_795_218_900_123)

    static func line(
        _ message: String, _ metadata: Logger.Metadata = [:], level: Logger.Level = .info, _ format: LogFormat = .text
    ) -> String {
        let record = LogRecord(time: time, level: level, label: "relay", message: message, metadata: metadata)
        return String(decoding: record.line(format), as: UTF8.self)
    }

    @Test("A line of text has time, level, message and sorted pairs")
    func text() {
        #expect(
            Self.line("message text", ["key": "value", "b": "two words", "n": .stringConvertible(7)])
                == "2026-11-20T23:55:00.123Z info  message text b=\"two words\" key=value n=7\n")
        #expect(Self.line("x", level: .critical) == "2026-11-20T23:55:00.123Z critical x\n")
    }

    @Test(
        "A value that is not one plain word is quoted",
        arguments: [
            ("", "\"\""), ("a=b", "\"a=b\""), ("a\"b", #""a\"b""#), (#"a\b"#, #""a\\b""#), ("a\nb", #""a\nb""#),
            ("a\u{1B}[2J", #""a\u{1b}[2J""#), ("äö", "äö"), ("a\u{2028}b", #""a\u{2028}b""#),
            ("a\u{202E}b", #""a\u{202e}b""#), ("a\u{85}b", #""a\u{85}b""#), ("a\u{A0}b", "\"a\u{A0}b\""),
        ])
    func quoting(value: String, expected: String) {
        #expect(Self.line("m", ["k": .string(value)]) == "2026-11-20T23:55:00.123Z info  m k=\(expected)\n")
    }

    @Test("Text from outside cannot start a new line", arguments: LogFormat.allCases)
    func forgery(format: LogFormat) {
        let bad = "x\n2026-11-20T23:55:00.123Z error forged\r\n\u{0}\u{1B}[1m\u{2029}"
        let line = Self.line(bad, ["k": .string(bad), .init(bad): "v", "l": [.string(bad)]], format)
        #expect(line.last == "\n")
        #expect(!line.dropLast().unicodeScalars.contains { $0.isUnsafeInLine })
    }

    @Test("A line of JSON has time, level, label, message and the metadata beside them")
    func json() throws {
        let line = Self.line(
            "text \"quoted\"",
            [
                "n": .stringConvertible(7), "yes": .stringConvertible(true), "d": ["e": ["f": "g"]], "a": ["x", ["y"]],
                "time": "mine", "s": "a/b\u{1}",
            ], level: .warning, .json)
        #expect(
            line == #"{"time":"2026-11-20T23:55:00.123Z","level":"warning","label":"relay","#
                + #""message":"text \"quoted\"","a":["x",["y"]],"d.e.f":"g","n":7,"s":"a/b\u0001","#
                + #""metadata.time":"mine","yes":true}"# + "\n")
        let object = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
        #expect(object?["s"] as? String == "a/b\u{1}")
    }

    @Test("Nested metadata becomes keys with dots, lists stay lists")
    func nested() {
        #expect(
            Self.line("m", ["d": ["e": ["f": "g"]], "a": ["x", "y"]])
                == "2026-11-20T23:55:00.123Z info  m a=\"[\\\"x\\\",\\\"y\\\"]\" d.e.f=g\n")
    }

    @Test("No line is longer than an atomic write to a pipe, and JSON stays valid", arguments: LogFormat.allCases)
    func limit(format: LogFormat) throws {
        for text in [String(repeating: "x", count: 100_000), String(repeating: "\u{1}", count: 9000), "é", "👩‍👩‍👧‍👦"] {
            var metadata: Logger.Metadata = [:]
            for number in 0..<1000 { metadata["key\(number)"] = .string(text + "\(number)") }
            let line = Self.line(String(repeating: text, count: 2000), metadata, format)
            #expect(line.utf8.count <= LogRecord.maxLine)
            guard format == .json else {
                #expect(line.hasSuffix(" …\n"))
                continue
            }
            let object = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
            #expect(object?["truncated"] as? Bool == true)
            #expect(object?["message"] is String)
        }
    }

    @Test("Deeply nested metadata is cut")
    func deep() {
        var value: Logger.MetadataValue = "end"
        for _ in 0..<1000 { value = ["d": value] }
        var list: Logger.MetadataValue = "end"
        for _ in 0..<1000 { list = .array([list]) }
        #expect(Self.line("m", ["k": value, "l": list], .json).utf8.count < 300)
    }

    @Test("Times are written as RFC 3339, whatever time was written before")
    func times() {
        var clock = LogClock()
        let seconds: [Int64] = [
            0, 1, -1, 1_795_218_900, 1_795_218_900, 1_795_218_901, 253_402_300_799, 253_402_300_800,
        ]
        for second in seconds + seconds.reversed() {
            for fraction: Int64 in [0, 1, 20, 300, 999] {
                let time = Timestamp(milliseconds: second * 1000 + fraction)
                var line: [UInt8] = []
                clock.append(time, to: &line)
                #expect(String(decoding: line, as: UTF8.self) == time.rfc3339)
            }
        }
    }

    @Test("A text is cut between characters")
    func cut() {
        #expect(LogText.cut("äöü", limit: 5) == "äö…")
        #expect(LogText.cut("äöü", limit: 6) == "äöü")
        #expect(LogText.quoted("ab\"c", limit: 3) == "\"ab…\"")
    }
}
