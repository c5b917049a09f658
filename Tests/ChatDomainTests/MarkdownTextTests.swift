import ChatDomain
import Testing

@Suite("Markdown as plain text")
struct MarkdownTextTests {
    @Test(
        "Marks are gone, and the text stays",
        arguments: [
            ("Hello **bold** ~~gone~~ [a link](https://example.com)", "Hello bold gone a link"),
            ("*it* _it_ ***both*** __b__ **a*b*c**", "it it both b abc"),
            ("run `a *b*` or ``a`b``", "run a *b* or a`b"),
            (#"\> no quote, \*no mark\*, a\\b, 1\. x"#, #"> no quote, *no mark*, a\b, 1. x"#),
            ("broken  \nline\t\r\nend", "broken\nline\nend"),
            ("**over\ntwo** lines", "over\ntwo lines"),
            ("# A title\n### Another\n#none", "A title\nAnother\n#none"),
            ("- a\n* **b**\n  + c\n1. d", "- a\n- b\n  - c\n1. d"),
            ("> **a**\n> - b", "> a\n> - b"),
            ("a\n```swift\n  let a = **b**\n```\nc", "a\n  let a = **b**\nc"),
            ("~~~~\n~~~\n~~~~\nc", "~~~\nc"),
            ("- ```\n  code\n  ```\nc", "code\nc"),
            ("```\nno end *x*", "no end *x*"),
            ("| a | b |\n|---|:-:|\n| 1 | **2** |", "a | b\n1 | 2"),
            ("<https://a.example/x_y_z> and <a@b.example>", "https://a.example/x_y_z and a@b.example"),
            ("![a picture](https://a.example/p.png)", "a picture"),
            ("[](https://a.example)", "https://a.example"),
            (#"[a](https://a.example "title") [b](https://a.example/c_(d))"#, "a b"),
            ("[**a**, `b`](https://a.example)", "a, b"),
            ("**https://a.example/_x_/*y***, x", "https://a.example/_x_/*y*, x"),
            (#"“**a**” 中文**粗**体"#, "“a” 中文粗体"),
        ])
    func marks(markdown: String, plain: String) {
        #expect(MarkdownText.plain(markdown) == plain)
    }

    @Test(
        "Everything else stays unchanged",
        arguments: [
            "", "*", "**", "a", "2 * 3 * 4", "rm *.txt", "snake_case_name and __init", "**no end\n\nnew**", "a ~x~ ~~~",
            "[no](see this) [x] ](y) [a]( [b](c", "`` `", "a < b > c, <b>, <-", "https://a.example/_x_/*y*/z",
            "||hidden||", #"C:\Windows"#, "--- a", "- [ ] task", "a|b", "#", "😀 *", "&amp;", "日本", "\u{0}",
        ])
    func others(text: String) {
        #expect(MarkdownText.plain(text) == text)
    }

    /// A search from each mark to the end of the text would take hours.
    @Test(
        "Hostile texts end, and never grow", .timeLimit(.minutes(5)),
        arguments: [
            "[", "*", "`", "*a ", "_a*", "**a* ", "[](", #"[](a ""#, "[a](", "()[](", "![", "<a:", "> ", "- ", "~~a~~",
            "](",
            "\\", "|", "#", "[x](()", "``a`", "\n> ", "*\n",
        ])
    func hostile(unit: String) {
        let text = String(repeating: unit, count: 100_000 / unit.utf8.count)
        #expect(MarkdownText.plain(text).utf8.count <= text.utf8.count)
    }

    @Test("Runs of backticks with all lengths end")
    func runs() {
        let text = (1..<1000).map { String(repeating: "`", count: $0) }.joined(separator: "a")
        #expect(MarkdownText.plain(text) == text)
    }

    @Test("Only the notification of a message with the flag is plain, and its title and the stored text stay")
    func alert() throws {
        func alert(_ isMarkdown: Bool) throws -> ChatAlert {
            ChatAlert(
                nickname: try Nickname(parsing: "ci"),
                content: try MessageContent(
                    parsing: "**a**", title: "*b*", link: "https://a.example",
                    extras: MessageExtras(tags: ["x"], markdown: isMarkdown)),
                code: try SecretCode(parsing: "ops"), message: MessageID(1))
        }
        let (plain, raw) = (try alert(true).content, try alert(false).content)
        #expect(plain.text.text == "a" && raw.text.text == "**a**")
        #expect(plain.title == "*b*" && plain.link == raw.link && plain.extras.tags == ["x"])
    }
}
