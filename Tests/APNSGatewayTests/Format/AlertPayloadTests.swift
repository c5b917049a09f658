import ChatDomain
import Foundation
import Testing

@testable import APNSGateway
@testable import GatewayPool

@Suite("The payload of a chat message")
struct AlertPayloadTests {
    private static let threads = RoomThreads(secret: [UInt8](repeating: 1, count: 32))

    private func json(
        _ name: String, _ text: String, sound: String? = "default", limit: Int = 256, code: String = "room",
        naming message: MessageID? = nil, title: String? = nil, link: String? = nil
    ) throws -> String {
        let thread = message == nil ? nil : Self.threads.id(of: SecretCode(stored: code))
        return try AlertPayload(
            sound: sound, limit: limit, isForExtension: message != nil, room: thread, fields: [.threadID]
        ).json(
            ChatAlert(
                nickname: Nickname(stored: name), content: MessageContent(stored: text, title: title, link: link),
                code: SecretCode(stored: code), message: message ?? 1))
    }

    @Test("A program's message has a title above the text, and a link beside aps")
    func extras() throws {
        #expect(
            try json("cron", "done", naming: 7, title: "Backup \"srv\"", link: "https://example.org/x")
                == #"{"aps":{"alert":{"title":"Backup \"srv\"","body":"cron: done"},"sound":"default","#
                + #""thread-id":"983fa01a448c9385"},"message_id":7,"room_id":"983fa01a448c9385","sender":"cron","#
                + #""link":"https://example.org/x"}"#)
        #expect(
            try json("cron", "done", sound: nil, title: "T")
                == #"{"aps":{"alert":{"title":"T","body":"cron: done"}}}"#)
        #expect(
            try json("cron", "done", link: "https://example.org/")
                == #"{"aps":{"alert":"cron: done","sound":"default"},"link":"https://example.org/"}"#)
    }

    @Test("A name written from right to left is isolated, whole and shortened, and a program is marked")
    func directions() throws {
        #expect(
            try json("דנה", "1 + 1") == "{\"aps\":{\"alert\":\"\u{2068}דנה\u{2069}: 1 + 1\",\"sound\":\"default\"}}")
        let short = try json(String(repeating: "ד", count: 100), String(repeating: "t", count: 300))
        #expect(
            short.utf8.count <= 256 && short.contains("\u{2068}" + String(repeating: "ד", count: 10) + "\u{2069}: ttt"))
        let alert = ChatAlert(
            nickname: Nickname(stored: "cron"), content: MessageContent(stored: "x"), code: SecretCode(stored: "c"),
            message: 1,
            isOfProgram: true)
        let marked = try AlertPayload(limit: 4096, isForExtension: true).json(alert)
        #expect(marked.hasSuffix(#","sender":"cron","program":true}"#), "\(marked)")
    }

    @Test(
        "To fit, the payload loses first the end of the text, then the link, then the end of the title",
        arguments: [(20, 20, true, true), (20, 170, false, true), (255, 170, false, false), (255, 20, false, false)])
    func shortenedExtras(title: Int, link: Int, hasLink: Bool, hasTitle: Bool) throws {
        let heading = String(repeating: "T", count: title)
        let document = try json(
            "name", String(repeating: "t", count: 4000), title: heading,
            link: "https://" + String(repeating: "l", count: link))
        #expect(document.utf8.count <= 256)
        let object = try #require(try JSONValue(parsing: Array(document.utf8)).object)
        #expect((object["link"] != nil) == hasLink)
        let alert = try #require(object["aps"]?.object?["alert"]?.object)
        #expect((alert["title"]?.text == heading) == hasTitle)
        #expect((alert["body"]?.text?.count ?? 0) > 40)
    }

    @Test("It names room and message beside the text if required")
    func references() throws {
        #expect(
            try json("a", "b", naming: 42)
                == #"{"aps":{"alert":"a: b","sound":"default","thread-id":"983fa01a448c9385"},"message_id":42,"#
                + #""room_id":"983fa01a448c9385","sender":"a"}"#)
        #expect(
            try json("a", "b", sound: nil, naming: 7)
                == #"{"aps":{"alert":"a: b","thread-id":"983fa01a448c9385"},"message_id":7,"#
                + #""room_id":"983fa01a448c9385","sender":"a"}"#)
        #expect(try json("a", "b", code: "other", naming: 7) != json("a", "b", naming: 7))
    }

    @Test("In a small payload, the text takes the room of the parts that only today's systems use")
    func smallPayload() throws {
        let text = String(repeating: "t", count: 200)
        let fields = Set(ChatField.allCases)
        func document(_ limit: Int) throws -> String {
            try AlertPayload(limit: limit, isForExtension: true, room: "0123456789abcdef", fields: fields).json(
                ChatAlert(
                    nickname: Nickname(stored: "Ann"), content: MessageContent(stored: text),
                    code: SecretCode(stored: "room"), message: 7))
        }
        let small = try document(256)
        #expect(small.utf8.count == 256 && small.hasPrefix(#"{"aps":{"alert":"Ann: ttt"#))
        #expect(small.hasSuffix(#"…","sound":"default","thread-id":"0123456789abcdef"},"message_id":7}"#), "\(small)")
        let whole = try document(512)
        #expect(whole.contains(#"\#(text)","sound":"default""#) && whole.contains(#""sender":"Ann""#), "\(whole)")
    }

    @Test("A long text stays complete if it fits, and is otherwise cut to the byte", arguments: [3999, 4000, 4001])
    func fullLength(bytes: Int) throws {
        let frame = try json("a", "", limit: 4096, naming: 1).utf8.count
        let text = String(repeating: "t", count: bytes)
        let document = try json("a", text, limit: frame + 4000, naming: 1)
        #expect(document.contains("a: \(text)\"") == (bytes <= 4000))
        #expect(document.utf8.count == frame + min(bytes, 4000))
    }

    @Test("It equals the original server's byte for byte if nothing needs an escape")
    func goldenForm() throws {
        #expect(
            try json("SteveJ", "Hello, world!")
                == #"{"aps":{"alert":"SteveJ: Hello, world!","sound":"default"}}"#)
        let name = String(repeating: "n", count: 20)
        let text = String(repeating: "t", count: 190)
        let longest = try json(name, text)
        #expect(longest == #"{"aps":{"alert":"\#(name): \#(text)","sound":"default"}}"#)
        #expect(longest.utf8.count == 250)
    }

    @Test(
        "It stays valid JSON in the cases in which the original server broke it",
        arguments: [
            (String(repeating: "n", count: 19) + "\"", "hi"),
            ("n", String(repeating: "t", count: 189) + "\""),
            ("n", String(repeating: "t", count: 189) + "/"),
            ("n", "a" + String(repeating: "\"", count: 95)),
            ("n", String(repeating: "\\", count: 190)),
            ("\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"", String(repeating: "\n", count: 190)),
        ])
    func validWhereTheOriginalWasNot(name: String, text: String) throws {
        let document = try json(name, text)
        #expect(document.utf8.count <= 256)
        let alert = try alert(of: document)
        #expect(alert.hasPrefix(name) || alert.hasPrefix(JSONString.prefix(of: name, within: 20)))
    }

    @Test("It keeps a long text complete if the gateway accepts it")
    func unshortened() throws {
        let text = String(repeating: "long ", count: 100)
        #expect(try alert(of: json("n", text, limit: 2048)) == "n: " + text)
    }

    @Test("It does not escape slashes and text outside ASCII")
    func noWastefulEscapes() throws {
        #expect(try json("新年", "好/é🇳🇱").contains("新年: 好/é🇳🇱"))
    }

    @Test("It has another sound, or none")
    func sounds() throws {
        #expect(try json("n", "t", sound: "beep.caf") == #"{"aps":{"alert":"n: t","sound":"beep.caf"}}"#)
        #expect(try json("n", "t", sound: nil) == #"{"aps":{"alert":"n: t"}}"#)
    }

    @Test("A text of which nothing fits is an error, and not dropped")
    func nothingFits() {
        #expect(throws: ChatError.self) { try json("n", "text", sound: String(repeating: "s", count: 240)) }
    }

    /// A generator that repeats a run from its seed.
    private struct Random: RandomNumberGenerator {
        var state: UInt64
        mutating func next() -> UInt64 {
            state &+= 0x9E37_79B9_7F4A_7C15
            var z = state
            z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
            z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
            return z ^ (z >> 31)
        }
    }

    private static let pieces = [
        "a", "Z", " ", "\"", "\\", "/", "\n", "\r", "\t", "\u{08}", "\u{0C}", "\u{1B}", "\u{7F}", "é", "e\u{301}", "好",
        "🇳🇱", "👨‍👩‍👧‍👦", "😀", "\u{2028}", "\r\n", "ﷺ", "\u{301}", String(repeating: "\u{301}", count: 40),
    ]

    @Test("It keeps its invariants for random Unicode", arguments: 0..<40)
    func invariants(seed: Int) throws {
        var random = Random(state: UInt64(seed))
        for _ in 0..<50 {
            // A payload's name has no separator of lines: FieldTests shows that it loses them.
            let name = (0..<Int.random(in: 1...30, using: &random))
                .map { _ in Self.pieces.randomElement(using: &random) ?? "" }.filter { $0 != "\u{2028}" }.joined()
            let text = (0..<Int.random(in: 1...150, using: &random))
                .map { _ in Self.pieces.randomElement(using: &random) ?? "" }.joined()
            let limit = [256, 300, 2048].randomElement(using: &random) ?? 256
            let document = try json(name, text, limit: limit)
            #expect(document.utf8.count <= limit)
            #expect(try json(name, text, limit: limit) == document)
            let alert = try alert(of: document)
            // Compare scalars: String equality would hide a lost combining mark.
            let whole = Array((Nickname.isolated(name) + ": " + text).unicodeScalars)
            if Array(alert.unicodeScalars) == whole { continue }
            let shortName = Array(Nickname.isolated(JSONString.prefix(of: name, within: 20)).unicodeScalars)
            #expect(Array(alert.unicodeScalars.prefix { $0 != ":" }) == shortName)
            guard alert.unicodeScalars.last == "…" else {
                // Only the name was cut.
                #expect(Array(alert.unicodeScalars.suffix(text.unicodeScalars.count)) == Array(text.unicodeScalars))
                continue
            }
            let body = Array(alert.unicodeScalars.dropFirst(shortName.count + 2).dropLast())
            #expect(!body.isEmpty)
            #expect(Array(text.unicodeScalars.prefix(body.count)) == body, "a prefix of the text")
            var rest = String.UnicodeScalarView()
            rest.append(contentsOf: text.unicodeScalars.dropFirst(body.count))
            let next = try #require(String(rest).first)
            #expect(document.utf8.count + JSONString.escapedSize(String(next)) > limit, "no shorter than needed")
        }
    }

    @Test("Text is cut between characters, and inside one only if not even one fits")
    func cuts() {
        #expect(JSONString.prefix(of: "ae\u{301}x", within: 3) == "a")
        #expect(JSONString.prefix(of: "👨‍👩‍👧‍👦", within: 25) == "👨‍👩‍👧‍👦")
        #expect(JSONString.prefix(of: "👨‍👩‍👧‍👦", within: 24).unicodeScalars.count == 6)
        #expect(JSONString.prefix(of: "😀", within: 3) == "")
        #expect(JSONString.prefix(of: "\"\"", within: 3) == "\"")
    }

    private func alert(of document: String) throws -> String {
        let object = try JSONSerialization.jsonObject(with: Data(document.utf8)) as? [String: Any]
        let aps = try #require(object?["aps"] as? [String: Any])
        return try #require(aps["alert"] as? String)
    }
}
