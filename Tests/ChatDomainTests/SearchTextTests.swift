import ChatDomain
import Testing

@Suite("Search texts")
struct SearchTextTests {
    @Test(
        "Upper and lower case are alike in all scripts, and so are composed and decomposed accents",
        arguments: [
            ("TEA", "more tea, please"), ("tea", "MORE TEA"), ("ÄPFEL", "drei äpfel"), ("straße", "IN DER STRASSE"),
            ("ΟΔΟΣ", "η οδος είναι"), ("привет", "ПРИВЕТ, мир"), ("գիրք", "ԳԻՐՔ"), ("ᲥᲐᲠᲗᲣᲚᲘ", "ქართული"),
            ("\u{1F12}", "Ἒ"), ("𐐀", "𐐨"), ("caf\u{E9}", "CAFE\u{301}"), ("cafe\u{301}", "caf\u{C9}s"), ("日本", "東日本大"),
            ("🍲", "dinner 🍲?"), ("aab", "aaab"), ("é", "e é"),
        ])
    func found(text: String, message: String) throws {
        #expect(try SearchText(parsing: text).isFound(in: message))
    }

    @Test(
        "Other texts are not found",
        arguments: [
            ("tea", "te a"), ("cafe", "café"), ("cafe", "cafe\u{301}"), ("tea", ""), ("teas", "tea"), ("é", "e"),
            ("日本", "日 本"), ("ab", "ba"),
        ])
    func missed(text: String, message: String) throws {
        #expect(try !SearchText(parsing: text).isFound(in: message))
    }

    @Test("A search also looks at a program's title")
    func title() throws {
        #expect(try SearchText(parsing: "TITLE").isFound(inText: "text", title: "The Title"))
        #expect(try SearchText(parsing: "TEXT").isFound(inText: "text", title: "The Title"))
        #expect(try !SearchText(parsing: "TITLE").isFound(inText: "text", title: nil))
    }

    @Test("A search text has limits", arguments: ["", " ", "a\u{1}", String(repeating: "x", count: 256)])
    func refused(text: String) {
        #expect(throws: ChatError.self) { try SearchText(parsing: text) }
    }

    @Test("A text that nearly repeats itself takes one step for each byte")
    func costly() throws {
        let text = try SearchText(parsing: String(repeating: "a", count: 254) + "b")
        let message = String(repeating: "a", count: 100_000)
        for _ in 1...20 { #expect(!text.isFound(in: message)) }
        #expect(text.isFound(in: message + "B"))
    }
}
