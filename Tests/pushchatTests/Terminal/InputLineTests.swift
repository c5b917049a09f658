import Testing

@testable import pushchat

@Suite("Lines of standard input") struct InputLineTests {
    @Test("Bytes become lines, whatever pieces they arrive in", arguments: [1, 3, 100])
    func pieces(size: Int) {
        let bytes = Array("one\r\n\nzwölf\nlast".utf8)
        var splitter = LineSplitter()
        var lines: [InputLine] = []
        for start in stride(from: 0, to: bytes.count, by: size) {
            lines += splitter.read(Array(bytes[start..<min(start + size, bytes.count)]))
        }
        lines += splitter.end()
        #expect(lines == [.text("one"), .text(""), .text("zwölf"), .text("last")])
        #expect(splitter.end() == [])
    }

    @Test("A line that is too long or not UTF-8 is reported, and the next line is complete")
    func unusable() {
        var splitter = LineSplitter()
        let long = [UInt8](repeating: 0x61, count: LineSplitter.maxLine + 1)
        #expect(
            splitter.read(long + Array("\nnext\n".utf8) + [0xFF, 0x0A])
                == [.unusable("it has more than 65536 bytes"), .text("next"), .unusable("it is not UTF-8")])
    }

    @Test(
        "A line can be typed and edited",
        arguments: [
            ("hello\n", "hello"), ("hellp\u{7F}o\r", "hello"), ("ä\u{08}b\n", "b"), ("👩‍👩‍👧\u{7F}x\n", "x"),
            ("one two\u{17}three\n", "one three"), ("one two  \u{17}\n", "one "), ("nonsense\u{15}good\n", "good"),
            ("a\u{1B}[D\u{1B}[1;5Cb\u{1B}OA\u{1B}xc\n", "abc"), ("a\tb\u{01}c\u{04}\n", "a bc"),
        ])
    func editing(keys: String, expected: String) {
        // Type the keys all at once, as a paste does, and key by key.
        var (whole, single) = (LineEditor(), LineEditor())
        #expect(whole.type(Array(keys.utf8)) == [.text(expected)])
        #expect(keys.utf8.flatMap { single.type([$0]) } == [.text(expected)])
        #expect(!whole.hasEnded && whole.text.isEmpty)
    }

    @Test("Ctrl-D in an empty line is the end, and nothing after it counts")
    func end() {
        var editor = LineEditor()
        #expect(editor.type(Array("a\n\u{04}b\n".utf8)) == [.text("a")])
        #expect(editor.hasEnded)
    }

    @Test("The row shows the end of the line, and no control characters")
    func row() {
        var editor = LineEditor()
        _ = editor.type(Array("hello \u{9B}world".utf8))
        #expect(editor.shown(columns: 80) == "> hello  world")
        #expect(editor.shown(columns: 8) == "> world")
        #expect(editor.shown(columns: 1) == "> ")
        _ = editor.type(Array("日本".utf8))
        #expect(editor.shown(columns: 8) == "> d日本")
    }
}
