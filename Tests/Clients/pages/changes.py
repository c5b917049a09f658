"""Messages that their program changes: in place, while the page is open and while it is not."""
from checks import check, until
from pages.helper import (
    PHONE, RELAY, DevTools, accessible, admin_call, browser, enter, find, fits, form, lose_network, picture, quiet, texts)

ROOM = "alerts"


def call(method, path, expected=200, **fields):
    status, answer = admin_call(method, path, None if "?" in path else {"room": ROOM, **fields})
    check(f"{method} {path}", status == expected, (status, answer))
    return answer


def post(key, text, expected=200, **fields):
    return call("POST", "/v1/messages", expected, key=key, text=text, name="monitor", **fields)["id"]


def times(driver):
    return [text.partition(" · ")[2] for text in texts(driver, "#log .time")]


def play(relay):
    driver, phone = browser(), browser(PHONE, dark=True)
    allowing = DevTools(driver)
    allowing.allow("notifications")
    for each, name in ((driver, "Ada"), (phone, "Ben")):
        enter(each, name, ROOM)
        until("and has a stream", lambda: find(each, "members").text.strip())
    form(cmd="join", udid="7" * 40, token=0, name="Cleo", code=ROOM)
    first = post("db1", "db1 is down", 201, title="db1")
    second = post("disk", "90 %", 201)
    form(cmd="message", udid="7" * 40, text="I look after it")
    wanted = ["db1db1 is down", "90 %", "I look after it"]
    for each in (driver, phone):
        until("the messages are there", lambda: texts(each) == wanted and times(each) == ["", "", ""])

    driver.execute_async_script("""const [tags, done] = arguments; navigator.serviceWorker.ready.then((worker) =>
        Promise.all(tags.map((tag) => worker.showNotification("monitor", { tag })))).then(() => done())""",
                                [f"message-{first}", f"message-{second}"])

    def notified():
        return driver.execute_async_script("""const done = arguments[0];
            navigator.serviceWorker.ready.then((worker) => worker.getNotifications())
              .then((all) => done(all.map((each) => each.tag).sort()))""")

    post("db1", "db1 is down for 5 minutes")
    for each in (driver, phone):
        until("a text changes in its place, with a mark", lambda: texts(each) == ["db1 is down for 5 minutes", "90 %", "I look after it"]
              and times(each) == ["edited", "", ""])
    check("the notification of a changed message stays", notified() == sorted([f"message-{first}", f"message-{second}"]), notified())
    call("POST", "/v1/messages/db1:clear?room=" + ROOM)
    until("that of a cleared message is closed", lambda: notified() == [f"message-{second}"])
    until("and the message has a mark", lambda: times(driver) == times(phone) == ["cleared", "", ""])
    call("POST", "/v1/messages/disk:resolve", text="50 %")
    until("a last text replaces the text", lambda: texts(driver)[1] == texts(phone)[1] == "50 %" and times(driver)[1] == "resolved")
    check("and its notification stays", notified() == [f"message-{second}"], notified())
    accessible(driver, "messages that changed")
    accessible(phone, "messages that changed, in the dark")
    fits(phone, "messages that changed, on a phone")
    picture(driver, "chat-changed-light")
    picture(phone, "chat-changed-dark-phone")

    # Without a connection, and after a reload.
    lose_network(driver, True)
    post("db1", "db1 is back")
    admin_call("DELETE", f"/v1/messages/{second}")
    third = post("disk", "91 %", 201)
    newest = ["db1 is back", "I look after it", "91 %"]
    until("the other page goes on", lambda: texts(phone) == newest)
    lose_network(driver, False)
    until("the page catches up", lambda: texts(driver) == newest and times(driver)[0] == "edited")
    for number in range(20):
        post("disk", f"{number} %")
    until("of many changes the last one counts", lambda: texts(driver)[2] == texts(phone)[2] == "19 %")
    for each in (driver, phone):
        each.get("about:blank")
    post("disk", "20 %")
    admin_call("DELETE", f"/v1/messages/{first}")
    for each in (driver, phone):
        each.get(RELAY + "/")
        until("a page that was closed shows the newest texts", lambda: texts(each) == ["I look after it", "20 %"])
        until("and listens", lambda: find(each, "members").text.strip())
    check("the changed message is still one message", third == post("disk", "21 %"))
    until("and changes again", lambda: texts(driver) == texts(phone) == ["I look after it", "21 %"])
    quiet(driver, "messages that change")
    return relay
