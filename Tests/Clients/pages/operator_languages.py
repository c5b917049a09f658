"""The operator's page in German, and from right to left."""
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import (
    ADMIN, PHONE, RELAY, accessible, admin_call, browser, find, form, picture, press_key, quiet, tab, texts, visit_tabs,
    visit_tabs_at_320,
)


def play(relay):
    form(cmd="join", udid="e1" * 20, token="e1" * 32, name="Änne", code="werft")
    form(cmd="join", udid="e2" * 20, token=0, name="Otto", code="werft")
    form(cmd="message", udid="e2" * 20, text="Moin")
    admin_call("POST", "/v1/tokens", {"name": "sicherung", "scopes": ["post"]}, ADMIN)
    driver, phone, large = browser(), browser(PHONE, dark=True), browser(text=32)
    for each in (driver, phone, large):
        each.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {
            "source": "Object.defineProperty(navigator, 'languages', { get: () => ['xx', 'de-AT', 'en'] });"})
        each.get(RELAY + "/admin")
        until("the page asks in German", lambda: each.find_element(By.CSS_SELECTOR, "#login button").text == "Anmelden")
        find(each, "token").send_keys(ADMIN + Keys.ENTER)
        until("the operator is in", lambda: find(each, "view").is_displayed())
    accessible(driver, "the overview in German")
    check("the browser's first known language is chosen", driver.execute_script("return document.documentElement.lang") == "de-AT")
    check("the window's title is German", driver.title == "Betreiber – PushChat Relay", driver.title)
    until("the figures are German", lambda: "Mitglieder" in texts(driver, "#figures span"))
    until("and the state of a push", lambda: "gesendet" in texts(driver, "#apps td"))

    tab(driver, "rooms")
    until("the columns are German", lambda: texts(driver, "#room-list th") == ["Raum", "Mitglieder", "Letzte Nachricht", "Zeit"])
    tab(driver, "tokens")
    until("a button is German", lambda: "Widerrufen sicherung" in texts(driver, "#token-list button"))
    [token] = [each["id"] for each in admin_call("GET", "/v1/tokens", token=ADMIN)[1]["tokens"] if each["name"] == "sicherung"]
    press_key(driver, f"token-{token}")
    until("the page asks in German", lambda: find(driver, "sure-title").text == "sicherung widerrufen?")
    accessible(driver, "a question in German")
    picture(driver, "admin-revoke-german")
    find(driver, "sure-no").click()
    visit_tabs(driver, phone, " in German", ("german", "german-dark-phone"))
    visit_tabs_at_320(phone, " in German")
    visit_tabs_at_320(large, " in German and in large text")

    # From right to left. No language of the page needs it yet.
    for each in (driver, phone):
        each.execute_script("document.documentElement.dir = 'rtl'")
    visit_tabs(driver, phone, " from right to left", ("right-to-left", "right-to-left-320"))
    tab(driver, "rooms")
    check("from right to left, the first column is on the right", driver.execute_script("""
        const [first, last] = ["first", "last"].map((edge) => document.querySelector(`#room-list th:${edge}-child`).getBoundingClientRect());
        return first.left > last.left"""))
    tab(driver, "overview")
    check("and time runs from left to right in the charts", driver.execute_script("""
        const [first, last] = ["first", "last"].map((edge) => document.querySelector(`#live .hours span:${edge}-child`));
        return first.textContent === "vor 10 min" && first.getBoundingClientRect().left < last.getBoundingClientRect().left"""))
    for each in (driver, phone):
        quiet(each, "the operator's page in German", 401)
    return relay
