"""A room gets a title, which the page shows instead of the secret code."""
from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import PHONE, accessible, admin_call, browser, choose, enter, find, fits, picture, quiet, say, texts

CODE = "secret-of-titles"


def give(title):
    status, answer = admin_call("PATCH", "/v1/rooms", {"room": CODE, "title": title})
    check(f"the operator sets the title {title!r}", status == 200 and answer["title"] == title, answer)


def play(relay):
    ann = browser()
    enter(ann, "Ann", CODE)
    check("without a title the page shows the code", find(ann, "room").text == CODE)
    give("Harbour <View>")
    until("a new title appears at once", lambda: find(ann, "room").text == "Harbour <View>")
    check("in the list of rooms", texts(ann, "#room-list [aria-current] .code") == ["Harbour <View>"])
    check("and in the window's title", ann.title == "Harbour <View> – PushChat", ann.title)
    say(ann, "Hello")
    until("the message is there", lambda: texts(ann) == ["Hello"])
    check("the code is nowhere on the page", CODE not in ann.execute_script("return document.body.innerText"))
    picture(ann, "titled-room-light")

    choose(ann, "invite")
    link = find(ann, "link").get_attribute("value")
    check("the code is closed under Invite", not find(ann, "invite-code").is_displayed())
    ann.execute_script("document.querySelector('#invitation summary').click()")
    check("and can be opened there", find(ann, "invite-code").text == CODE)
    accessible(ann, "the invitation with a title")
    find(ann, "close").click()

    bob = browser(PHONE, dark=True)
    bob.get(link)
    check("an invited person sees the title, not the code", find(bob, "invited").text.replace("\u2068", "").replace("\u2069", "")
          == "You are invited to Harbour <View>." and CODE not in bob.execute_script("return document.body.innerText"))
    picture(bob, "invited-title-dark-phone")
    find(bob, "name").send_keys("Bob" + Keys.ENTER)
    until("and enters the room", lambda: find(bob, "room").text == "Harbour <View>")
    fits(bob, "a room with a title")

    # The title is there at the next start, and in the background.
    ann.get("about:blank")
    give("Mill")
    ann.get(link.split("#")[0])
    until("the page learns a title that changed meanwhile", lambda: find(ann, "room").text == "Mill")
    enter_another(ann)
    give(None)
    until("a room in the background learns it, too", lambda: CODE in texts(ann, "#room-list .code"))
    until("without a title the page shows the code again", lambda: find(bob, "room").text == CODE)
    quiet(ann, "titles")
    return relay


def enter_another(driver):
    choose(driver, "another")
    find(driver, "code").send_keys("another-of-titles" + Keys.ENTER)
    until("the page shows another room", lambda: find(driver, "room").text == "another-of-titles")
