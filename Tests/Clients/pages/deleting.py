"""A member deletes its own messages, with the mouse and with the keyboard."""
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import (
    PHONE, accessible, browser, click, enter, find, fits, form, lose_network, picture, quiet, say, texts)


def play(relay):
    ann, bob = browser(), browser(PHONE, dark=True)
    enter(ann, "Ann", "deleting")
    enter(bob, "Bob", "deleting")
    for text in ("one", "two", "three"):
        say(ann, text)
    until("the first messages are there", lambda: texts(ann) == ["one", "two", "three"])
    say(bob, "from Bob")
    until("both see all messages", lambda: texts(ann) == texts(bob) == ["one", "two", "three", "from Bob"])
    check("only own messages have the button", len(ann.find_elements(By.CSS_SELECTOR, "#log .eraser")) == 3
          and not ann.find_elements(By.CSS_SELECTOR, "#log .other .eraser"))

    # A press asks first.
    click(ann, "[aria-label='Delete your message: two']")
    until("the page asks", lambda: find(ann, "erasing").is_displayed())
    check("it shows the message", find(ann, "erasing-text").text == "two")
    accessible(ann, "deleting a message")
    picture(ann, "deleting-light")
    find(ann, "keep").click()
    check("Keep changes nothing", texts(ann) == ["one", "two", "three", "from Bob"])
    click(ann, "[aria-label='Delete your message: two']")
    click(ann, "#really-erase")
    until("the message disappears for both", lambda: texts(ann) == texts(bob) == ["one", "three", "from Bob"])
    until("a screen reader hears it", lambda: find(ann, "news").get_attribute("textContent") == "The message is deleted.")
    check("the focus stays in the list", ann.execute_script("return document.activeElement.id") == "scroll")

    # The keyboard: one stop for all buttons, and the arrow keys.
    stops = ann.find_elements(By.CSS_SELECTOR, "#log .eraser[tabindex='0']")
    check("one button is in the tab order", [each.get_attribute("aria-label") for each in stops] == ["Delete your message: three"])
    stops[0].send_keys(Keys.ARROW_UP)
    active = ann.switch_to.active_element
    check("the arrow key leads to the message before", active.get_attribute("aria-label") == "Delete your message: one")
    active.send_keys(Keys.ENTER)
    until("Enter asks", lambda: find(ann, "erasing").is_displayed())
    check("and the harmless button has the focus", ann.switch_to.active_element.get_attribute("id") == "keep")
    ann.switch_to.active_element.send_keys(Keys.TAB)
    ann.switch_to.active_element.send_keys(Keys.ENTER)
    until("the keyboard deletes", lambda: texts(bob) == ["three", "from Bob"] and not find(ann, "erasing").is_displayed())

    # Without a connection the dialog stays, with the reason.
    click(ann, "[aria-label='Delete your message: three']")
    lose_network(ann, True)
    click(ann, "#really-erase")
    until("the page says why", lambda: "cannot be reached" in find(ann, "erase-problem").text)
    lose_network(ann, False)
    click(ann, "#really-erase")
    until("it works when the connection is back", lambda: texts(ann) == texts(bob) == ["from Bob"])
    fits(bob, "deleting on a phone")
    quiet(ann, "deleting")
    refused = form_error(cmd="delete", udid="d" * 40, id=1)
    check("a stranger is refused", refused == 404, refused)
    return relay


def form_error(**fields):
    import urllib.error
    try:
        form(**fields)
    except urllib.error.HTTPError as error:
        return error.code
