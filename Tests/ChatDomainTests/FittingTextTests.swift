import ChatDomain
import Testing

@Suite("Texts of other programs are fitted into the limits")
struct FittingTextTests {
    @Test(
        "A long text ends after a whole character",
        arguments: [
            ("0123456789", 10, "0123456789"), ("01234567890", 10, "0123456…"), ("ääääää", 10, "äää…"),
            ("a👩🏽‍🚀👩🏽‍🚀", 20, "a👩🏽‍🚀…"), ("a👩🏽‍🚀👩🏽‍🚀", 10, "a…"),
            ("e\u{301}\u{302}\u{303}\u{304}\u{305}", 10, "e\u{301}\u{302}\u{303}…"),
            ("", 10, ""),
        ])
    func long(text: String, limit: Int, fitting: String) {
        let result = FieldText.fitting(text, limit: limit)
        #expect(Array(result.unicodeScalars) == Array(fitting.unicodeScalars) && result.utf8.count <= limit)
    }

    @Test("Control characters become spaces, and lines stay if the field may have some")
    func controls() {
        let text = "a\tb\nc\rd\u{0}e\u{1B}[0m\u{85}f"
        #expect(FieldText.fitting(text, limit: 100) == "a\tb\nc\rd e [0m f")
        #expect(FieldText.fitting(text, limit: 100, keepsLines: false) == "a b c d e [0m f")
    }
}
