"""Two browsers and a phone chat through a restart and an outage."""
import json, signal

from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import (
    lose_network, leave, choose, PHONE, RELAY, browsers, accessible, browser, click, control, enter, find, fits, form, picture, quiet, say,
    start_again, texts,
)


MARKUP = [
    "<script>document.title='hacked'</script>", "<img src=x onerror=\"document.title='hacked'\">", "\"><svg onload=alert(1)>",
    "javascript:alert(1)", "&lt;b&gt;", "{{constructor.constructor('alert(1)')()}}", "\u202eevil\u202c ok", "\u2066\u200fok",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea", "a" + "\u0301" * 94, "line\nline", "<!--", "]]>",
]


def play(relay):
    room = "kitchen & <b>"
    alice, bob = browser(), browser(PHONE, dark=True)
    alice.get(RELAY + "/")
    accessible(alice, "login")
    picture(alice, "login-light")
    bob.get(RELAY + "/")
    for code, warns in (("short", True), (" room-12 ", True), ("not so short", False), ("", False)):
        bob.execute_script(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", find(bob, "code"), code)
        check(f"a warning for {code!r}: {warns}", find(bob, "code-warning").is_displayed() == warns)
    picture(bob, "login-dark-phone")
    fits(bob, "login on a phone")
    enter(alice, "Alice", room)
    until("an empty room offers to invite", lambda: find(alice, "empty-invite").is_displayed())
    picture(alice, "empty-light")
    check("the room is in the header", find(alice, "room").text == room)
    check("and the code is not in the address", "#" not in alice.current_url, alice.current_url)

    # The link of the invitation leaves only the name to enter.
    choose(alice, "invite")
    link = find(alice, "link").get_attribute("value")
    check("the invitation has a link and a picture", "#code=" in link and texts(alice, "#qr svg path") != [], link)
    picture(alice, "invite-light")
    accessible(alice, "invitation")
    find(alice, "close").click()
    bob.get("about:blank")
    bob.get(link)
    check("the link fills in the code", find(bob, "code").get_attribute("value") == room)
    check("the page names the room, and asks only for a name", room in find(bob, "invited").text
          and not find(bob, "code").is_displayed())
    picture(bob, "invited-dark-phone")
    find(bob, "name").send_keys("Bob" + Keys.ENTER)
    until("the invited member is in the room", lambda: find(bob, "chat").is_displayed())
    phone, carol = "c" * 64, "c" * 40
    form(cmd="join", udid=carol, token=phone, name="Carol", code=room)
    until("all are counted", lambda: find(alice, "members").text == "3 members" and find(bob, "members").text == "3 members")

    say(alice, "Coffee is ready")
    until("each browser shows the other's messages", lambda: texts(bob) == ["Coffee is ready"])
    until("once, and also its own", lambda: texts(alice) == ["Coffee is ready"] and not texts(alice, "#outbox li"))
    until("and the phone is pushed to", lambda: any(
        json.loads(n["payload"])["aps"]["alert"] == "Alice: Coffee is ready" and n["token"] == phone
        for n in control("GET", "/notifications")["notifications"]))
    form(cmd="message", udid=carol, text="From the phone")
    for driver in (alice, bob):
        until("browsers show the phone's message", lambda: texts(driver) == ["Coffee is ready", "From the phone"])
    check("with whose it is", texts(alice, "#log .name") == ["Carol"], texts(alice, "#log .name"))
    sides = alice.execute_script(
        """
        const middle = document.getElementById("log").getBoundingClientRect();
        return [...document.querySelectorAll("#log .bubble")].map(
          (bubble) => bubble.getBoundingClientRect().left > middle.left + middle.width / 2)""")
    check("own to the right, others to the left", sides == [True, False], sides)

    # Use only the keyboard.
    field = find(bob, "text")
    field.send_keys("Two" + Keys.SHIFT + Keys.ENTER + Keys.NULL + "lines")
    check("Shift and Enter break the line", field.get_attribute("value") == "Two\nlines", field.get_attribute("value"))
    field.send_keys(Keys.ENTER)
    until("Enter sends", lambda: texts(alice)[-1] == "Two\nlines")
    say(bob, "é" * 95)
    until("190 bytes are accepted", lambda: texts(alice)[-1] == "é" * 95)
    say(bob, "é" * 96)
    check("191 are not: they stay, and are counted", find(bob, "left").text == "2 bytes too many" and not find(bob, "send").is_enabled())
    bob.execute_script("arguments[0].value = ''; arguments[0].dispatchEvent(new Event('input'))", field)

    for text in MARKUP:
        say(alice, text)
        until(f"harmless: {text[:30]!r}", lambda: texts(bob)[-1] == text.strip())
    check("no script of a message has run", bob.title.endswith("PushChat") and alice.title.endswith("PushChat"), bob.title)
    height = bob.execute_script(
        "return Math.max(...[...document.querySelectorAll('#log .bubble')].map((b) => b.getBoundingClientRect().height))")
    check("a tower of accents stays in its bubble", height < 260, height)
    fits(bob, "chat on a phone")
    fits(alice, "chat")
    for driver in (alice, bob):
        check("the list scrolls, not the page", driver.execute_script("""
            const list = document.getElementById("scroll");
            return list.scrollHeight > list.clientHeight && document.documentElement.scrollHeight <= innerHeight"""))
    accessible(alice, "chat")
    accessible(bob, "chat in the dark")

    # The relay is killed and restarted.
    relay.send_signal(signal.SIGKILL)
    relay.wait()
    say(alice, "Are you there?")
    until("a message that could not be sent stays and is marked", lambda: "Not sent" in "".join(texts(alice, "#outbox .problem")))
    picture(alice, "unsent-light")
    relay = start_again()
    form(cmd="message", udid=carol, text="While you were away")
    for driver in (alice, bob):
        until("the unsent message is sent by itself", lambda: sorted(texts(driver)[-2:]) == ["Are you there?", "While you were away"])
    until("and waits no more", lambda: not texts(alice, "#outbox li"))

    # The network goes offline and comes back.
    for offline in (True, False):
        lose_network(bob, offline)
        if offline:
            until("the page says that it is offline", lambda: "offline" in find(bob, "status").text)
            form(cmd="message", udid=carol, text="Said meanwhile")
    until("back online no message is missing", lambda: texts(bob)[-1] == "Said meanwhile")
    until("nor with the other", lambda: texts(alice)[-1] == "Said meanwhile")
    check("and nothing is double", texts(bob) == texts(alice), (texts(bob), texts(alice)))
    before = texts(bob)
    bob.refresh()
    until("a reload shows the same", lambda: texts(bob) == before)
    picture(alice, "chat-light")
    picture(bob, "chat-dark-phone")

    # Without a relay the page opens from the service worker.
    until("the worker is active", lambda: bob.execute_async_script(
        "const done = arguments[0]; navigator.serviceWorker.ready.then((r) => done(!!r.active))"))
    bob.refresh()
    until("it has the page", lambda: bob.execute_script("return !!navigator.serviceWorker.controller"))
    relay.send_signal(signal.SIGTERM)
    relay.wait()
    bob.refresh()
    until("the page opens without the relay", lambda: texts(bob) == before)
    relay = start_again()
    say(bob, "Back again")
    until("and goes on with it", lambda: texts(alice)[-1] == "Back again")

    leave(bob)
    until("a member that leaves sees the login form", lambda: find(bob, "login").is_displayed())
    until("and is not counted", lambda: find(alice, "members").text == "2 members")
    check("the page is clean after it", texts(bob) == [])
    quiet(alice, "chat")
    return relay
