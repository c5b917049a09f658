"""Messages in Markdown: elements in place of marks, links that hide nothing, and no mark in the list of rooms."""
from checks import check, until
from pages.helper import DESKTOP, PHONE, accessible, admin_call, browser, enter, find, fits, picture, quiet, texts

ROOM = "builds"
SPOKEN = " (opens a new tab)"
TEXT = r"""## Build 7 **failed**  
*main* by _Ada_, ~~green~~: see [the log](https://ci.example/7?a=1\_2) or <https://ci.example/x_y_z>.

- `make *test*` ended with 2
- [https://bank.example](https://evil.example/)
  1. nested

> **quoted**
> \- as it was

```swift
let a = "**b**"
<img src=x onerror=alert(1)>
```
![a picture](https://ci.example/p.png) [no](javascript:alert\(1\)) 2 * 3 \*raw\* <b>html</b>"""


def play(relay):
    drivers = [browser(), browser(PHONE, dark=True), browser(PHONE), browser(DESKTOP, dark=True)]
    for each, name in zip(drivers, ("Ada", "Ben", "Cleo", "Dan")):
        enter(each, name, ROOM)
        until("and has a stream", lambda: find(each, "members").text.strip())

    def post(text, **fields):
        status, answer = admin_call("POST", "/v1/messages", {"room": ROOM, "name": "ci", "text": text, **fields})
        check("a program posts", status == 201, answer)

    post("**no flag**, [no](https://link.example)")
    post(TEXT, title="*Title*", markdown=True)
    post("**Last**: [one](https://ci.example/1)\nmore", markdown=True)
    for each in drivers:
        until("the messages are there", lambda: len(texts(each)) == 3)
        check("without the flag, a text stays as it is", texts(each)[0].startswith("**no flag**, [no](https://link.example"), texts(each)[0])

        def shown(selector):
            return texts(each, "#log .formatted " + selector)

        for selector, wanted in {
            "p > strong": ["Build 7 failed", "quoted", "Last"], "em": ["main", "Ada"], "del": ["green"],
            "code": ["make *test*"], "ul > li > ol > li": ["nested"], "blockquote": ["quoted\n- as it was"],
            "pre": ['let a = "**b**"\n<img src=x onerror=alert(1)>'], "img": [], "script": [],
        }.items():
            check(f"{selector} has its text", shown(selector) == wanted, shown(selector))
        links = each.execute_script("""return [...document.querySelectorAll("#log .formatted a")]
            .map((each) => [each.textContent, each.href, each.rel, each.nextElementSibling?.matches(".link-host") ? each.nextElementSibling.textContent : ""])""")
        rel = "noopener noreferrer"
        check("links are web addresses, and show their host", links == [
            ["the log" + SPOKEN, "https://ci.example/7?a=1_2", rel, " (ci.example)"],
            ["https://ci.example/x_y_z" + SPOKEN, "https://ci.example/x_y_z", rel, ""],
            ["https://bank.example" + SPOKEN, "https://evil.example/", rel, " (evil.example)"],
            ["a picture" + SPOKEN, "https://ci.example/p.png", rel, " (ci.example)"],
            ["one" + SPOKEN, "https://ci.example/1", rel, " (ci.example)"]], links)
        check("everything else is text", shown("p")[-2].endswith("[no](javascript:alert(1)) 2 * 3 *raw* <b>html</b>"), shown("p"))
        check("the list of rooms shows no marks", texts(each, "#room-list .last-line")[0].endswith("ci: Last: one\nmore"),
              texts(each, "#room-list .last-line"))
    for each, name in zip(drivers, ("light", "dark-phone", "light-phone", "dark")):
        accessible(each, "messages in Markdown, " + name)
        picture(each, "chat-markdown-" + name)
    for each in drivers[1:3]:
        fits(each, "messages in Markdown, on a phone")
    hostile = ["[" * 3900, "*a " * 1300, "[](" * 1300, "> " * 1900, "- " * 1900, "**a* " * 700, "`" * 3900]
    for text in hostile:
        post(text, markdown=True)
    until("the page stays quick with a hostile text", lambda: len(texts(drivers[0])) == 3 + len(hostile))
    quiet(drivers[0], "messages in Markdown")
    return relay
