import ChatDomain
import Testing

/// Swift compares and composes texts by their normal forms, in a time that grows with the square of a run of combining
/// marks. Each of these cases takes minutes if the length is not checked first.
@Suite("Long runs of combining marks cost nothing", .timeLimit(.minutes(1)))
struct CostlyTextTests {
    /// Returns a text with two combining marks, repeated, whose order the normal form changes.
    private static func marks(_ bytes: Int) -> String { "a" + String(repeating: "\u{301}\u{323}", count: bytes / 4) }

    @Test("The length of a field is checked before its text is composed")
    func fields() throws {
        let long = Self.marks(64 * 1024)
        for _ in 0..<60 {
            let errors = [
                #expect(throws: ChatError.self) { try SecretCode(parsing: long) },
                #expect(throws: ChatError.self) { try UserReference(parsing: long) },
                #expect(throws: ChatError.self) { try Tag(parsing: long) },
                #expect(throws: ChatError.self) { try Nickname(parsing: long) },
                #expect(throws: ChatError.self) { try MessageText(parsing: long) },
            ]
            #expect(errors.allSatisfy { $0?.message.contains("must have at most") == true })
        }
    }

    @Test("A code that fits only after composition is accepted")
    func composing() throws {
        let decomposed = String(repeating: "u\u{308}\u{304}", count: 127)
        #expect(decomposed.utf8.count > 2 * SecretCode.longest)
        #expect(try SecretCode(parsing: decomposed).text.utf8.elementsEqual(String(repeating: "ǖ", count: 127).utf8))
        #expect(throws: ChatError.self) { try SecretCode(parsing: decomposed + "xy") }
    }

    @Test("Members of a JSON object are compared and looked up as they were written")
    func json() throws {
        let long = Self.marks(500_000)
        let object = try #require(
            JSONValue(parsing: "{\"\(long)\":1,\"\(long)x\":2,\"é\":3,\"e\u{301}\":4,\"to\":\"\(long)\"}").object)
        #expect(object.members.count == 5)
        for _ in 0..<100 { #expect(object["alert"] == nil) }
        #expect(object["é"] == .number(3) && object["to"]?.text?.utf8.count == long.utf8.count)
        #expect(throws: JSONValue.Malformed.self) { try JSONValue(parsing: "{\"\(long)\":1,\"\(long)\":2}") }
    }

    @Test("The lengths of a notification's times and texts are checked first")
    func notification() throws {
        let long = Self.marks(400_000)
        for field in ["push_type", "category", "thread_id", "collapse_id", "expiration", "not_before"] {
            let error = #expect(throws: ChatError.self) {
                try NotificationContent(["alert": .string("x"), field: .string(long)], now: Timestamp(seconds: 0))
            }
            #expect(error?.field == field)
        }
        #expect(Timestamp(rfc3339: long) == nil)
    }
}
