"""Messages on the page: the newest stay in view, addresses are links, other rooms count live, Leave asks."""
from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import (
    PHONE, accessible, browser, choose, enter, find, fits, form, leave, picture, quiet, resize, say, texts,
)

AT_END = """
    const scroll = document.getElementById("scroll");
    return scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 2"""


def play(relay):
    long_code = "operations-of-the-old-mill-by-the-river"
    driver, phone = browser(), browser(PHONE)
    enter(driver, "Ada", long_code)
    enter(phone, "Ada", "harbour view")
    form(cmd="join", udid="b1" * 20, token=0, name="Ben", code="harbour view")
    form(cmd="join", udid="b2" * 20, token=0, name="Ben", code=long_code)
    for number in range(40):
        form(cmd="message", udid="b1" * 20, text=f"Message {number}\nwith two lines")
    until("all are there", lambda: len(texts(phone)) == 40)
    check("the newest are in view", phone.execute_script(AT_END))
    for width, height, what in ((390, 420, "a keyboard"), (844, 390, "a rotation"), (320, 500, "a small phone"), (390, 800, "a rotation back")):
        resize(phone, width, height)
        until(f"the newest messages stay in view: {what}", lambda: phone.execute_script(AT_END))
    settled = "return viewSize === sizeOfView() && innerWidth === arguments[0]"
    until("the page knows the new size", lambda: phone.execute_script(settled, 390))
    phone.execute_script("document.getElementById('scroll').scrollTop = 300")
    until("a member can scroll up", lambda: not phone.execute_script("return followsEnd"))
    resize(phone, 360, 844)
    until("the page knows the new size", lambda: phone.execute_script(settled, 360))
    check("and stays there", not phone.execute_script(AT_END))
    phone.execute_cdp_cmd("Emulation.setSafeAreaInsetsOverride", {"insets": {"left": 59, "right": 59, "bottom": 21}})
    resize(phone, 852, 393)
    check("on its side, the phone's camera covers nothing", phone.execute_script("""
        return [...document.querySelectorAll("#room-view :is(h1, button, textarea, .face, .box)")]
          .map((each) => each.getBoundingClientRect()).every(({ left, right, width }) => !width || left >= 59 && right <= innerWidth - 59)"""))
    picture(phone, "view-side")
    phone.execute_cdp_cmd("Emulation.setSafeAreaInsetsOverride", {"insets": {}})
    resize(phone, 360, 844)

    # Addresses in the text are links.
    cases = {
        "See https://example.org/a_(b)?x=1#y.": ["https://example.org/a_(b)?x=1#y"],
        "(http://example.org/x), and HTTPS://Example.org!": ["http://example.org/x", "HTTPS://Example.org"],
        "javascript:alert(1) ftp://example.org data:text/html,x https://": [],
        "https://bank.example@evil.example/": [],
        "https://example.org/\u202egpj.exe": ["https://example.org/"],
        "<https://example.org/?a=<b>": ["https://example.org/?a="],
    }
    for text, wanted in cases.items():
        made = phone.execute_script("""
            const bubble = bubbleOf({ text: arguments[0] });
            bubble.querySelectorAll(".only-spoken").forEach((each) => each.remove());
            return [bubble.textContent, ...[...bubble.querySelectorAll("a")].map((each) => each.textContent)]""", text)
        check(f"links in {text!r}", made == [text, *wanted], made)
    form(cmd="message", udid="b1" * 20, text="The tickets: https://example.org/tickets")
    until("a message has a link", lambda: texts(phone, "#log a"))
    made = phone.execute_script("""
        const { href, rel, target } = document.querySelector("#log a");
        return [href, rel, target]""")
    check("which learns nothing of the room", made == ["https://example.org/tickets", "noopener noreferrer", "_blank"], made)

    # Other rooms count live, even with a long code.
    choose(driver, "another")
    find(driver, "code").send_keys("harbour view" + Keys.ENTER)
    until("a second room is open", lambda: find(driver, "room").text == "harbour view")
    form(cmd="message", udid="b2" * 20, text="anyone?")
    until("another room counts within seconds", lambda: driver.title.startswith("(1) "), within=30)
    badge = driver.execute_script("""
        const badge = document.querySelector("#room-list .unread-count");
        const [own, around] = [badge, badge.closest("button")].map((each) => each.getBoundingClientRect());
        return own.width > 10 && own.left >= around.left && own.right <= around.right""")
    check("its badge is visible beside a long code", badge)
    fits(driver, "two rooms")
    picture(driver, "view-two-rooms")

    # Leave asks first.
    choose(driver, "leave")
    until("Leave asks", lambda: find(driver, "leaving").is_displayed())
    accessible(driver, "the question before a member leaves")
    picture(driver, "leave-light")
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    until("Enter stays", lambda: not find(driver, "leaving").is_displayed())
    check("and the member is in the room", find(driver, "room").text == "harbour view" and find(driver, "chat").is_displayed())
    choose(driver, "leave")
    until("Leave asks again", lambda: find(driver, "leaving").is_displayed())
    driver.execute_script("open(rooms[0])")  # As a click on a notification does.
    find(driver, "really-leave").click()
    until("it leaves the room that it named", lambda: driver.execute_script("return rooms.map((room) => room.code)") == [long_code])
    check("the other room is shown", find(driver, "room").text == long_code)

    # The invitation of this relay leads to localhost.
    choose(driver, "invite")
    until("an invitation says that only this computer can use it", lambda: find(driver, "only-here").is_displayed())
    find(driver, "close").click()
    quiet(driver, "the view")
    return relay
