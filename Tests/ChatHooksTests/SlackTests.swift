import ChatDomain
import Testing

@testable import ChatHooks

@Suite("Messages in the shapes of Slack and Mattermost")
struct SlackTests {
    @Test(
        "Slack's markup becomes Markdown",
        arguments: [
            ("*bold* and _italic_ and ~gone~", "**bold** and _italic_ and ~~gone~~"),
            ("<https://example.com/a?b=1&amp;c=2|build 5> failed", "[build 5](https://example.com/a?b=1&c=2) failed"),
            ("see <https://example.com/a_b> *now*", "see <https://example.com/a_b> **now**"),
            ("*a* &lt;b&gt; &amp; c*d [x](y)", "**a** \\<b> & c\\*d \\[x\\](y)"),
            ("`a*b*` *c*", "`a*b*` **c**"),
            ("x```\na &lt; b\nc\n```y", "x  \n```\na < b\nc\n```\ny"),
            ("*a _b* c_", "**a _b** c_"),
            ("*one*\n*two*", "**one**  \n**two**"),
            ("*a <https://example.com/*|b>", "**a [b](https://example.com/*)**"),
            ("*a `b* c`", "**a `b* c`**"),
            ("*<https://example.com|x>*", "**[x](https://example.com)**"),
            ("*a *b c*", "**a \\*b c**"),
            (
                "*a*\r# b\r\n   - c\n1. d\n===\n&amp;lt;",
                "**a**  \n\\# b  \n\u{A0}\u{A0}\u{A0}- c  \n1\\. d  \n\\===  \n\\&lt;"
            ),
            (
                "<https://evil.example|https://bank.example>",
                "[https://bank.example (evil.example)](https://evil.example)"
            ),
            ("<https://evil.example|bank.example>", "[bank.example (evil.example)](https://evil.example)"),
            ("<https://www.bank.example/x|bank.example>", "[bank.example](https://www.bank.example/x)"),
            ("<https://a.example\\|b>", "[b](https://a.example%5C)"),
            ("<https://example.com/a(b)|[x]> *y*", "[\\[x\\]](https://example.com/a%28b%29) **y**"),
        ])
    func markup(mrkdwn: String, markdown: String) throws {
        let message = try #require(draft("slack", "\(JSONValue.object(["text": .string(mrkdwn)]))"))
        #expect(message.text == markdown && message.isMarkdown)
    }

    @Test(
        "A text without markup stays plain",
        arguments: [
            ("5 * 3 * 2 = 30, a_b_c, # x", "5 * 3 * 2 = 30, a_b_c, # x"),
            ("<!channel> <@U1|ann> <@U2> <#C1|tea>", "@channel @ann @U2 #tea"),
            ("a &lt; b &amp;&amp; c &amp;lt; d", "a < b && c &lt; d"), ("<!date^1796169600^{date}|2 Dec>", "2 Dec"),
            ("<https://example.com>", "https://example.com"), ("<mailto:a@example.com|a@example.com>", "a@example.com"),
            ("<javascript:alert(1)|click>", "click"), ("a < b and *c", "a < b and *c"), ("**", "**"), ("`", "`"),
            ("<>", "<>"),
        ])
    func plain(mrkdwn: String, text: String) throws {
        let message = try #require(draft("slack", "\(JSONValue.object(["text": .string(mrkdwn)]))"))
        #expect(message.text == text && !message.isMarkdown)
    }

    @Test("A program can turn markup off")
    func noMarkup() {
        let message = draft("slack", #"{"text":"*a* &amp; b","mrkdwn":false}"#)
        #expect(message?.text == "*a* & b" && message?.isMarkdown == false)
    }

    @Test("An attachment alone gives the title and the link")
    func attachment() throws {
        let body =
            #"{"channel":"x","username":"Alertmanager","attachments":[{"title":"[FIRING:1] DiskFull","title_link":"http://am.example/#/alerts","text":"*/srv* is full","fallback":"x","color":"danger","mrkdwn_in":["text"],"fields":[{"title":"Host","value":"<https://nas.example|nas>","short":true}],"footer":"am"}]}"#
        let message = try #require(draft("slack", body))
        #expect(message.title == "[FIRING:1] DiskFull" && message.link == "http://am.example/#/alerts")
        #expect(message.text == "**/srv** is full  \n**Host:** [nas](https://nas.example)  \nam" && message.isMarkdown)
        #expect(draft("slack", "", form: ["payload": body]) == message)
        #expect(draft("slack", #"{"attachments":[{"fallback":"only this"}]}"#)?.text == "only this")
    }

    @Test("Several attachments follow the text, with their titles as links")
    func attachments() {
        let body =
            #"{"text":"Two builds","attachments":[{"title":"One","title_link":"https://example.com/1"},{"pretext":"and","title":"Two","text":"done","image_url":"https://example.com/2.png"}]}"#
        #expect(
            draft("slack", body)?.text
                == "Two builds  \n[One](https://example.com/1)  \nand  \n**Two**  \ndone  \n<https://example.com/2.png>"
        )
    }

    @Test("Blocks: a header, sections with fields, contexts, buttons, rich texts")
    func blocks() throws {
        let body = #"""
            {"text":"fallback","blocks":[{"type":"header","text":{"type":"plain_text","text":"Deploy &amp; test"}},
             {"type":"section","text":{"type":"mrkdwn","text":"*web* is live"},"fields":[{"type":"mrkdwn","text":"*By*\nann"},{"type":"plain_text","text":"v*1*"}]},
             {"type":"divider"},{"type":"context","elements":[{"type":"image","image_url":"https://x"},{"type":"mrkdwn","text":"took 5 s"}]},
             {"type":"actions","elements":[{"type":"button","text":{"type":"plain_text","text":"Open"},"url":"https://example.com/d"}]},
             {"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"text","text":"a "},{"type":"text","text":"b","style":{"bold":true}},{"type":"link","url":"https://example.com","text":"c"},{"type":"emoji","name":"tea"}]},
              {"type":"rich_text_list","elements":[{"type":"rich_text_section","elements":[{"type":"text","text":"item"}]}]}]}]}
            """#
        let message = try #require(draft("slack", body))
        #expect(message.title == "Deploy & test")
        #expect(
            message.text
                == "**web** is live  \n**By**  \nann  \nv\\*1\\*  \ntook 5 s  \n[Open](https://example.com/d)  \na **b**[c](https://example.com):tea:  \n• item"
        )
    }

    @Test("Names of emoji that programs use become characters, except in code")
    func emoji() {
        #expect(
            draft("slack", #"{"text":":x: at 10:30:45 `:x:` :tada::rocket: :other: :"}"#)?.text
                == "❌ at 10:30:45 `:x:` 🎉🚀 :other: :")
        let attachment = #"{"attachments":[{"title":":fire: Down","text":":+1:"}]}"#
        #expect(draft("slack", attachment)?.title == "🔥 Down" && draft("slack", attachment)?.text == "👍")
    }

    @Test("Mattermost's texts are Markdown already")
    func mattermost() {
        let message = draft(
            "mattermost",
            #"{"text":"**b** [l](https://example.com) <https://example.com/x|y> <!here>","username":"ci","props":{}}"#)
        #expect(
            message?.text == "**b** [l](https://example.com) [y](https://example.com/x) @here"
                && message?.isMarkdown == true)
        #expect(draft("mattermost", #"{"text":"plain"}"#)?.isMarkdown == false)
    }

    @Test("Programs get the responses that Slack gives")
    func responses() throws {
        for name in ["slack", "mattermost"] {
            let format = try #require(HookFormats.named(name))
            let answer = format.accepted(HookRequest(body: []), message: 7)
            #expect(answer.status == 200 && answer.body == "ok" && answer.contentType?.hasPrefix("text/plain") == true)
            #expect(format.rateStatus == 429)
        }
        let refusal = SlackFormat.refused(.notFound("token"), status: 404)
        #expect(refusal == HookAnswer(text: "no_service", status: 404))
        #expect(
            read("slack", #"{"channel":"x"}"#)
                == .unreadable("the JSON has no text, no blocks and no attachments with a text"))
    }
}
