"""Several rooms in one browser, and its notifications."""
import hashlib, json, signal, time, urllib.parse, urllib.request

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import (
    leave, choose, LIMIT, PHONE, RELAY, DevTools, accessible, browser, click, enter, find, fits, form, picture, quiet, say,
    start_again, texts,
)


# A fake push service, because the browser's own needs the vendor's. Like that one, it keeps one subscription per worker. Like
# Chrome's, it gives an address that does not exist just after the end of a subscription.
FAKE_PUSH_SERVICE = """
(() => {
  const stored = () => JSON.parse(localStorage.getItem("fake") ?? "null");
  const bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const made = (kept) => kept && {
    endpoint: kept.subscription.endpoint,
    options: { applicationServerKey: bytes(kept.key).buffer },
    toJSON: () => kept.subscription,
    unsubscribe: async () => { localStorage.removeItem("fake"); localStorage.setItem("ended", "2"); return true; },
  };
  PushManager.prototype.getSubscription = async () => made(stored());
  PushManager.prototype.subscribe = async (options) => {
    if (localStorage.getItem("fail")) throw new DOMException("push service not available", "AbortError");
    if (localStorage.getItem("silent")) return new Promise(() => {});
    const ended = Number(localStorage.getItem("ended"));
    if (ended) {
      localStorage.setItem("ended", ended - 1);
      return { endpoint: "https://permanently-removed.invalid/fcm/send/x", unsubscribe: async () => true };
    }
    if (!options.userVisibleOnly) throw new DOMException("not allowed", "NotAllowedError");
    const key = new Uint8Array(options.applicationServerKey);
    if (key.length !== 65 || key[0] !== 4) throw new DOMException("not a key", "InvalidAccessError");
    const text = (array) => btoa(String.fromCharCode(...array));
    const url = (array) => text(array).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
    const pair = await crypto.subtle.generateKey({ name: "ECDH", namedCurve: "P-256" }, true, ["deriveBits"]);
    const own = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
    const random = (count) => crypto.getRandomValues(new Uint8Array(count));
    localStorage.setItem("fake", JSON.stringify({ key: text(key), subscription: {
      endpoint: "https://localhost:1/push/" + url(random(20)), expirationTime: null,
      keys: { p256dh: url(own), auth: url(random(16)) } } }));
    return made(stored());
  };
})();
"""


def room_hash(code):
    hash = 0xCBF29CE484222325
    for byte in code.encode():
        hash = (hash ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{hash:016x}"


def press(driver, id, words, within):
    find(driver, id).click()
    until(f"the page says {words!r}", lambda: words in find(driver, within).text)


def play(relay):
    """Tests several rooms in one browser, and its notifications: request, display, click, end."""
    relay.send_signal(signal.SIGTERM)
    relay.wait()
    more = ("--set", "admin.token=geheim-und-lang-genug", "--set", "webpush.hosts=localhost:1")
    relay = start_again(*more)

    def browser_devices():
        request = urllib.request.Request(
            RELAY + "/v1/devices?app=webpush", headers={"Authorization": "Bearer geheim-und-lang-genug"})
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return [device for device in json.loads(answer.read())["devices"] if device["token"] not in others]

    # The inbox's simulated browser has joined already.
    others = []
    others = [device["token"] for device in browser_devices()]

    def tokens(code):
        request = urllib.request.Request(
            RELAY + "/v1/members?" + urllib.parse.urlencode({"room": code}, quote_via=urllib.parse.quote),
            headers={"Authorization": "Bearer geheim-und-lang-genug"})
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return [member["token"] for member in json.loads(answer.read())["members"]]

    driver, phone = browser(), browser(PHONE, dark=True)
    whole = DevTools(driver)
    kitchen, hall, third = "kitchen for all", "hall\u00e9 & <b>", "attic with a long name that needs room"
    for each in (driver, phone):
        each.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": FAKE_PUSH_SERVICE})
        enter(each, "Nina", kitchen)
        for code in (hall, third)[: 1 if each is driver else 2]:
            choose(each, "another")
            check("a member that joins another room can go back", find(each, "back").is_displayed())
            picture(each, "another-" + ("light" if each is driver else "dark-phone"))
            check("and need not say the name again", find(each, "name").get_attribute("value") == "Nina")
            find(each, "code").send_keys(code + Keys.ENTER)
            until("and is in it as well", lambda: find(each, "room").text == code and find(each, "chat").is_displayed())
    check("both rooms are listed", texts(driver, "#room-list .code") == [kitchen, hall])
    form(cmd="join", udid="1" * 40, token=0, name="Otto", code=kitchen)
    form(cmd="join", udid="2" * 40, token=0, name="Otto", code=hall)

    # The text says what each platform needs.
    whole.call("Browser.setPermission", permission={"name": "notifications"}, setting="denied", origin=RELAY)
    press(driver, "notify", "blocked", "notify-text")
    accessible(driver, "a refusal of notifications")
    find(driver, "notify-close").click()
    check("it is put away, and the focus is where it was",
          driver.switch_to.active_element.get_attribute("id") == "notify" and not find(driver, "notify-notice").is_displayed())
    phone.execute_cdp_cmd("Emulation.setUserAgentOverride", {
        "userAgent": "Mozilla/5.0 (iPhone; CPU iPhone OS 18_4 like Mac OS X)", "platform": "iPhone"})
    press(phone, "notify", "Add to Home Screen", "notify-text")
    picture(phone, "notify-dark-phone")
    fits(phone, "three rooms and a notice on a phone")
    accessible(phone, "three rooms and a notice on a phone")
    whole.allow("notifications")
    driver.execute_script("localStorage.setItem('fail', '1')")
    press(driver, "notify", "push service not available", "notify-text")
    check("notifications that failed are not on", find(driver, "notify").text == "Notify me" and browser_devices() == [])
    driver.execute_script("localStorage.removeItem('fail'); localStorage.setItem('silent', '1')")
    press(driver, "notify", "has not answered yet", "notify-text")
    until("a push service that never answers is reported", lambda: "(no answer)" in find(driver, "notify-text").text)
    driver.execute_script("localStorage.removeItem('silent'); localStorage.setItem('ended', '2')")
    press(driver, "notify", "Stop", "notify")
    check("the error is gone", not find(driver, "notify-notice").is_displayed())
    [device] = browser_devices()
    endpoint = driver.execute_script("return JSON.parse(localStorage.getItem('fake')).subscription.endpoint")
    check("the relay knows the browser by its endpoint's hash",
          device["token"] == hashlib.sha256(endpoint.encode()).hexdigest(), device)
    until("in both rooms", lambda: tokens(kitchen) == tokens(hall) == [device["token"], None, None])
    picture(driver, "rooms-light")

    # Pushes to the worker in the relay's format.
    page = DevTools(driver, "page", RELAY)
    page.call("ServiceWorker.enable")
    scope = page.event("ServiceWorker.workerRegistrationUpdated", lambda event: event["registrations"])["registrations"][0]
    worker = DevTools(driver, "service_worker", RELAY + "/sw.js")

    def push(data):
        page.call("ServiceWorker.deliverPushMessage", origin=RELAY, registrationId=scope["registrationId"], data=data)

    again = []

    def push_until(what, look, *pushes):
        """Pushes, and waits until the notification is shown. Some time after a window or tool was closed, the browser may
        revoke the permission and remove its notifications. Then this delivers the pushes again."""
        def found():
            if look():
                return True
            is_granted = worker.run("Notification.permission") == "granted"
            if not is_granted:
                whole.allow("notifications")
            if not is_granted or time.monotonic() > delivered + 10:
                again.append(what)
                deliver()

        def deliver():
            nonlocal delivered
            for data in pushes:
                push(data)
            delivered = time.monotonic()

        delivered = 0
        deliver()
        until(what, found, told=lambda: (worker.run("Notification.permission"), shown()))

    def shown():
        return worker.run("""registration.getNotifications().then((all) => all.map(
            ({ title, body, tag, silent, data }) => ({ title, body, tag, silent, data })))""")

    def message(code, id, text, **more):
        return json.dumps({"web_push": 8030, "notification": {
            "title": "Otto", "body": text, "tag": f"message-{id}", "navigate": RELAY + "/#room=" + room_hash(code),
            "data": {"room": room_hash(code), "message_id": id}, **more}})

    choose(driver, "another")  # Show no room, so that its notifications stay.
    form(cmd="message", udid="1" * 40, text="Soup")
    soup = message(kitchen, 4711, "Soup", silent=True)
    push_until("a push is shown", lambda: [(each["title"], each["body"], each["tag"], each["silent"], each["data"]["message_id"])
               for each in shown()] == [("Otto", "Soup", "message-4711", True, 4711)], soup)
    # The worker handles both at the same time, in any order.
    push_until("a repeat replaces, another is added", lambda: {(each["tag"], each["silent"]) for each in shown()}
               == {("message-4711", True), ("message-4712", False)} and len(shown()) == 2,
               soup, message(hall, 4712, "Open the door"))
    until("unread messages are counted, at the room and in the title", lambda: driver.title.startswith("(1) ")
          and texts(driver, "#room-list .unread-count .only-spoken") == ["1 unread"])
    for bad in ("no JSON", "[]", "null", '"text"', '{"notification":7}', '{"notification":{"title":7,"data":"x"},"app_badge":-1}', ""):
        count = len(shown())
        push_until(f"{bad[:20]!r} is shown somehow", lambda: len(shown()) > count, bad)
    check("each push once", again or len(shown()) == 2 + 7, shown())
    check("with the name of the app", {each["title"] for each in shown()} == {"Otto", "PushChat"}, shown())
    worker.run("""(() => {
      self.badges = []; self.opened = []; self.focused = [];
      WindowClient.prototype.focus = async function () { focused.push(this.url); return this; };
      navigator.setAppBadge = async (count) => { badges.push(count); };
      Object.defineProperty(clients, "openWindow", { value: async (address) => { opened.push(address); } });
    })()""")
    push(json.dumps({"notification": {"title": "Badge"}, "app_badge": 5}))
    until("the app has its badge", lambda: worker.run("badges").count(5) == 1)
    push(json.dumps({"notification": {"title": "Badge", "app_badge": 6}}))
    until("also from inside the notification", lambda: worker.run("badges").count(6) == 1)

    # The debugger cannot click on system notifications: send the event to the worker, without the rights of a click.
    def click_notification(tag):
        worker.run("""(async () => {
          const [notification] = await registration.getNotifications({ tag: "%s" });
          const event = new NotificationEvent("notificationclick", { notification });
          let done = null;
          event.waitUntil = (promise) => { done = promise; };
          self.dispatchEvent(event);
          await done;
        })()""" % tag)

    click_notification("message-4711")
    until("a click opens the room in the open page", lambda: find(driver, "room").text == kitchen and texts(driver)[-1:] == ["Soup"])
    check("brings that to the front, and opens no other", worker.run("opened") == [] and len(worker.run("focused")) == 1)
    until("its notifications are gone, others stay", lambda: room_hash(kitchen) not in [each["data"].get("room") for each in shown()]
          and room_hash(hall) in [each["data"].get("room") for each in shown()])
    until("and nothing is unread", lambda: texts(driver, "#room-list .unread-count") == [] and driver.title == kitchen + " \u2013 PushChat")
    form(cmd="message", udid="2" * 40, text="Open the door")
    push(message(hall, 4713, "Open the door"))
    until("a push counts for a room that is not shown", lambda: texts(driver, "#room-list li:nth-child(2) .unread-count .only-spoken") == ["1 unread"])
    accessible(driver, "two rooms")
    fits(driver, "two rooms")
    picture(driver, "unread-light")
    # The page may replace the button while it is pressed.
    until("Enter is pressed", lambda: driver.find_element(
        By.CSS_SELECTOR, "#room-list li:nth-child(2) button").send_keys(Keys.ENTER) or True)
    until("by the keyboard the other room is shown", lambda: find(driver, "room").text == hall and texts(driver) == ["Open the door"])
    until("the focus stays in the list", lambda: driver.switch_to.active_element.text.split("\n")[1:2] == [hall])
    say(driver, "In the hall")
    click(driver, "#room-list li:nth-child(1) button")
    until("each room has its own messages", lambda: find(driver, "room").text == kitchen and texts(driver) == ["Soup"])
    click(driver, "#room-list li:nth-child(2) button")
    until("also those of one's own", lambda: texts(driver) == ["Open the door", "In the hall"])
    worker.run("registration.getNotifications().then((all) => all.forEach((each) => each.close()))")
    first = driver.current_window_handle
    driver.switch_to.new_window("tab")
    other = driver.current_window_handle
    driver.switch_to.window(first)
    driver.close()
    driver.switch_to.window(other)
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": FAKE_PUSH_SERVICE})
    driver.get(RELAY + "/healthz")
    page = DevTools(driver, "page", RELAY + "/healthz")
    page.call("ServiceWorker.enable")
    push_until("with every page closed it is shown", lambda: [each["body"] for each in shown()] == ["Nobody looks"],
               message(kitchen, 4714, "Nobody looks"))
    until("and counted on the app", lambda: worker.run("badges.at(-1)") == 1)
    click_notification("message-4714")
    check("a click then opens the room", worker.run("opened") == [RELAY + "/#room=" + room_hash(kitchen)], worker.run("opened"))
    push_until("a notification of the operator is shown", lambda: [each["title"] for each in shown()] == ["News"], json.dumps(
        {"notification": {"title": "News", "tag": "news", "navigate": "https://example.org/news"}}))
    click_notification("news")
    check("and leads where it says", worker.run("opened.at(-1)") == "https://example.org/news", worker.run("opened"))
    push_until("a message with a link is shown", lambda: [each["tag"] for each in shown()] == ["message-4715"],
               message(kitchen, 4715, "Backup done", navigate="https://example.org/x"))
    click_notification("message-4715")
    check("and leads there, not to its room", worker.run("opened.at(-1)") == "https://example.org/x", worker.run("opened"))
    driver.get(RELAY + "/#room=" + room_hash(kitchen))
    until("the address opens the room", lambda: find(driver, "room").text == kitchen)
    check("and does not keep it", "#" not in driver.current_url)
    until("the page says again where it is reached", lambda: find(driver, "notify").text == "Stop notifying")

    # The relay knows other keys for the endpoint, and rejects these.
    driver.execute_script("""
      const kept = JSON.parse(localStorage.getItem("fake"));
      kept.subscription.keys.auth = "AAAAAAAAAAAAAAAAAAAAAA";
      localStorage.setItem("fake", JSON.stringify(kept));""")
    driver.refresh()
    known_endpoint = "return JSON.parse(localStorage.getItem('fake')).subscription.endpoint"
    until("with refused keys the page takes another endpoint", lambda: driver.execute_script(known_endpoint) != endpoint)
    until("and says so for each room", lambda: tokens(kitchen)[0] == tokens(hall)[0] not in (None, device["token"]))
    until("and knows that it is reached", lambda: find(driver, "notify").text == "Stop notifying")
    endpoint = driver.execute_script(known_endpoint)

    # Another key: the relay has another database, or its key was replaced.
    driver.execute_script("""
      const kept = JSON.parse(localStorage.getItem("fake"));
      kept.key = kept.key.replace(/.{8}$/, "AAAAAAA=");
      localStorage.setItem("fake", JSON.stringify(kept));""")
    driver.refresh()
    until("with another key the page subscribes again", lambda: driver.execute_script(known_endpoint) != endpoint)
    old = (None, device["token"], hashlib.sha256(endpoint.encode()).hexdigest())
    until("and says so for each room", lambda: tokens(kitchen)[0] == tokens(hall)[0] not in old)

    # The browser ends the subscription.
    driver.execute_script("localStorage.removeItem('fake')")
    worker.run("""(async () => {
      PushManager.prototype.subscribe = async (options) => { self.renewed = options; };
      const event = new Event("pushsubscriptionchange");
      let done = null;
      event.waitUntil = (promise) => { done = promise; };
      self.dispatchEvent(event);
      await done;
    })()""")
    check("then the worker subscribes again with the relay's key",
          worker.run("renewed.userVisibleOnly && renewed.applicationServerKey.length") == 87)
    until("and a page tells the relay for each room", lambda: tokens(kitchen)[0] == tokens(hall)[0] == hashlib.sha256(
        driver.execute_script("return JSON.parse(localStorage.getItem('fake')).subscription.endpoint").encode()).hexdigest())

    until("and knows that it has", lambda: find(driver, "notify").text == "Stop notifying")
    press(driver, "notify", "Notify me", "notify")
    until("the relay forgets a browser that stops notifications", lambda: tokens(kitchen)[0] == tokens(hall)[0] is None)
    check("and by the browser", driver.execute_script("return localStorage.getItem('fake')") is None)
    driver.refresh()
    until("it stays so", lambda: find(driver, "room").text == kitchen)
    check("until it is asked for again", find(driver, "notify").text == "Notify me")
    leave(driver)
    until("a member that leaves one room is in the other", lambda: find(driver, "room").text == hall and find(driver, "chat").is_displayed())
    leave(driver)
    until("and then at the door", lambda: find(driver, "login").is_displayed() and not find(driver, "back").is_displayed())
    quiet(driver, "rooms and notifications", 409)
    return relay
