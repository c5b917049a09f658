"""The operator's page: the verdict, tabs, lists to browse and filter, charts, and errors beside their forms."""
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import (
    ADMIN, PHONE, RELAY, accessible, admin_call, browser, click, find, form, operator, quiet, sure, tab, texts, visit_tabs,
    visit_tabs_at_320,
)

# Simulates a proxy that closes the admin API.
CLOSED = """
const real = fetch;
self.fetch = async (path, options = {}) => new URL(path, location.origin).pathname.startsWith("/v1/")
  ? new Response("<html>not found</html>", { status: 404 }) : real(path, options);
"""


def play(relay):
    for number in range(60):
        token = f"{number:02x}" * 32
        admin_call("PUT", "/v1/devices/" + token, {"user_reference": f"guest{number}", "tags": ["fleet"]}, ADMIN)
    form(cmd="join", udid="a7" * 20, token=0, name="Wim", code="orchard")
    driver, phone = operator(), operator(size=PHONE, dark=True)
    until("the first line is a verdict", lambda: find(driver, "verdict").text)

    tab(driver, "rooms")
    until("rooms are listed unasked", lambda: "orchard" in texts(driver, "#room-list .link"))
    find(driver, "rooms-prefix").send_keys("orch")
    until("and filtered while typing", lambda: texts(driver, "#room-list .link") == ["orchard"])
    click(driver, "#room-list .link")
    until("a room is opened by its link", lambda: "Wim" in texts(driver, "#result td"))
    find(driver, "close-result").click()
    check("and closed", not find(driver, "found").is_displayed())

    tab(driver, "devices")
    click(driver, "#devices-active option[value=true]")
    find(driver, "devices-tag").send_keys("fleet")
    until("devices are filtered by state and tag", lambda: len(texts(driver, "#device-list tbody tr")) == 50)
    # A change of the filter that is still under way starts the list again.
    until("and the next page follows", lambda: driver.execute_script(
        "document.querySelector('#device-list > button')?.click();"
        "return document.querySelectorAll('#device-list tbody tr').length") == 60)
    find(driver, "devices-tag").send_keys("x" * 70)
    until("an error stands beside its form", lambda: "tag" in find(driver, "filter-devices-problem").text)
    check("and its field has the focus", driver.switch_to.active_element.get_attribute("id") == "devices-tag")
    find(driver, "devices-tag").send_keys(Keys.CONTROL + "a", Keys.DELETE)
    until("and disappears", lambda: not find(driver, "filter-devices-problem").is_displayed())

    tab(driver, "notifications")
    click(driver, "#to option[value=all]")
    find(driver, "alert").send_keys("To all of you")
    click(driver, "#send button")
    sure(driver, "Send to everyone?")
    number = admin_call("GET", "/v1/stats", token=ADMIN)[1]["devices"]["active"]
    check("everyone is a number of devices", f"{number} devices get it." in find(driver, "sure-text").text, find(driver, "sure-text").text)
    driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    until("cancelled", lambda: not find(driver, "sure").is_displayed())
    check("nothing is sent", "To all of you" not in texts(driver, "#notification-list td"))
    click(driver, "#to option[value=users]")
    find(driver, "whom").send_keys("guest1")
    click(driver, "#send button")
    until("a notification is listed", lambda: "To all of you" in texts(driver, "#notification-list td"))

    tab(driver, "overview")
    reader = driver.find_element(By.CSS_SELECTOR, "#live .reader")
    until("the chart has values", lambda: reader.is_enabled())
    reader.send_keys(Keys.ARROW_LEFT)
    until("the keyboard reads a value", lambda: "in the queue" in driver.find_element(By.CSS_SELECTOR, "#live .reading").text)
    check("which is spoken", "in the queue" in reader.get_attribute("aria-valuetext"))
    check("and the axes have numbers", texts(driver, "#live .axis span")[:3] == ["10", "5", "0"] or texts(driver, "#live .axis span")[2] == "0")
    visit_tabs(driver, phone, "", ("tab-light", "tab-dark-phone"), accessible)
    visit_tabs_at_320(phone, "")
    visit_tabs_at_320(operator(text=32), " in large text")

    closed = browser()
    closed.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": CLOSED})
    closed.get(RELAY + "/admin")
    until("behind a proxy that closes the API, the page says how to reach it", lambda: find(closed, "closed").is_displayed())
    check("with the command", find(closed, "tunnel").text.startswith("ssh -N -L 44447:127.0.0.1:44447 "))
    accessible(closed, "the closed API")
    for each in (driver, phone):
        quiet(each, "the lists", 400, 401)
    return relay
