"""The chat page in German, and from right to left."""
from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import (
    PHONE, RELAY, accessible, browser, choose, find, fits, form, picture, quiet, resize, say, texts,
)


def play(relay):
    phone = browser(PHONE)
    phone.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {
        "source": "Object.defineProperty(navigator, 'languages', { get: () => ['xx', 'de-AT', 'en'] });"})
    phone.get(RELAY + "/")
    check("the browser's first known language is chosen",
          phone.execute_script("return document.documentElement.lang") == "de-AT" and find(phone, "enter").text == "Eintreten")
    find(phone, "new-room").click()
    code = find(phone, "code").get_attribute("value")
    check("a new room has a random code", len(code) == 19 and len(set(code)) > 5 and find(phone, "new-hint").is_displayed(), code)
    accessible(phone, "the login in German")
    fits(phone, "the login in German")
    picture(phone, "login-german-phone")
    find(phone, "name").send_keys("Jörg" + Keys.ENTER)
    until("the room is open", lambda: find(phone, "members").text == "Nur du bist hier")
    form(cmd="join", udid="c7" * 20, token=0, name="Änne", code=code)
    until("plural forms are German", lambda: find(phone, "members").text == "2 Mitglieder")
    form(cmd="message", udid="c7" * 20, text="\U0001f44d\U0001f3fd")
    say(phone, "Schön")
    until("emoji alone are large", lambda: texts(phone, "#log .large .bubble") == ["\U0001f44d\U0001f3fd"] and len(texts(phone)) == 2)
    find(phone, "text").send_keys("ß" * 85)
    check("the counter appears near the limit, with its unit", find(phone, "left").text == "Noch 20 Bytes", find(phone, "left").text)
    resize(phone, 320, 640)
    fits(phone, "320 pixels")
    picture(phone, "chat-german-320")

    # From right to left. No language of the page needs it yet.
    phone.execute_script("document.documentElement.dir = 'rtl'")
    sides = phone.execute_script("""
        return [...document.querySelectorAll("#log .box")].map((box) => box.getBoundingClientRect().right > innerWidth * 0.7)""")
    check("from right to left, others are on the right and own messages on the left", sides == [True, False], sides)
    check("and a name is at the edge of the page", phone.execute_script("""
        const range = document.createRange();
        range.selectNodeContents(document.querySelector("#log .name"));
        return document.querySelector("#log .name").getBoundingClientRect().right - range.getBoundingClientRect().right < 1"""))
    fits(phone, "320 pixels from right to left")
    picture(phone, "chat-right-to-left-320")
    phone.execute_script("document.documentElement.dir = 'ltr'")

    # By the keyboard alone: the list of rooms and the menu.
    find(phone, "text").clear()
    find(phone, "switch").send_keys(Keys.ENTER)
    until("the keyboard opens the list of rooms", lambda: find(phone, "room-list").is_displayed())
    accessible(phone, "the list of rooms")
    picture(phone, "room-list-320")
    phone.switch_to.active_element.send_keys(Keys.ESCAPE)
    until("Escape closes it", lambda: not find(phone, "room-list").is_displayed())
    find(phone, "menu-button").send_keys(Keys.ENTER)
    until("the keyboard opens the menu", lambda: find(phone, "invite").is_displayed())
    accessible(phone, "the menu")
    picture(phone, "menu-320")
    find(phone, "menu-button").send_keys(Keys.ESCAPE)
    until("Escape closes it", lambda: not find(phone, "invite").is_displayed())

    # The divider stays until its messages were read.
    choose(phone, "another")
    form(cmd="message", udid="c7" * 20, text="Bist du da?")
    until("the message is unread", lambda: phone.title.startswith("(1) "))
    find(phone, "back").click()
    until("a line is above the unread message", lambda: texts(phone, "#log .unread") == ["1 neu"])
    form(cmd="message", udid="c7" * 20, text="Hallo?")
    until("it stays, and counts on", lambda: texts(phone, "#log .unread") == ["2 neu"])
    accessible(phone, "a divider")
    picture(phone, "divider-320")
    say(phone, "Ja!")
    until("an answer ends it", lambda: texts(phone, "#log .unread") == [])
    quiet(phone, "the page in German")
    return relay
