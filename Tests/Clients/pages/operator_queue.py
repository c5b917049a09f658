"""The queue on the operator's page: pause, select, retry, cancel, resume, each with its count first."""
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import (
    ADMIN, PHONE, accessible, admin_call, click, control, find, fits, form, operator, picture, press_key, quiet,
    resize, sure, tab, texts,
)


def play(relay):
    driver = operator()
    tab(driver, "queue")
    room, writer, reader = "boat house <i>", "e1" * 20, "e2" * 20
    for name, udid, token in (("Ulla", writer, 0), ("Vera", reader, "e2" * 32)):
        form(cmd="join", udid=udid, token=token, name=name, code=room)

    def pending():
        return texts(driver, "#push-list tbody td:nth-child(2)")

    def yes():
        find(driver, "sure-yes").click()
        until("it is done", lambda: not find(driver, "sure").is_displayed())

    until("the app can be paused", lambda: driver.find_elements(By.CSS_SELECTOR, "[data-key=pause-default]"))
    press_key(driver, "pause-default")
    sure(driver, "Pause default?")
    check("a pause asks why", driver.switch_to.active_element.get_attribute("id") == "sure-reason")
    check("with the number of pushes", "pushes in the queue" in find(driver, "sure-text").text)
    accessible(driver, "a pause")
    find(driver, "sure-reason").send_keys("a bad build <b>" + Keys.ENTER)
    until("the pause is shown, with who and why", lambda: any(
        "paused by admin" in cell and "a bad build <b>" in cell for cell in texts(driver, "#pauses td")))
    until("the verdict says so", lambda: "is paused: a bad build <b>" in find(driver, "verdict").text)
    for number in range(5):
        form(cmd="message", udid=writer, text=f"Boat {number}")
    find(driver, "pushes-app").send_keys("default")
    click(driver, "#pushes-age option[value='-3600']")
    click(driver, "#pushes-state option[value='pending']")
    until("the waiting pushes are listed", lambda: len(pending()) >= 5)
    before = len(pending())
    form(cmd="message", udid=writer, text="Boat 5")
    until("the table follows the queue", lambda: len(pending()) == before + 1)
    waiting = admin_call("GET", "/v1/pushes?state=pending&app=default", token=ADMIN)[1]["pushes"]
    check("all of them", pending() == [str(push["id"]) for push in waiting], pending())
    accessible(driver, "the queue")
    fits(driver, "the queue")
    picture(driver, "admin-queue-light")

    # Cancels one of them by keyboard alone.
    last = str(waiting[-1]["id"])
    box = driver.find_element(By.CSS_SELECTOR, f"[data-key=choose-{last}]")
    box.send_keys(" ")
    until("a selection is counted", lambda: find(driver, "cancel-pushes").text == "Cancel selected (1)…")
    find(driver, "cancel-pushes").send_keys(Keys.ENTER)
    sure(driver, "Cancel 1 push?")
    check("the first answer cannot be mistaken", find(driver, "sure-no").text == "Keep it")
    picture(driver, "admin-cancel")
    form(cmd="message", udid=writer, text="Boat 6")
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    until("the first answer changes nothing", lambda: not find(driver, "sure").is_displayed())
    check("so all wait", last in pending())
    until("the table follows the queue again", lambda: len(pending()) == before + 2)
    check("and the selection stays", find(driver, "cancel-pushes").text == "Cancel selected (1)…")
    find(driver, "cancel-pushes").send_keys(Keys.ENTER)
    sure(driver, "Cancel 1 push?")
    yes()
    until("the page says what was done", lambda: find(driver, "push-status").text == "1 push cancelled.")
    until("the cancelled push is gone", lambda: last not in pending())
    click(driver, "#pushes-state option[value='cancelled']")
    until("it is among the cancelled", lambda: last in pending())
    find(driver, "retry-pushes").click()
    until("a retry asks with the number", lambda: find(driver, "sure").is_displayed()
          and find(driver, "sure-title").text.startswith("Retry "))
    yes()
    until("nothing is left to retry", lambda: last not in pending())
    find(driver, "pushes-reason").send_keys("NoSuchReason")
    until("a filter that nothing matches says so", lambda: "No push matches." in find(driver, "push-list").text)
    find(driver, "cancel-pushes").click()
    until("and has nothing to cancel", lambda: "None of these" in find(driver, "push-status").text)
    find(driver, "pushes-reason").clear()
    find(driver, "pushes-reason").send_keys(Keys.ENTER)

    resize(driver, 320, 640)
    fits(driver, "the queue on a small phone")
    accessible(driver, "the queue on a small phone")
    resize(driver, 1280, 800)
    driver.execute_script("location.reload()")
    until("a reload keeps the tab", lambda: find(driver, "pauses").is_displayed())
    press_key(driver, "resume-default")
    sure(driver, "Resume default?")
    yes()
    until("the app sends again", lambda: "sending" in texts(driver, "#pauses td"))
    until("every push arrives once", lambda: len(
        control("GET", "/notifications?token=" + "e2" * 32)["notifications"]) == 7)
    until("and the verdict is good", lambda: "is paused" not in find(driver, "verdict").text)
    tab(driver, "moderation")
    until("the record has it all", lambda: {"app paused", "app resumed", "pushes cancelled", "pushes retried"} <= set(
        texts(driver, "#record tbody td:nth-child(2)")))
    quiet(driver, "the queue", 401)
    return relay
