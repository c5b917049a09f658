"""Moderation on the operator's page."""
import time

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import (
    ADMIN, DESKTOP, PHONE, RELAY, accessible, browser, click, find, fits, form, look_up, picture, press_key,
    quiet, resize, sure, tab, texts,
)


# Simulates a relay that supports neither tokens nor moderation.
OLD_RELAY = """
const real = fetch;
self.fetch = async (path, options = {}) =>
  /^\\/v1\\/(bans|moderation|tokens)/.test(new URL(path, location.origin).pathname) || options.method === "DELETE"
    ? new Response("{}", { status: 404 }) : real(path, options);
"""


def play(relay):
    """Tests moderation of rooms on the operator's page."""
    room, hidden = "cellar <i>", "Nobody should read this"
    people = {name: digit * 40 for name, digit in (("<b>Mel</b>", "3"), ("Nic", "4"), ("Oda", "5"))}
    for name, udid in people.items():
        form(cmd="join", udid=udid, token=0, name=name, code=room)
    for text in ("Hello", hidden):
        form(cmd="message", udid=people["Nic"], text=text)

    def operator(script=None, **sizes):
        made = browser(**sizes)
        if script:
            made.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
        made.get(RELAY + "/admin")
        find(made, "token").send_keys(ADMIN + Keys.ENTER)
        until("the operator is in", lambda: find(made, "view").is_displayed())
        return made

    old = operator(OLD_RELAY)
    look_up(old, "room", "cellar")
    until("with an older relay rooms are found", lambda: texts(old, "#result .link")[:1] == [room])
    click(old, "#result .link")
    until("and shown", lambda: "Oda" in texts(old, "#result td"))
    check("without the unsupported actions", "Actions" not in texts(old, "th") and not find(old, "tokens").is_displayed()
          and not find(old, "order").is_displayed() and texts(old, "#result .buttons button") == ["Show texts"])
    check("and without complaint", not find(old, "problem").is_displayed())
    quiet(old, "an older relay", 401)

    driver = operator()
    tab(driver, "moderation")
    until("bans and the record are shown", lambda: find(driver, "order").is_displayed())
    look_up(driver, "room", "cellar")
    until("the room is found", lambda: texts(driver, "#result .link")[:1] == [room])
    click(driver, "#result .link")

    def ids():
        return dict(driver.execute_script("""
            const table = [...document.querySelectorAll("#result table")].find((table) => table.querySelector("th").textContent === "Member");
            return [...(table?.querySelectorAll("tbody tr") ?? [])].map((row) =>
              [row.firstChild.textContent, row.querySelector("[data-key]").dataset.key.split("-")[1]])"""))

    def members():
        return list(ids())

    def press_button(words):
        click(driver, "#result .buttons button", words)

    def yes():
        find(driver, "sure-yes").click()
        until("it is done", lambda: not find(driver, "sure").is_displayed())

    until("its members are shown", lambda: members() == list(people))
    check("no text is shown unasked", hidden not in driver.page_source)
    press_button("Show texts")
    until("texts are shown on request", lambda: texts(driver, "#result .said") == [hidden, "Hello"])
    [bad] = [id for id, text in zip(
        texts(driver, "#result .table:nth-of-type(2) td:first-child"), texts(driver, "#result .said")) if text == hidden]
    press_key(driver, "delete-" + bad)
    sure(driver, f"Delete message {bad}?")
    check("with the message that would be deleted", hidden in find(driver, "sure-text").text)
    yes()
    until("a deleted message is gone", lambda: texts(driver, "#result .said") == ["Hello"])
    until("which is in the record", lambda: texts(driver, "#record tbody tr:first-child td")[1:4:2] == ["message deleted", bad])
    press_button("Hide texts")
    until("texts are hidden again", lambda: texts(driver, "#result .said") == [])

    oda = ids()["Oda"]
    press_key(driver, "remove-" + oda)
    sure(driver, "Remove Oda?")
    check("removing asks for no time", not find(driver, "sure-time").is_displayed())
    driver.execute_script("""const before = fetch; window.fetch = async (path, options) => {
        if (options?.method !== "DELETE") return before(path, options);
        window.fetch = before;
        return new Response(JSON.stringify({ detail: "There is no such member" }), { status: 404 }); }""")
    find(driver, "sure-yes").click()
    until("the dialog shows the error", lambda: find(driver, "sure-problem").text == "There is no such member")
    yes()
    until("a removed member is gone", lambda: members() == ["<b>Mel</b>", "Nic"])
    press_key(driver, "ban-" + ids()["Nic"])
    sure(driver, "Ban Nic?")
    check("a ban asks for how long, and why", find(driver, "sure-time").is_displayed() and find(driver, "sure-reason").is_displayed())
    check("and whether to ban the address as well", find(driver, "sure-address").is_displayed() and not find(driver, "sure-new").is_displayed())
    click(driver, "#sure-for option[value='604800']")
    find(driver, "sure-reason").send_keys("spam <b>")
    accessible(driver, "a ban")
    picture(driver, "admin-ban-light")
    resize(driver, 657, 320)
    check("in a low window its buttons are in view", driver.execute_script("""
        return ["sure-yes", "sure-no"].map((id) => document.getElementById(id)).every((button) => {
          const { x, y, width, height } = button.getBoundingClientRect();
          return document.elementFromPoint(x + width / 2, y + height - 2) === button;
        })"""))
    fits(driver, "a ban in a low window")
    resize(driver, *DESKTOP)
    yes()
    until("a banned member is gone", lambda: members() == ["<b>Mel</b>"])
    until("and among the bans", lambda: texts(driver, "#bans tbody tr:first-child td")[:3] == ["Nic", room, "spam <b>"])
    until("with an end", lambda: texts(driver, "#bans tbody tr:first-child td")[4] not in ("", "for ever", "ended"))
    press_button("Close the room")
    sure(driver, f"Close {room}?")
    check("closing asks not where", not find(driver, "sure-where").is_displayed())
    click(driver, "#sure-for option[value='']")
    yes()
    until("a closed room can be opened", lambda: "Open the room" in texts(driver, "#result .buttons button"))
    until("and is among the bans", lambda: texts(driver, "#bans tbody tr:first-child td")[0::4] == ["the room is closed", "for ever"])
    driver.execute_script("document.getElementById('order').scrollIntoView()")
    accessible(driver, "order")
    fits(driver, "order")
    picture(driver, "admin-order-light")
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": PHONE[0], "height": PHONE[1], "deviceScaleFactor": 1, "mobile": True})
    fits(driver, "order on a phone")
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": DESKTOP[0], "height": DESKTOP[1], "deviceScaleFactor": 1, "mobile": False})
    press_button("Open the room")
    sure(driver, f"Open {room}?")
    yes()
    until("an open one can be closed", lambda: "Close the room" in texts(driver, "#result .buttons button"))
    click(driver, "#bans button", "End")
    sure(driver, "End the ban of Nic?")
    yes()
    until("no ban is left to end", lambda: driver.find_elements(By.CSS_SELECTOR, "#bans button, #result .table [data-key^=end]") == [])
    until("everything is in the record", lambda: {
        "ban ended", "room opened", "room closed", "banned", "removed", "message deleted"} <= set(
            texts(driver, "#record tbody td:nth-child(2)")))
    [hello] = [id for id in texts(driver, "#result .table:last-of-type td:first-child")]
    look_up(driver, "message", hello)
    press_key(driver, "delete-" + hello)
    sure(driver, f"Delete message {hello}?")
    check("the answer that changes nothing has the focus", driver.switch_to.active_element.get_attribute("id") == "sure-no")
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    until("not deleted, it is still there", lambda: not find(driver, "sure").is_displayed()
          and driver.switch_to.active_element.get_attribute("data-key") == "delete-" + hello)
    press_key(driver, "delete-" + hello)
    sure(driver, f"Delete message {hello}?")
    yes()
    # The room has no members since it was closed.
    until("deleted, its room is shown without it", lambda: members() == []
          and texts(driver, "#result .table:last-of-type td") == [])
    quiet(driver, "order", 401)
    return relay
