import ChatDomain
import Testing

@testable import ChatHooks

@Suite("Messages in the shape of Discord")
struct DiscordTests {
    @Test("An embed alone gives the title and the link, and its fields stay")
    func embed() throws {
        let body =
            #"{"content":null,"embeds":[{"title":"Episode grabbed","url":"https://sonarr.example/s","description":"**Show** - 1x02","color":5814783,"author":{"name":"Sonarr"},"#
            + #""fields":[{"name":"Quality","value":"HD","inline":true},{"name":"Links","value":"[a](https://example.com)"}],"footer":{"text":"1.0"},"image":{"url":"https://example.com/i.png"}}],"username":"x"}"#
        let message = try #require(draft("discord", body))
        #expect(message.title == "Episode grabbed" && message.link == "https://sonarr.example/s" && message.isMarkdown)
        #expect(
            message.text
                == "Sonarr  \n**Show** - 1x02  \n**Quality:** HD  \n**Links:** [a](https://example.com)  \n<https://example.com/i.png>  \n1.0"
        )
        #expect(draft("discord", "--b", form: ["payload_json": body]) == message)
    }

    @Test("Several embeds follow the text")
    func embeds() {
        let body =
            #"{"content":"Two","embeds":[{"title":"One","url":"https://example.com/1"},{"title":"Next","description":"x"}]}"#
        #expect(draft("discord", body)?.text == "Two  \n[One](https://example.com/1)  \n**Next**  \nx")
    }

    @Test("Times, mentions and emoji become words, and a text without markup stays plain")
    func words() throws {
        let message = try #require(
            draft(
                "discord",
                #"{"content":"<:t:5> <@1> <@!2> <@&3> <#4> <:tea:5> <a:cup:6> <t:1796169600:R> <t:99999999999999:R> <x> a_b <:> <:a> <:1> <t:> <a:b> <a:1>","flags":4096}"#
            ))
        #expect(
            message.text
                == ":t: @1 @2 @3 #4 :tea: :cup: 2026-12-02 00:00 UTC <t:99999999999999:R> <x> a_b <:> <:a> <:1> <t:> <a:b> <a:1>"
        )
        #expect(message.urgency == .quiet)
        let plain = try #require(draft("discord", #"{"content":"just a text: 5 - 3"}"#))
        #expect(plain.text == "just a text: 5 - 3" && !plain.isMarkdown && plain.urgency == .usual)
        #expect(read("discord", #"{"embeds":[]}"#) == .unreadable("the JSON has no content and no embeds with a text"))
    }

    @Test("Images become links, HTML stays text, and a label that looks like another address shows the host")
    func harmless() {
        func text(_ content: String) -> String? {
            draft("discord", "\(JSONValue.object(["content": .string(content)]))")?.text
        }
        #expect(text("![x](https://evil.example/p.png)") == "[x](https://evil.example/p.png)")
        #expect(
            text("*a* <img src=x> `List<String>` <https://a.example>")
                == "*a* \\<img src=x> `List<String>` <https://a.example>")
        #expect(
            text("[https://bank.example/login](https://evil.example)")
                == "[https://bank.example/login (evil.example)](https://evil.example)")
        #expect(text("[www.bank.example](https://bank.example)") == "[www.bank.example](https://bank.example)")
        #expect(text("[build 5.2](https://ci.example)") == "[build 5.2](https://ci.example)")
        #expect(text("[x]: https://evil.example") == "[x\\]: https://evil.example")
    }

    @Test("Scripts send a form, and some programs a file without a text")
    func forms() {
        #expect(draft("discord", "content=hi", form: ["content": "hi"])?.text == "hi")
        let file = "--b\r\nContent-Disposition: form-data; name=\"file0\"; filename=\"a.png\"\r\n\r\nx\r\n--b--"
        #expect(read("discord", file, form: ["username": "x"]) == .ignored("a file without a text"))
    }

    @Test("Programs get the responses that Discord gives")
    func responses() throws {
        let request = HookRequest(query: ["wait": "true"], body: [])
        #expect(DiscordFormat.accepted(HookRequest(body: []), message: 7) == HookAnswer(status: 204))
        let message = DiscordFormat.accepted(request, message: 7)
        #expect(message.status == 200)
        #expect(try JSONValue(parsing: message.body).object?["id"] == .string("7"))
        let hook = try #require(DiscordFormat.described("Sonarr"))
        #expect(try JSONValue(parsing: hook.body).object?["name"] == .string("Sonarr"))
        let late = ChatError(.tooManyRequests, "Slow down", retryAfter: .seconds(3))
        #expect(
            DiscordFormat.refused(late, status: 429)?.body
                == #"{"message":"Slow down","code":0,"retry_after":3,"global":false}"#)
        #expect(DiscordFormat.refused(.notFound("hook"), status: 404)?.body.contains("10015") == true)
    }
}
