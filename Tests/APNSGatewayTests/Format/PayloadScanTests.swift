import Foundation
import Testing

@testable import APNSGateway
@testable import GatewayPool

@Suite("The scan of another program's payload")
struct PayloadScanTests {
    private static func scan(_ text: String) -> PayloadScan? {
        Array(text.utf8).withUnsafeBytes { PayloadScan($0) }
    }

    private static let good = [
        "{}", #" { "aps" : { } } "#,
        #"{"aps":{"alert":"x","badge":1,"sound":"default"},"a":[1,-2.5e+3,0,true,false,null]}"#,
        #"{"aps":{"content-available":1}}"#, #"{"text":"\u00e4\ud83d\ude00 \" \\ \/ \b\f\n\r\t","ü":"ü😀"}"#,
        #"{"a":{"b":{"c":[[[{}]]]}},"d":0.1,"e":1E5}"#,
        #"{"aps":{"alert":{"title":"t","body":"b"}},"aps2":{"sound":1}}"#,
    ]

    @Test("An object is accepted, whatever it contains", arguments: good)
    func object(text: String) {
        #expect(Self.scan(text) != nil)
    }

    @Test(
        "Text that is no JSON object is rejected",
        arguments: [
            "", " ", "[]", "1", #""text""#, "null", "{", "}", #"{"a"}"#, #"{"a":}"#, #"{"a":1,}"#, #"{"a":1}}"#,
            #"{"a":1} x"#,
            #"{a:1}"#, #"{'a':1}"#, #"{"a":01}"#, #"{"a":+1}"#, #"{"a":1.}"#, #"{"a":.5}"#, #"{"a":1e}"#, #"{"a":-}"#,
            #"{"a":[1,]}"#, #"{"a":[1 2]}"#, #"{"a":tru}"#, #"{"a":"x}"#, #"{"a":"\x"}"#, #"{"a":"\u12"}"#,
            #"{"a":"\ud83d"}"#, #"{"a":"\ud83dx"}"#, #"{"a":"\ude00"}"#, "{\"a\":\"\u{01}\"}", "{\"a\":\"\n\"}",
            "\u{FEFF}{}",
            #"{"a":"\"#, #"{"a":"\u"#, #"{"a":nul"#, #"{"a":1"#, #"{"a":[1"#,
        ])
    func noObject(text: String) {
        #expect(Self.scan(text) == nil)
    }

    @Test("Bytes that are not UTF-8 are no JSON")
    func noUTF8() {
        for bytes: [UInt8] in [[0xFF], [0xC3], [0xED, 0xA0, 0x80], [0xC0, 0x80]] {
            let text = Array(#"{"a":""#.utf8) + bytes + Array(#""}"#.utf8)
            #expect(text.withUnsafeBytes { PayloadScan($0) } == nil)
        }
    }

    @Test(
        "The scan distinguishes a payload that only wakes the app from a visible one",
        arguments: [
            (#"{"aps":{"content-available":1}}"#, true), (#"{"aps":{"content-available":1},"alert":"x"}"#, true),
            (#"{"aps":{"content-available":1,"category":"alert"}}"#, true),
            (#"{"aps":{"content-available":1,"alert":"x"}}"#, false),
            (#"{"aps":{"content-available":1,"badge":0}}"#, false),
            (#"{"aps":{"sound":"","content-available":1}}"#, false), (#"{"aps":{"alert":"x"}}"#, false), ("{}", false),
            (#"{"content-available":1}"#, false), (#"{"x":{"aps":{"content-available":1}}}"#, false),
            (#"{"aps":{"x":{"content-available":1}}}"#, false), (#"{"aps":[{"content-available":1}]}"#, false),
            (#"{"aps":{"content-available":1,"x":{"alert":"y"}}}"#, true),
        ])
    func background(text: String, isBackground: Bool) {
        #expect(Self.scan(text)?.isBackground == isBackground)
    }

    @Test("Nesting is limited, so that it does not exhaust the stack")
    func depth() {
        func nested(_ depth: Int) -> String {
            #"{"a":"# + String(repeating: "[", count: depth) + String(repeating: "]", count: depth) + "}"
        }
        #expect(Self.scan(nested(500)) != nil)
        #expect(Self.scan(nested(600)) == nil)
        #expect(Self.scan(String(repeating: #"{"a":"#, count: 100_000)) == nil)
    }

    /// Compares with Foundation's reader: valid documents with random bytes changed, removed and inserted.
    @Test("The scan agrees with another reader on thousands of broken documents")
    func mutations() throws {
        var random = Numbers(state: 42)
        let marks = Array(#"{}[]",:\u0123eE+-. tfnx"#.utf8) + [0x00, 0x1F, 0x80, 0xC3, 0xFF]
        var accepted = 0
        for round in 0..<6000 {
            var bytes = Array(Self.good[round % Self.good.count].utf8)
            for _ in 0...Int.random(in: 0..<3, using: &random) {
                let place = Int.random(in: 0..<bytes.count, using: &random)
                let mark = marks.randomElement(using: &random) ?? 0
                switch Int.random(in: 0..<3, using: &random) {
                case 0: bytes[place] = mark
                case 1: bytes.remove(at: place)
                default: bytes.insert(mark, at: place)
                }
                if bytes.isEmpty { bytes = [0x7B] }
            }
            // With a zero among the first bytes Foundation would decode UTF-16.
            guard !bytes.prefix(4).contains(0) else { continue }
            let judged = (try? JSONSerialization.jsonObject(with: Data(bytes))) is [String: Any]
            let scanned = bytes.withUnsafeBytes { PayloadScan($0) } != nil
            let text = String(decoding: bytes, as: UTF8.self)
            // Foundation accepts a comma before a closing bracket, which RFC 8259 does not allow.
            if judged, !scanned, text.contains(#/,\s*[}\]]/#) { continue }
            #expect(scanned == judged, "\(text)")
            accepted += scanned ? 1 : 0
        }
        #expect(accepted > 500)
    }

    /// A random number generator whose numbers are the same in every run.
    private struct Numbers: RandomNumberGenerator {
        var state: UInt64

        mutating func next() -> UInt64 {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return state ^ (state >> 33)
        }
    }
}
