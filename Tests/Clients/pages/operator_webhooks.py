"""Webhooks on the operator's page: their state in the verdict and the list, failed events, and addresses for other programs."""
import subprocess, urllib.error, urllib.request

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import (
    ADMIN, LIMIT, PHONE, RELAY, SHELL, accessible, admin_call, click, find, fits, operator, picture, press_key, quiet, tab, texts,
)

# No program listens there.
RECEIVER = "http://127.0.0.1:9"


def admin(method, path, body=None):
    status, answer = admin_call(method, path, body, ADMIN)
    if status >= 400:
        raise SystemExit(f"FAILED {method} {path}: {answer}")
    return answer


def webhook(name, **fields):
    return admin("POST", "/v1/webhooks", {"url": f"{RECEIVER}/{name}", "room": "pier", **fields})["id"]


def play(relay):
    failing, paused, ended = webhook("one"), webhook("two", bot="Buoy"), webhook("three")
    for number in range(1, 4):
        admin("POST", f"/v1/webhooks/{failing}:test")
        until(f"request {number} fails", lambda: admin("GET", f"/v1/webhooks/{failing}")["failures"] >= number)
    for each in (paused, ended):
        admin("PATCH", f"/v1/webhooks/{each}", {"state": "paused"})
    admin("POST", "/v1/messages", {"room": "pier", "text": "The tide is high"})
    # As after a response 410 to an earlier event.
    for change in (f"webhooks SET state = 'ended', reason = 'the receiver answered 410 Gone' WHERE webhook_id = {ended}",
                   f"webhook_events SET state = 'failed', error = 'the webhook has ended' WHERE webhook_id = {ended}"):
        subprocess.run([*SHELL, "UPDATE " + change], check=True, timeout=LIMIT)

    driver, phone = operator(), operator(size=PHONE, dark=True)
    verdict = find(driver, "verdict").text
    for title in (f"Webhook {failing} ({RECEIVER}): failing.", f"Webhook {paused} Buoy ({RECEIVER}): paused.",
                  f"Webhook {ended} ({RECEIVER}): ended."):
        check(f"the first verdict says: {title}", title in verdict, verdict)
    check("with the reason", "The reason: the receiver answered 410 Gone." in verdict, verdict)
    check("and as a warning", "is-warning" in find(driver, "verdict").get_attribute("class"))
    driver.find_element(By.CSS_SELECTOR, "#verdict a[href='#tokens']").click()
    until("webhooks with the same receiver are listed with their ids", lambda: texts(driver, "#webhook-list td:first-child") == [
        f"{failing} ({RECEIVER})", f"{paused} Buoy ({RECEIVER})", f"{ended} ({RECEIVER})"])
    check("with their states", texts(driver, "#webhook-list td:nth-child(3)") == ["failing", "paused", "ended"])
    press_key(driver, f"failures-{ended}")
    until("an event that failed without an attempt is listed with its reason", lambda: texts(
        driver, "#webhook-failures td:nth-child(4)") == ["the webhook has ended"])
    check("and can be sent again", driver.find_elements(By.CSS_SELECTOR, "#webhook-failures button") != [])
    press_key(driver, f"failures-{failing}")
    until("so are failed requests", lambda: len(texts(driver, "#webhook-failures tbody tr")) >= 3)
    addresses(driver, phone)
    for each in (failing, paused, ended):
        admin("DELETE", f"/v1/webhooks/{each}")
    until("the verdict forgets deleted ones", lambda: "Webhook" not in find(driver, "verdict").text)
    quiet(driver, "webhooks", 400, 401)
    return relay


def addresses(driver, phone):
    """Tests the addresses for other programs: the form, and the list with a delivery that could not be read."""
    made = admin("POST", "/v1/tokens", {"name": "charts", "room": "pier", "hook": {"format": "grafana"}})
    try:
        urllib.request.urlopen(urllib.request.Request(RELAY + made["url"][made["url"].index("/hooks/"):], b"nojson"), timeout=LIMIT)
    except urllib.error.HTTPError as error:
        check("a delivery that is no JSON is rejected", error.code == 400, error.code)
    for each, what in ((driver, "a desktop"), (phone, "a phone in the dark")):
        tab(each, "tokens")
        each.refresh()
        row = until(f"the list says on {what} that a delivery was unreadable", lambda: [
            row for row in each.find_elements(By.CSS_SELECTOR, "#token-list tbody tr") if "unreadable: 1" in row.text])[0]
        # An element of another kind has no line below it.
        cells = row.find_elements(By.XPATH, "*")
        check("every cell is one", {cell.tag_name for cell in cells} == {"td"}, [cell.tag_name for cell in cells])
        check("and has its name", cells[1].get_attribute("data-column") == "Scopes", cells[1].get_attribute("data-column"))

        check("a token needs no room", find(each, "token-room").get_attribute("placeholder") == "any")
        click(each, "#token-hook option[value=github]")
        check("an address does", find(each, "token-room").get_attribute("placeholder") == ""
              and find(each, "token-room-hint").text == "The room’s secret code. Each address is for one room.")
        check("a secret is not shown", find(each, "hook-secret").get_attribute("type") == "password"
              and find(each, "hook-secret-hint").is_displayed())
        click(each, "#token-hook option[value='']")
        check("and a token needs no room again", "every room" in find(each, "token-room-hint").text)
        click(each, "#token-hook option[value=json]")
        click(each, "#hook-try-box summary")
        find(each, "hook-body").send_keys("nojson " + "x" * 300)
        find(each, "hook-try").click()
        until("a delivery is tried", lambda: "nojson" in find(each, "hook-result").text)
        fits(each, f"a tried delivery on {what}")
        accessible(each, f"the form for a webhook on {what}")
        find(each, "token-name").send_keys(f"gauge on {what}")
        find(each, "token-room").send_keys("pier")
        picture(each, f"admin-webhooks-{what.split()[1]}")
        find(each, "token-room").send_keys(Keys.ENTER)
        until("the new address is shown", lambda: find(each, "secret").get_attribute("value").startswith(RELAY + "/hooks/"))
        check("as an address", "The new address." in find(each, "new-token").text and find(each, "copy-token").text == "Copy the address")
        fits(each, f"a new address on {what}")
        picture(each, f"admin-address-{what.split()[1]}")
        find(each, "token-name").send_keys(f"token on {what}" + Keys.ENTER)
        until("and a new token is one", lambda: find(each, "secret").get_attribute("value").startswith("pct_")
              and find(each, "copy-token").text == "Copy the token")
    for each in admin("GET", "/v1/tokens")["tokens"]:
        if each["name"] == "charts" or " on a " in each["name"]:
            admin("DELETE", f"/v1/tokens/{each['id']}")
