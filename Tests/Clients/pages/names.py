"""Names that try to change what is around them, or to look like a program."""
import json, urllib.parse

from checks import check, until
from pages.helper import ADMIN, admin_call, browser, choose, enter, find, form, look_up, operator, picture, quiet, say, sure, texts

OVERRIDE, POP, ISOLATE_END = "\u202e", "\u202c", "\u2069"
HEBREW = "\u05d3\u05e0\u05d4"
CODE = "a room of tricks"


def play(relay):
    driver = browser()
    # Each name tries to reverse the text after it. The relay may remove the characters itself.
    for number, name in enumerate((f"Eve{' the Great' * 15}{OVERRIDE}", f"Mal{ISOLATE_END}{OVERRIDE}lory", HEBREW, "\u2699 Backup (program)")):
        form(cmd="join", udid=f"{number + 1:040x}", token=0, name=name, code=CODE)
    enter(driver, "Ada", CODE)
    until("all are in", lambda: find(driver, "members").text == "5 members")
    status, answer = admin_call("POST", "/v1/tokens", {"name": "backup", "scopes": ["post"]}, token=ADMIN)
    check("a program gets a token", status == 201, answer)
    for number in range(4):
        form(cmd="message", udid=f"{number + 1:040x}", text=f"from {number}")
    status, posted = admin_call("POST", "/v1/messages", {"room": CODE, "text": "from a program"}, token=answer["token"])
    check("the program posts", status < 300, posted)
    until("all messages are there", lambda: len(texts(driver)) == 5)

    def deceives(each):
        """Returns the characters on the page that change the direction of others, outside of balanced isolation."""
        return each.execute_script("""
            const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            const found = [];
            const isBad = (text) => /[\\u202a-\\u202e]/.test(text) || [...text].reduce((depth, one) =>
              depth < 0 ? depth : depth + (/[\\u2066-\\u2068]/.test(one) ? 1 : one === "\\u2069" ? -1 : 0), 0) !== 0;
            for (let node = walker.nextNode(); node; node = walker.nextNode()) {
              if (isBad(node.data) && !node.parentElement.closest(".bubble, script")) found.push(node.data);
            }
            return found""")

    check("a long name is cut, and the messages do not move sideways", driver.execute_script(
        "const { scrollWidth, clientWidth } = document.getElementById('scroll'); return scrollWidth <= clientWidth"))
    check("no name in the chat changes the direction of others", deceives(driver) == [], json.dumps(deceives(driver)))
    marked = driver.execute_script("""
        return [...document.querySelectorAll("#log .name")].filter((name) => name.querySelector("bdi + .program"))
          .map((name) => name.querySelector("bdi").textContent)""")
    check("only a program has a program's mark, outside of its name", marked == ["backup"], marked)
    squares = driver.execute_script("return [...document.querySelectorAll('#log .face.is-program')].length")
    check("and its face has a form that no member's has", squares == 1, squares)
    until("the list of rooms marks it, too", lambda: texts(driver, "#room-list [aria-current] .mark") == ["\u2699program"])
    picture(driver, "names-light")
    choose(driver, "show-people")
    until("the members are listed", lambda: len(texts(driver, "#people-list li")) == 5)
    check("no name in the list does", deceives(driver) == [], json.dumps(deceives(driver)))
    find(driver, "people-close").click()
    choose(driver, "show-search")
    find(driver, "search-text").send_keys("from\n")
    until("all messages are found", lambda: len(texts(driver, "#found li")) == 5)
    check("of which one is a program's", len(texts(driver, "#found .mark")) == 1)
    find(driver, "search-close").click()
    for name in ("text", "search-text", "name", "code", "app-name"):
        check(f"a field takes the direction of its text: {name}", driver.execute_script("""
            const [field, text] = [document.getElementById(arguments[0]), arguments[1]];
            return ["abc", text].map((each) => { field.value = each; return getComputedStyle(field).direction; })
              .concat(field.value = "")""", name, HEBREW) == ["ltr", "rtl", ""])
    say(driver, "hello")
    until("the member's own message is there", lambda: texts(driver)[-1] == "hello" and texts(driver, "#outbox li") == [])
    form(cmd="messages", udid=f"{3:040x}")
    until("a name from right to left stands isolated in a sentence", lambda: "".join(texts(driver, ".receipt"))
          .endswith("Read by \u2068" + HEBREW + "\u2069"))

    admin = operator()
    look_up(admin, "room", CODE)
    until("the operator finds the room", lambda: find(admin, "result").is_displayed())
    admin.execute_script("document.querySelector('#result table button, #result table a').click()")
    until("its members are listed", lambda: "Eve" in find(admin, "result").text)
    marks = texts(admin, "#result .mark")
    check("the operator sees one program's mark", marks == ["program"], marks)
    check("no name there changes the direction of others", deceives(admin) == [], json.dumps(deceives(admin)))
    picture(admin, "names-admin")
    quiet(driver, "names")
    quiet(admin, "names for the operator", 401)
    return relay
