"""The inbox: equal notifications are one entry, the newest is selected, the details stay in view, and previews."""
import json

from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import SANDBOX, accessible, browser, click, control, find, fits, form, picture, quiet, texts

SELECTED = "return [...document.querySelectorAll('.banner')].findIndex((each) => each.getAttribute('aria-current') === 'true')"
# Shows the preview of a notification, and returns its texts.
PREVIEW = """
    const notification = { answer: "accepted", received_at: "2026-01-31T09:41:00Z", topic: "com.example.Tea", ...arguments[0] };
    const made = preview({ ...notification, payload: JSON.stringify(arguments[1]) });
    document.getElementById("preview").replaceChildren(made);
    return [made.querySelector(".screen")?.className ?? null, [...made.querySelectorAll(".texts > *, .activity *")].map((each) => each.textContent),
      [...made.querySelectorAll("figcaption p")].map((each) => each.textContent)]"""


# Shows a message of Web Push as if it had arrived, and returns the payload in the details.
SHOW = """
    add({ id: 1e6, protocol: "webpush", answer: "accepted", received_at: "2026-01-31T09:41:00Z", token: "ab".repeat(32), headers: {}, payload: arguments[0] }, false);
    choose(groups[0], groups[0].first);
    return document.getElementById("pretty").textContent"""


def play(relay):
    control("DELETE", "/notifications")
    driver = browser()
    driver.get(SANDBOX + "/")
    until("the inbox is empty", lambda: find(driver, "empty").is_displayed() and find(driver, "figures").text.strip())
    tokens = [f"{0xa0 + number:02x}" * 32 for number in range(4)]
    for number, token in enumerate(tokens):
        form(cmd="join", udid=f"{0xa0 + number:02x}" * 20, token=token, name=f"G{number}", code="a large group")
    form(cmd="message", udid="a0" * 20, text="To all of you")
    until("equal notifications are one entry", lambda: texts(driver, "#list .receiver") == ["to 3 devices"])
    check("the newest is selected", driver.execute_script(SELECTED) == 0)
    check("and shown as on a phone", texts(driver, "#preview .ios .body") == ["G0: To all of you"], texts(driver, "#preview .ios *"))
    until("its devices are listed", lambda: len(texts(driver, "#receivers button")) == 3)
    accessible(driver, "the details of a group")
    picture(driver, "inbox-group-light")
    click(driver, "#receivers button", tokens[3][:8])
    until("each has details of its own", lambda: tokens[3] in find(driver, "facts").text)

    # A choice stays when more notifications arrive.
    form(cmd="message", udid="a0" * 20, text="A second one")
    until("another one has arrived", lambda: texts(driver, "#list .body")[:1] == ["G0: A second one"])
    until("to all devices", lambda: texts(driver, "#list .receiver") == ["to 3 devices"] * 2)
    check("the chosen one stays", driver.execute_script(SELECTED) == 1 and tokens[3] in find(driver, "facts").text)
    click(driver, "#follow")
    check("until the page follows the newest again", driver.execute_script(SELECTED) == 0)
    form(cmd="message", udid="a0" * 20, text="A second one")
    until("an equal text to the same devices is another entry", lambda: texts(driver, "#list .receiver") == ["to 3 devices"] * 3)
    check("and is selected", driver.execute_script(SELECTED) == 0)
    control("POST", "/faults", {"protocol": "http2", "action": "status", "reason": "BadMessageId", "token": tokens[2]})
    form(cmd="message", udid="a0" * 20, text="One of you will miss this")
    until("a refused one is an entry of its own", lambda: sorted(
        text.split(" · ")[-2:] for text in texts(driver, "#list .marks")[:2]) == [["to 2 devices", "accepted"], ["to a2a2a2a2…", "BadMessageId"]])
    control("DELETE", "/faults")

    # The details stay while the list is scrolled.
    for number in range(12):
        form(cmd="message", udid="a0" * 20, text=f"Number {number}")
    until("the list is long", lambda: len(texts(driver, "#list li")) == 17)
    view = driver.execute_script("""
        const list = document.getElementById("inbox");
        list.scrollTop = 1e6;
        const { top, bottom } = document.getElementById("detail-title").getBoundingClientRect();
        return [list.scrollTop, top, bottom, innerHeight]""")
    check("the details stay in view", view[0] > 200 and 0 <= view[1] and view[2] <= view[3], view)

    # By the keyboard alone.
    driver.execute_script("document.querySelector('.banner').focus()")
    driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN + Keys.ENTER)
    until("a key chooses the next one", lambda: driver.execute_script(SELECTED) == 1)
    driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    check("a key leads to the details", driver.switch_to.active_element.get_attribute("id") == "detail")
    driver.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
    check("and back", driver.execute_script("return document.activeElement === document.querySelectorAll('.banner')[1]"))

    previews(driver)
    accessible(driver, "previews")
    plain_texts(driver)
    search(driver)
    faults_and_refusals(driver)
    quiet(driver, "the inbox with groups")
    return relay


def plain_texts(driver):
    """Shows messages of Web Push that are not JSON, or JSON of the sender's own."""
    for payload, kind in (("Backup done", "; plain text"), ('{"kind":"backup"}', "")):
        shown = driver.execute_script(SHOW, payload)
        check("plain text is shown in the list", texts(driver, "#list li:first-child .body") == [payload], texts(driver, "#list li:first-child"))
        check("and in the details", shown in (payload, '{\n  "kind": "backup"\n}'), shown)
        size = find(driver, "size")
        check("and is no error", size.text.endswith("of 3993" + kind) and size.get_attribute("class") == "hint", size.text)
    accessible(driver, "plain texts")


def search(driver):
    form(cmd="message", udid="a0" * 20, text="A needle & hay")
    until("a message to be found", lambda: any("needle" in text for text in texts(driver, "#list .body")))
    field = find(driver, "filter-text")
    field.send_keys("Needle & h")
    until("a text is found", lambda: texts(driver, "#list .body") == ["G0: A needle & hay"])
    check("and is marked as a search", field.get_attribute("type") == "search")
    accessible(driver, "a search")
    fits(driver, "a search")
    picture(driver, "inbox-search-light")
    field.send_keys("!")
    until("another text is not found", lambda: texts(driver, "#list li") == [] and find(driver, "empty").is_displayed())
    field.clear()
    field.send_keys(" " + Keys.BACKSPACE)
    until("without a text, all are listed", lambda: len(texts(driver, "#list li")) > 1)


def previews(driver):
    apple, android, web = {"protocol": "http2", "push_type": "alert"}, {"protocol": "fcm"}, {"protocol": "webpush"}
    for notification, payload, screen, lines, note in (
        (apple, {"aps": {"alert": "Hi"}}, "ios", ["Tea", "Hi"], "There is no sound."),
        (apple, {"aps": {"alert": {"title": "A", "subtitle": "B", "body": "<b>"}, "sound": "x", "badge": 3, "interruption-level": "time-sensitive"}},
         "ios", ["Time sensitive", "A", "B", "<b>"], "The app’s icon shows the number 3."),
        (apple, {"aps": {"alert": {"loc-key": "HELLO"}, "mutable-content": 1}}, "ios", ["Tea", "HELLO"], "The app replaces the key HELLO with its own text."),
        (apple, {"aps": {"content-available": 1}}, None, [], "The system wakes the app in the background."),
        (apple, {"aps": {"badge": 0}}, None, [], "The app’s icon shows the number 0."),
        (apple, {"aps": {"alert": "Hi", "interruption-level": "passive"}}, "ios", ["Tea", "Hi"],
         "Passive: it only enters Notification Centre. The screen stays dark."),
        ({**apple, "push_type": "voip"}, {"call": 1}, None, [], "The app shows an incoming call."),
        ({**apple, "push_type": "location"}, {}, None, [], "Nothing is shown. The system gives the push to the app: location."),
        ({**apple, "push_type": "liveactivity"}, {"aps": {"event": "update", "content-state": {"step": 2}}}, "ios", ["Tea · update", "step2", "step", "2"],
         "The app’s widget draws the Live Activity from these values."),
        ({**apple, "answer": "BadTopic"}, {"aps": {"alert": "Hi"}}, None, [], "Nothing is shown: the answer was BadTopic."),
        ({"protocol": "binary"}, {"aps": {"alert": "Hi", "sound": "default"}}, "ios", ["Tea", "Hi"], "As on an iPhone’s lock screen. Long texts are cut."),
        (android, {"message": {"token": "x", "notification": {"title": "A", "body": "B"}}}, "android", ["A", "B"],
         "Normal priority: a sleeping phone may show it later."),
        (android, {"message": {"token": "x", "data": {"a": "1"}}}, None, [], "Nothing is shown: the app gets the data."),
        (web, {"web_push": 8030, "notification": {"title": "A", "body": "B", "navigate": "https://example.org/"}}, "desktop", ["A", "B", "localhost"],
         "A click opens https://example.org/."),
        (web, "plain", None, [], "The page’s service worker gets this message and decides what to show."),
        (web, [None], None, [], "The page’s service worker gets this message and decides what to show."),
    ):
        found = driver.execute_script(PREVIEW, notification, payload)
        is_right = found[0] == (screen and "screen " + screen) and found[1] == lines and note in found[2]
        check(f"the preview of {json.dumps(payload)[:60]}", is_right, found)


def faults_and_refusals(driver):
    check("no connection was refused, and the panel says so", find(driver, "refused-none").is_displayed())
    shown = driver.execute_script("""
        showRefusals([{ listener: "http2", connection: 7, reason: "no_alpn", message: "no <b>h2</b>", refused_at: "2026-01-31T09:41:00Z" }], 1);
        return ["refusals", "refused-count"].map((id) => document.getElementById(id).textContent)""")
    check("a refused connection is listed", "HTTP/2no <b>h2</b>" in shown[0] and shown[1] == "1", shown)
    click(driver, "#fault button")
    until("the panel counts the faults that wait", lambda: find(driver, "fault-count").text == "1 waiting")
    click(driver, "[data-part=faults] summary")
    check("a panel closes", not find(driver, "fault").is_displayed())
    click(driver, "[data-part=faults] summary")
    find(driver, "clear-faults").click()
    until("no fault waits", lambda: texts(driver, "#fault-count") == [""])
