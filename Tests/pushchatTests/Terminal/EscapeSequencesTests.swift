import Testing

@testable import pushchat

@Suite("Escape sequences of terminals") struct EscapeSequencesTests {
    @Test(
        "Sequences disappear, and everything else stays",
        arguments: [
            ("plain [0m \t\n", "plain [0m \t\n"), ("\u{1B}[32mok\u{1B}[m", "ok"),
            ("\u{1B}[38;5;196mred\u{1B}[39m\u{1B}[K", "red"), ("\u{1B}[?25lhidden cursor\u{1B}[?25h", "hidden cursor"),
            ("\u{1B}]8;;https://example.org/\u{1B}\\link\u{1B}]8;;\u{1B}\\", "link"),
            ("\u{1B}]0;a window\u{7}text", "text"), ("\u{1B}Pq#0\u{1B}\\picture", "picture"),
            ("\u{1B}(B\u{1B}=\u{1B}7a\u{1B}8", "a"), ("\u{1B}\u{1B}[1mbold", "bold"),
            // Broken sequences take as little with them as possible.
            ("\u{1B}]0;no end\nnext", "\nnext"), ("\u{1B}größer", "rößer"), ("\u{1B}[3ünf", "ünf"), ("a\u{1B}", "a"),
            ("a\u{1B}[", "a"),
        ])
    func removed(text: String, expected: String) {
        #expect(text.withoutEscapeSequences == expected)
    }
}
