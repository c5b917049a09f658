"""A new code for a room."""
import time, urllib.parse

from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import (
    ADMIN, RELAY, accessible, admin_call, browser, click, find, form, look_up, press_key, quiet, sure, texts,
)


def play(relay):
    """Tests that a room's code can be changed: its members and messages move, and the old code is closed."""
    room, chosen, mel, nic = "pantry <i>", "larder & <b>", "6" * 40, "9" * 40
    for name, udid in (("<b>Mel</b>", mel), ("Nic", nic)):
        form(cmd="join", udid=udid, token=0, name=name, code=room)
    form(cmd="message", udid=mel, text="Moves along")
    driver = browser()
    driver.get(RELAY + "/admin")
    find(driver, "token").send_keys(ADMIN + Keys.ENTER)
    until("the operator is in", lambda: find(driver, "view").is_displayed())
    look_up(driver, "room", "pantry")
    until("the room is found", lambda: texts(driver, "#result .link")[:1] == [room])
    click(driver, "#result .link")
    until("it can get a new code", lambda: "New code" in texts(driver, "#result .buttons button"))

    def title():
        return texts(driver, "#result h3")[:1]

    press_key(driver, "recode-room")
    sure(driver, f"Give {room} a new code?")
    check("only the code is asked for", find(driver, "sure-new").is_displayed() and not any(
        find(driver, id).is_displayed() for id in ("sure-time", "sure-why", "sure-where", "sure-address")))
    check("its field has the focus", driver.switch_to.active_element.get_attribute("id") == "sure-code")
    accessible(driver, "a new code")
    driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    until("cancelled, the room keeps its code", lambda: not find(driver, "sure").is_displayed() and title() == ["Room " + room])
    press_key(driver, "recode-room")
    sure(driver, f"Give {room} a new code?")
    find(driver, "sure-code").send_keys(room)
    find(driver, "sure-yes").click()
    until("the dialog shows that the same code is refused", lambda: find(driver, "sure-problem").text)
    find(driver, "sure-code").clear()
    find(driver, "sure-code").send_keys(chosen)
    find(driver, "sure-yes").click()
    until("the room is shown under the entered code", lambda: title() == ["Room " + chosen])
    check("with its members", {"<b>Mel</b>", "Nic"} <= set(texts(driver, "#result td")), texts(driver, "#result td"))
    click(driver, "#result .buttons button", "Show texts")
    until("and its messages", lambda: "Moves along" in texts(driver, "#result .said"))
    until("the new code is in the record", lambda: "new code" in texts(driver, "#record tbody td:nth-child(2)"))
    press_key(driver, "recode-room")
    sure(driver, f"Give {chosen} a new code?")
    check("the field is empty again", find(driver, "sure-code").get_attribute("value") == "")
    find(driver, "sure-yes").click()
    until("without an entered code it is a random one", lambda: title() and title()[0] not in (
        "Room " + chosen, "Room " + room) and not find(driver, "sure").is_displayed())
    random = title()[0].removeprefix("Room ")
    found = admin_call("GET", "/v1/members?room=" + urllib.parse.quote(random), token=ADMIN)
    check("which has the members", {each["name"] for each in found[1].get("members", [])} == {"<b>Mel</b>", "Nic"}, found)
    for code in (room, chosen):
        answer = admin_call("POST", "/v1/messages", {"room": code, "text": "Anybody?"}, ADMIN)
        check(f"the old code is closed: {code}", answer[0] == 403 and "has a new code" in answer[1]["detail"], answer)
    quiet(driver, "a new code", 400, 401, 409)
    return relay
