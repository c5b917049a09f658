"""The sandbox's inbox."""

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import PHONE, SANDBOX, browsers, accessible, browser, click, find, fits, form, picture, quiet, texts


def play(relay):
    driver, phone = browser(), browser(PHONE, dark=True)
    for each in (driver, phone):
        each.get(SANDBOX + "/")
        until("the inbox shows the pushes", lambda: any("Carol" in text or "Alice: " in text for text in texts(each, "#list .body")))
    count = len(texts(driver, "#list li"))
    token = "d" * 64
    form(cmd="join", udid="d" * 40, token=token, name="Dora", code="<i>hall</i>")
    form(cmd="join", udid="e" * 40, token=0, name="<u>Eve</u>", code="<i>hall</i>")
    form(cmd="message", udid="e" * 40, text="<b>Hello</b> \U0001f375")
    until("and shows new ones first", lambda: texts(driver, "#list li:first-child .body") == ["<u>Eve</u>: <b>Hello</b> \U0001f375"])
    click(driver, "#list li:first-child button")
    check("all of it is shown", "<b>Hello</b>" in find(driver, "pretty").text and token in find(driver, "facts").text)
    check("with its size", "bytes of 4096" in find(driver, "size").text, find(driver, "size").text)
    accessible(driver, "inbox")
    accessible(phone, "inbox in the dark")
    fits(phone, "inbox on a phone")
    picture(driver, "inbox-light")
    picture(phone, "inbox-dark-phone")

    driver.find_element(By.ID, "remove").click()
    until("an app is removed by a button", lambda: "rejected" in find(driver, "removed").text)
    form(cmd="message", udid="e" * 40, text="Gone")
    until("and the next push is refused", lambda: texts(driver, "#list li:first-child .marks .bad") == ["Unregistered"])
    find(driver, "make").click()
    made = until("a device is made by a button", lambda: texts(driver, "#devices code")[:1] != [token] and texts(driver, "#devices code")[0])
    form(cmd="join", udid="d" * 40, token=made, name="Dora", code="<i>hall</i>")
    field = find(driver, "fault-reason")
    field.clear()
    field.send_keys("BadMessageId")
    click(driver, "#fault button")
    until("a fault is asked for by a button", lambda: "BadMessageId" in " ".join(texts(driver, "#faults li")))
    form(cmd="message", udid="e" * 40, text="Goes wrong")
    until("and happens", lambda: texts(driver, "#list li:first-child .marks .bad") == ["BadMessageId"])
    find(driver, "clear-faults").click()
    until("and goes away", lambda: texts(driver, "#faults li") == [])
    find(driver, "filter-token").send_keys(made)
    until("the list is narrowed to a token", lambda: len(texts(driver, "#list li")) == 1)
    find(driver, "filter-token").clear()
    find(driver, "filter-token").send_keys(" " + Keys.BACKSPACE)
    until("and widened again", lambda: len(texts(driver, "#list li")) > count)
    find(driver, "make-browser").click()
    subscription = until("a browser is made by a button", lambda: find(driver, "subscription-text").text)
    form(cmd="join", udid="f" * 40, subscription=subscription, name="Fred", code="<i>hall</i>")
    form(cmd="message", udid="e" * 40, text="To a browser")
    until("and shows posted messages", lambda: any("a browser" in text and "To a browser" in text for text in texts(driver, "#list li")))
    accessible(driver, "inbox with a browser")
    click(driver, "#browsers button")
    until("it is ended by a button", lambda: texts(driver, "#browsers .bad") == ["removed"])
    find(driver, "clear").click()
    until("it is emptied", lambda: texts(driver, "#list li") == [] and find(driver, "empty").is_displayed())
    quiet(driver, "inbox")
    return relay
