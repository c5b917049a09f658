"""The sheets of the chat's menu: the members of the room, and the search in its messages."""
from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import (
    PHONE, accessible, admin_call, browser, choose, click, enter, find, fits, form, picture, quiet, resize, say, texts)

CODE = "room-of-sheets"


def search(driver, text):
    # While the page searches, Enter does nothing.
    until("the page can search", lambda: find(driver, "search-go").is_enabled())
    find(driver, "search-text").clear()
    find(driver, "search-text").send_keys(text + Keys.ENTER)


def play(relay):
    ann, bob = browser(), browser(PHONE, dark=True)
    enter(ann, "Ann", CODE)
    say(ann, "Early words")
    until("the first message is there", lambda: texts(ann) == ["Early words"])
    enter(bob, "Bob <b>", CODE)
    until("both are in the room", lambda: find(ann, "members").text == "2 members")
    admin_call("POST", "/v1/messages", {"room": CODE, "name": "Grafana", "title": "Load", "text": "Resolved"})
    until("the program's message is there", lambda: len(texts(bob)) == 1)
    for fields in ({"room": CODE, "bot": "Weather"}, {}, {"room": "another"}):
        admin_call("POST", "/v1/webhooks", {"url": f"http://127.0.0.1:9/a-secret-{len(fields)}", **fields})

    choose(ann, "show-people")
    until("the sheet lists the members", lambda: texts(ann, "#people-list .person") == ["Ann you", "Bob <b>"])
    check("with a coarse time", set(texts(ann, "#people-list .hint")) == {"recently"}, texts(ann, "#people-list .hint"))
    check("and the programs", texts(ann, "#program-list .person") == ["Grafana operator"], texts(ann, "#program-list .person"))
    check("and where messages are sent to, without the secret part of the address",
        texts(ann, "#receiver-list .person") == ["Weather bot http://127.0.0.1:9", "http://127.0.0.1:9"], texts(ann, "#receiver-list"))
    check("there are no more", not find(ann, "people-more").is_displayed())
    accessible(ann, "the members")
    picture(ann, "members-light")
    find(ann, "people-close").click()
    choose(bob, "show-people")
    until("so does the phone's", lambda: len(texts(bob, "#people-list li")) == 2)
    accessible(bob, "the members on a phone")
    fits(bob, "the members on a phone")
    picture(bob, "members-dark-phone")
    find(bob, "people-close").click()

    for text in ("Grüße aus KÖLN", "Привет, мир", "nothing to see"):
        form(cmd="message", udid=udid_of(ann), text=text)
    until("the messages are there", lambda: texts(bob)[-1] == "nothing to see")
    choose(bob, "show-search")
    search(bob, "grÜsse")
    until("upper and lower case are alike", lambda: texts(bob, "#found .excerpt") == ["Grüße aus KÖLN"])
    search(bob, "ПРИВЕТ")
    until("in every script", lambda: texts(bob, "#found mark") == ["Привет"])
    accessible(bob, "the search on a phone")
    fits(bob, "the search on a phone")
    picture(bob, "search-dark-phone")
    search(bob, "early")
    until("a member does not find what was written before it came", lambda: "No message" in find(bob, "search-status").text)
    search(bob, "load")
    until("the title of a program's message is found", lambda: len(texts(bob, "#found li")) == 1)
    resize(bob, 320, 568)
    fits(bob, "the search on a small phone")

    # A result leads to the message, even if the page has dropped it.
    choose(ann, "show-search")
    for number in range(30):
        form(cmd="message", udid=udid_of(bob), text=f"Number {number}")
    until("the page has the newest messages", lambda: texts(ann)[-1] == "Number 29")
    ann.execute_script("current.messages = current.messages.slice(-3); showLog()")
    check("and no longer the oldest", len(texts(ann)) == 3)
    search(ann, "EARLY")
    until("the oldest message is found", lambda: texts(ann, "#found .excerpt") == ["Early words"])
    find(ann, "search-text").send_keys(Keys.TAB + Keys.TAB)
    ann.switch_to.active_element.send_keys(Keys.ENTER)
    until("the keyboard leads to it", lambda: not find(ann, "search").is_displayed())
    check("it is marked, and has the focus", ann.execute_script(
        "return document.activeElement === document.querySelector('.found') && document.activeElement.textContent.includes('Early')"))
    check("it is in view", ann.execute_script("""
        const [item, list] = [document.querySelector(".found"), document.getElementById("scroll")].map((each) => each.getBoundingClientRect());
        return item.top >= list.top && item.bottom <= list.bottom"""))
    form(cmd="message", udid=udid_of(bob), text="a new one")
    until("a new message arrives", lambda: texts(ann)[-1] == "a new one")
    check("and the found one stays in view", "Early words" in texts(ann))
    picture(ann, "search-found-light")

    choose(ann, "show-search")
    search(ann, "number")
    until("the first results are shown", lambda: len(texts(ann, "#found li")) == 20)
    check("the newest first", texts(ann, "#found .excerpt")[0] == "Number 29", texts(ann, "#found .excerpt")[0])
    click(ann, "#search-more")
    until("and more on request", lambda: len(texts(ann, "#found li")) == 30)
    accessible(ann, "the search")
    picture(ann, "search-light")
    click(ann, "#found button")
    until("a message that is on the page is shown at once", lambda: not find(ann, "search").is_displayed())
    quiet(ann, "the sheets")
    quiet(bob, "the sheets on a phone")
    return relay


def udid_of(driver):
    return driver.execute_script("return current.udid")
