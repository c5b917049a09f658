"""The operator's page: figures, look-ups, tokens of programs."""
import json, signal, time

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import (
    ADMIN, COMMAND, PHONE, RELAY, DevTools, accessible, admin_call, browser, click, control, find, fits, form,
    look_up, picture, press_key, quiet, start_again, sure, tab, texts,
)


def night():
    """Tests the metrics of the relay's last twelve hours, in one of which it did not run."""
    now = time.time()
    with open(COMMAND[COMMAND.index("--database") + 1] + ".figures", "w") as file:
        for ago in [*range(720, 300, -1), *range(240, 0, -1)]:
            json.dump({"at": time.strftime("%Y-%m-%dT%H:%M:00.000Z", time.gmtime(now - 60 * ago)),
                       "queue": 400 if 500 < ago < 520 else ago % 7, "oldest_age_seconds": 90.5 if 500 < ago < 520 else 0.0,
                       "sent": 200 + ago % 90, "failed": 40 if ago == 600 else 0, "messages": 20, "streams": 5}, file)
            file.write("\n")


def play(relay):
    relay.send_signal(signal.SIGTERM)
    relay.wait()
    night()
    relay = start_again("--set", "admin.token=geheim-und-lang-genug")
    driver, phone = browser(), browser(PHONE, dark=True)
    for each in (driver, phone):
        each.get(RELAY + "/admin")
        until("the operator is asked for the token", lambda: find(each, "door").is_displayed())
        check("and nothing is shown without it", texts(each, "#figures b") == [])
    accessible(driver, "the operator's door")
    find(driver, "token").send_keys("wrong" + Keys.ENTER)
    until("a wrong one is refused", lambda: "not the relay's admin.token" in find(driver, "login-problem").text)
    for each in (driver, phone):
        find(each, "token").clear()
        find(each, "token").send_keys("geheim-und-lang-genug" + Keys.ENTER)
        until("the right one opens", lambda: find(each, "view").is_displayed())
    driver.refresh()
    until("the tab keeps it", lambda: find(driver, "view").is_displayed())
    until("the night is shown, with sent and failed pushes", lambda: "at most 289 a minute; 40 failed" in find(driver, "day-pushes").text)
    check("and the queue", find(driver, "day-depth").text == "at most 400; the oldest (dashed) waited up to 2 min")
    line = find(driver, "day-sent").get_attribute("d")
    check("with a gap where the relay did not run", line.count("M") == 2 and len(line.split("L")) > 600, line[:200])
    until("the app and its gateway are shown", lambda: "http2 at 127.0.0.1" in find(driver, "apps").text)
    token = "f" * 64
    form(cmd="join", udid="f" * 40, token=token, name="<b>Fay</b>", code="<i>hall</i>")
    tab(driver, "notifications")
    find(driver, "whom").send_keys(token)
    find(driver, "alert").send_keys("<b>Test</b>")
    find(driver, "badge").send_keys("3")
    click(driver, "#send button")
    until("a notification is sent by the form, and its way is shown", lambda: texts(driver, "#result td.good") == ["sent"])
    until("and has arrived", lambda: any(
        n["token"] == token and json.loads(n["payload"]) == {"aps": {"alert": "<b>Test</b>", "badge": 3}}
        for n in control("GET", "/notifications?token=" + token)["notifications"]))
    until("figures follow by themselves", lambda: any("sent" in row for row in texts(driver, "#apps td")))
    look_up(driver, "token", token)
    until("a device is looked up", lambda: token in find(driver, "result").text)
    gina, hugo = "7" * 40, "8" * 40
    form(cmd="join", udid=gina, token=0, name="<b>Gina</b>", code="<i>attic</i>")
    form(cmd="join", udid=hugo, token="8" * 64, name="Hugo", code="<i>attic</i>")
    control("POST", "/faults", {"protocol": "http2", "action": "status", "reason": "PayloadTooLarge", "token": "8" * 64})
    form(cmd="message", udid=gina, text="anybody?")
    look_up(driver, "room", "<i>at")
    until("a room is found by the beginning of its code", lambda: texts(driver, "#result .link")[:1] == ["<i>attic</i>"])
    click(driver, "#result .link")
    until("its members are shown", lambda: ["<b>Gina</b>", "Hugo"] == texts(driver, "#result .table:nth-of-type(1) td:first-child"))
    click(driver, "#result .table:nth-of-type(2) .link")
    until("a message's progress is shown", lambda: texts(driver, "#result .way b") == ["1", "0", "0 of 1", "0 of 1"])
    check("without the text", "anybody?" not in driver.page_source)
    check("a failed push has its reason", "PayloadTooLarge" in find(driver, "result").text)
    check("the result has the focus", driver.switch_to.active_element.get_attribute("id") == "result")
    # The message is still followed. An error from elsewhere must stay nevertheless.
    driver.execute_script("showError(new Error('stays'))")
    form(cmd="messages", udid=hugo)
    until("it is fetched", lambda: texts(driver, "#result .way b")[3] == "1 of 1")
    check("and the error from elsewhere stays", find(driver, "problem").text == "stays")
    tab(driver, "log")
    check("the result stays in the tab in which it was opened", not find(driver, "found").is_displayed())
    until("the failure is among the recent errors", lambda: "PayloadTooLarge" in find(driver, "failures").text)
    check("and its log line is shown", "refused by the gateway" in find(driver, "warnings").text)
    look_up(driver, "token", "not hexadecimal", submit=False)
    click(driver, "#search button")
    until("the page shows the error", lambda: "hexadecimal" in find(driver, "search-problem").text)
    check("beside its form, whose field has the focus", driver.switch_to.active_element.get_attribute("id") == "term")
    accessible(driver, "the log")
    check("few failures of many pushes are no problem", "failed" not in find(driver, "verdict").text, find(driver, "verdict").text)
    for number in range(4):
        control("POST", "/faults", {"protocol": "http2", "action": "status", "reason": "PayloadTooLarge", "token": "8" * 64})
        form(cmd="message", udid=gina, text=f"anybody? {number}")
    driver.execute_script("dayHistory = []")
    until("many failures are, although nothing waits", lambda: "pushes of the last hour failed" in find(driver, "verdict").text
          and "PayloadTooLarge" in find(driver, "verdict").text)
    picture(driver, "admin-failures")
    tab(driver, "overview")
    driver.execute_script("scrollTo(0, 0)")
    accessible(driver, "the operator's page")
    accessible(phone, "the operator's page in the dark")
    fits(phone, "the operator's page on a phone")
    fits(driver, "the operator's page")
    picture(driver, "admin-light")
    picture(phone, "admin-dark-phone")
    tokens_of_programs(driver, phone)
    return relay


def tokens_of_programs(driver, phone):
    """Tests that tokens can be created, are shown once, can be used and revoked."""
    tab(driver, "tokens")
    until("there is no token", lambda: "There is none." in find(driver, "token-list").text)
    allowing = DevTools(driver)
    allowing.allow("clipboardReadWrite", "clipboardSanitizedWrite")

    def create(name, room="", days="", scopes=()):
        for id, text in (("token-name", name), ("token-room", room), ("token-days", days)):
            find(driver, id).clear()
            find(driver, id).send_keys(text)
        for box in driver.find_elements(By.CSS_SELECTOR, "[name=scope]"):
            if box.is_selected() != (box.get_attribute("value") in scopes):
                box.send_keys(" ")
        find(driver, "token-name").send_keys(Keys.ENTER)

    create("nothing")
    until("a token without a scope is not created", lambda: "Choose what" in find(driver, "create-token-problem").text)
    create("figures", room="kitchen", scopes=("figures",))
    until("the page shows the relay's refusal", lambda: "leave out room" in find(driver, "create-token-problem").text)
    create("backup", room="kitchen & co", days="30", scopes=("post", "read"))
    until("the new one is shown", lambda: find(driver, "secret").get_attribute("value").startswith("pct_"))
    secret = find(driver, "secret").get_attribute("value")
    check("marked, to be copied", driver.switch_to.active_element.get_attribute("id") == "secret" and driver.execute_script(
        "return getSelection().toString() === arguments[0] || document.activeElement.selectionEnd === arguments[0].length", secret))
    check("with the word that it is shown once", "cannot be shown again" in find(driver, "new-token").text)
    create("grafana", scopes=("post",))
    until("another one takes its place", lambda: find(driver, "secret").get_attribute("value") not in ("", secret))
    until("both are listed", lambda: texts(driver, "#token-list td:first-child") == ["backup", "grafana"])
    find(driver, "copy-token").click()
    until("it can be copied", lambda: find(driver, "token-copied").text == "Copied")
    check("whole", driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
          == find(driver, "secret").get_attribute("value"))
    status, answer = admin_call("POST", "/v1/messages", {"text": "Backup done"}, secret)
    check("the token posts, and to its room", status == 201 and answer["room"] == "kitchen & co", answer)
    check("and no more than that", admin_call("GET", "/v1/stats", token=secret)[0] == 403)
    until("when and from where it was used is listed", lambda: driver.execute_script("showTokens()") or texts(
        driver, "#token-list tr:first-child td:nth-child(7)") in (["127.0.0.1"], ["::1"]))
    row = texts(driver, "#token-list tr:first-child td")
    check("with its rights", row[1:4] == ["post, read", "kitchen & co", "anyone"] and row[4] != "never", row)
    driver.execute_script("document.getElementById('tokens').scrollIntoView()")
    accessible(driver, "tokens")
    fits(driver, "tokens")
    picture(driver, "admin-tokens-light")
    tab(phone, "tokens")
    phone.refresh()
    until("a phone lists them", lambda: texts(phone, "#token-list td:first-child") == ["backup", "grafana"])
    phone.execute_script("document.getElementById('tokens').scrollIntoView()")
    accessible(phone, "tokens in the dark")
    fits(phone, "tokens on a phone")
    picture(phone, "admin-tokens-dark-phone")
    find(driver, "hide-token").click()
    check("hidden, it is nowhere", find(driver, "secret").get_attribute("value") == "" and not find(driver, "new-token").is_displayed())

    _, answer = admin_call("GET", "/v1/tokens", token=ADMIN)
    key = "token-" + str(answer["tokens"][0]["id"])
    press_key(driver, key)
    sure(driver, "Revoke backup?")
    accessible(driver, "a question")
    picture(driver, "admin-revoke-light")
    driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    until("cancelling returns to the previous place", lambda: not find(driver, "sure").is_displayed()
          and driver.switch_to.active_element.get_attribute("data-key") == key)
    check("and the token is good", admin_call("GET", "/v1/messages?room=kitchen%20%26%20co", token=secret)[0] == 200)
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    sure(driver, "Revoke backup?")
    find(driver, "sure-yes").click()
    until("a revoked one is gone", lambda: texts(driver, "#token-list td:first-child") == ["grafana"])
    check("the focus is in the list", driver.switch_to.active_element.get_attribute("id") == "token-list")
    check("and it opens nothing", admin_call("GET", "/v1/messages?room=kitchen%20%26%20co", token=secret)[0] == 401)
    quiet(driver, "tokens", 400, 401)
