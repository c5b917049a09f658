#!/usr/bin/env python3
"""Uses the chat page and the sandbox's inbox in a real browser, as people do.

Usage: browser_pages.py chat|operator RELAY-URL SANDBOX-URL SHELL RELAY-COMMAND…
(SHELL, a list in JSON, runs the SQL that follows it in the relay's database; the command restarts the relay on the same port)
Needs selenium and axe-core-python from PyPI, chromium and its driver. Prints a line for each check that passed. Ends with
status 1 at the first that failed. With SCREENSHOTS=FOLDER it saves pictures there.
"""
import base64, hashlib, hmac, json, os, shutil, signal, subprocess, sys, tempfile, threading, time, traceback, urllib.error, urllib.parse, urllib.request

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
import websocket  # A dependency of selenium.

from checks import check, until
from relay import start

WHAT, RELAY, SANDBOX, SHELL, COMMAND = *sys.argv[1:4], json.loads(sys.argv[4]), sys.argv[5:]
PICTURES = os.environ.get("SCREENSHOTS")
PHONE, DESKTOP = (390, 844), (1280, 800)
# Seconds after which an operation counts as hanging.
LIMIT = 120
browsers = []


def browser(size=DESKTOP, dark=False):
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--lang=en-GB"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    driver.set_page_load_timeout(LIMIT)
    driver.set_script_timeout(LIMIT)
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE})
    if dark:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": "dark"}]})
    browsers.append(driver)
    return driver


def find(driver, id):
    return driver.find_element(By.ID, id)


def texts(driver, selector="#log .bubble"):
    return driver.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((element) => element.textContent)", selector)


def click(driver, selector, text=""):
    """Clicks the first match that begins with the text. Finds it again if the page replaces it."""
    def look():
        [element] = [each for each in driver.find_elements(By.CSS_SELECTOR, selector) if each.text.startswith(text)][:1]
        driver.execute_script("arguments[0].scrollIntoView({ block: 'center' })", element)
        element.click()
        return True

    until(f"clicked: {text or selector}", look)


def enter(driver, name, code):
    driver.get(RELAY + "/")
    find(driver, "name").send_keys(name)
    find(driver, "code").send_keys(code + Keys.ENTER)
    until(f"{name} is in the room", lambda: find(driver, "chat").is_displayed())


def say(driver, text):
    """Types the characters of a keyboard, and pastes the others."""
    field = find(driver, "text")
    driver.execute_script(
        "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))", field, text)
    field.send_keys(Keys.ENTER)


def form(**fields):
    request = urllib.request.Request(RELAY + "/api.php", urllib.parse.urlencode(fields).encode())
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        return answer.read().decode()


def admin_call(method, path, body=None, token=None):
    """Calls the admin API. Returns the status and the response as JSON."""
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if token:
        headers["Authorization"] = "Bearer " + token
    request = urllib.request.Request(
        RELAY + path, method=method, headers=headers, data=None if body is None else json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return answer.status, json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"{}")


def control(method, path, body=None):
    request = urllib.request.Request(
        SANDBOX + path, method=method, data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"} if body is not None else {})
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        return json.loads(answer.read())


def picture(driver, name):
    if PICTURES:
        driver.save_screenshot(os.path.join(PICTURES, name + ".png"))


def accessible(driver, what):
    """Checks accessibility by the rules of axe-core."""
    from axe_core_python.selenium import Axe
    found = [violation for violation in Axe().run(driver)["violations"]
             if violation["impact"] in ("serious", "critical")]
    check(f"{what}: accessible by axe-core's rules", not found, json.dumps(
        [(violation["id"], [node["html"] for node in violation["nodes"]]) for violation in found], indent=1))


def quiet(driver, what, *refusals):
    """Checks that the console has no error, above all none of the content security policy. `refusals`: the expected statuses."""
    log = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    log = [line for line in log if "net::ERR" not in line and not any(f"status of {each}" in line for each in (404, *refusals))]
    check(f"{what}: the console is quiet", not log, log)


SHIFTS = """
const done = arguments[arguments.length - 1];
let sum = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) sum += entry.value;
}).observe({ type: "layout-shift", buffered: true });
setTimeout(() => done(sum), 500);
"""


def basics(relay):
    """Checks for a first visit that a page shows content without scripts, and that its layout does not shift when they run."""
    pages = [
        (RELAY + "/", "login", "login"), (RELAY + "/admin", "the operator's page", "figures"), (SANDBOX + "/", "inbox", "figures")]
    for size in (DESKTOP, PHONE):
        driver = browser(size)
        for address, what, shown in pages:
            driver.execute_cdp_cmd("Network.clearBrowserCache", {})
            driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": address, "storageTypes": "all"})
            driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
            driver.get(address)
            check(f"{what}: shows content without scripts",
                  len(driver.find_element(By.TAG_NAME, "body").text) > 60 and driver.find_element(By.TAG_NAME, "h1").is_displayed())
            driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
            driver.get(address)
            until(f"{what} is shown", lambda: find(driver, shown).is_displayed())
            shift = driver.execute_async_script(SHIFTS)
            check(f"{what}: the layout shifts by {shift:.3f}, less than 0.1", shift < 0.1, shift)
        browsers.remove(driver)
        driver.quit()
    return relay


def fits(driver, what):
    wide = driver.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    check(f"{what}: nothing is wider than the screen", wide <= 0, wide)


MARKUP = [
    "<script>document.title='hacked'</script>", "<img src=x onerror=\"document.title='hacked'\">", "\"><svg onload=alert(1)>",
    "javascript:alert(1)", "&lt;b&gt;", "{{constructor.constructor('alert(1)')()}}", "\u202eevil\u202c ok", "\u2066\u200f",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea", "a" + "\u0301" * 94, "line\nline", "<!--", "]]>",
]


def start_again(*more):
    """Starts the relay on its port, and waits until it responds."""
    return start(RELAY, [*COMMAND, *more])


def chat(relay):
    room = "kitchen & <b>"
    alice, bob = browser(), browser(PHONE, dark=True)
    alice.get(RELAY + "/")
    accessible(alice, "login")
    picture(alice, "login-light")
    bob.get(RELAY + "/")
    for code, warns in (("short", True), (" room-12 ", True), ("not so short", False), ("", False)):
        bob.execute_script(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", find(bob, "code"), code)
        check(f"a warning for {code!r}: {warns}", find(bob, "code-warning").is_displayed() == warns)
    picture(bob, "login-dark-phone")
    fits(bob, "login on a phone")
    enter(alice, "Alice", room)
    check("the room is in the header", find(alice, "room").text == room)
    check("and the code is not in the address", "#" not in alice.current_url, alice.current_url)

    # The link of the invitation leaves only the name to enter.
    find(alice, "invite").click()
    link = find(alice, "link").get_attribute("value")
    check("the invitation has a link and a picture", "#code=" in link and texts(alice, "#qr svg path") != [], link)
    picture(alice, "invite-light")
    accessible(alice, "invitation")
    find(alice, "close").click()
    bob.get("about:blank")
    bob.get(link)
    check("the link fills in the code", find(bob, "code").get_attribute("value") == room)
    find(bob, "name").send_keys("Bob" + Keys.ENTER)
    until("the invited member is in the room", lambda: find(bob, "chat").is_displayed())
    phone, carol = "c" * 64, "c" * 40
    form(cmd="join", udid=carol, token=phone, name="Carol", code=room)
    until("all are counted", lambda: find(alice, "members").text == "3 members" and find(bob, "members").text == "3 members")

    say(alice, "Coffee is ready")
    until("each browser shows the other's messages", lambda: texts(bob) == ["Coffee is ready"])
    until("once, and also its own", lambda: texts(alice) == ["Coffee is ready"] and not texts(alice, "#outbox li"))
    until("and the phone is pushed to", lambda: any(
        json.loads(n["payload"])["aps"]["alert"] == "Alice: Coffee is ready" and n["token"] == phone
        for n in control("GET", "/notifications")["notifications"]))
    form(cmd="message", udid=carol, text="From the phone")
    for driver in (alice, bob):
        until("browsers show the phone's message", lambda: texts(driver) == ["Coffee is ready", "From the phone"])
    check("with whose it is", texts(alice, "#log .name") == ["Carol"], texts(alice, "#log .name"))
    sides = alice.execute_script(
        "return [...document.querySelectorAll('#log .bubble')].map((b) => b.getBoundingClientRect().left > innerWidth / 2)")
    check("own to the right, others to the left", sides == [True, False], sides)

    # Use only the keyboard.
    field = find(bob, "text")
    field.send_keys("Two" + Keys.SHIFT + Keys.ENTER + Keys.NULL + "lines")
    check("Shift and Enter break the line", field.get_attribute("value") == "Two\nlines", field.get_attribute("value"))
    field.send_keys(Keys.ENTER)
    until("Enter sends", lambda: texts(alice)[-1] == "Two\nlines")
    say(bob, "é" * 95)
    until("190 bytes are accepted", lambda: texts(alice)[-1] == "é" * 95)
    say(bob, "é" * 96)
    check("191 are not: they stay, and are counted", find(bob, "left").text == "-2" and not find(bob, "send").is_enabled())
    bob.execute_script("arguments[0].value = ''; arguments[0].dispatchEvent(new Event('input'))", field)

    for text in MARKUP:
        say(alice, text)
        until(f"harmless: {text[:30]!r}", lambda: texts(bob)[-1] == text.strip())
    check("no script of a message has run", bob.title.endswith("PushChat") and alice.title.endswith("PushChat"), bob.title)
    height = bob.execute_script(
        "return Math.max(...[...document.querySelectorAll('#log .bubble')].map((b) => b.getBoundingClientRect().height))")
    check("a tower of accents stays in its bubble", height < 260, height)
    fits(bob, "chat on a phone")
    fits(alice, "chat")
    accessible(alice, "chat")
    accessible(bob, "chat in the dark")

    # The relay is killed and restarted.
    relay.send_signal(signal.SIGKILL)
    relay.wait()
    say(alice, "Are you there?")
    until("a message that could not be sent stays and is marked", lambda: "Not sent" in "".join(texts(alice, "#outbox .problem")))
    picture(alice, "unsent-light")
    relay = start_again()
    form(cmd="message", udid=carol, text="While you were away")
    for driver in (alice, bob):
        until("after a restart nothing is missing", lambda: texts(driver)[-1] == "While you were away")
    click(alice, "#outbox button")
    for driver in (alice, bob):
        until("a message that is sent again arrives", lambda: texts(driver)[-2:] == ["While you were away", "Are you there?"])
    until("and waits no more", lambda: not texts(alice, "#outbox li"))

    # The network goes offline and comes back.
    for offline in (True, False):
        bob.execute_cdp_cmd("Network.enable", {})
        bob.execute_cdp_cmd("Network.emulateNetworkConditions", {
            "offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1})
        if offline:
            until("the page says that it is offline", lambda: "offline" in find(bob, "status").text)
            form(cmd="message", udid=carol, text="Said meanwhile")
    until("back online no message is missing", lambda: texts(bob)[-1] == "Said meanwhile")
    until("nor with the other", lambda: texts(alice)[-1] == "Said meanwhile")
    check("and nothing is double", texts(bob) == texts(alice), (texts(bob), texts(alice)))
    before = texts(bob)
    bob.refresh()
    until("a reload shows the same", lambda: texts(bob) == before)
    picture(alice, "chat-light")
    picture(bob, "chat-dark-phone")

    # Without a relay the page opens from the service worker.
    until("the worker is active", lambda: bob.execute_async_script(
        "const done = arguments[0]; navigator.serviceWorker.ready.then((r) => done(!!r.active))"))
    bob.refresh()
    until("it has the page", lambda: bob.execute_script("return !!navigator.serviceWorker.controller"))
    relay.send_signal(signal.SIGTERM)
    relay.wait()
    bob.refresh()
    until("the page opens without the relay", lambda: texts(bob) == before)
    relay = start_again()
    say(bob, "Back again")
    until("and goes on with it", lambda: texts(alice)[-1] == "Back again", 40)

    find(bob, "leave").click()
    until("a member that leaves sees the login form", lambda: find(bob, "login").is_displayed())
    until("and is not counted", lambda: find(alice, "members").text == "2 members")
    check("the page is clean after it", texts(bob) == [])
    quiet(alice, "chat")
    return relay


def together(relay):
    """Two terminals, a browser and a posting script in one room; the relay is killed in the middle."""
    room, count = "workshop", 24
    state = tempfile.mkdtemp()
    driver = browser()
    enter(driver, "Cleo", room)
    terminals, printed = [], []
    for name in ("Ada", "Ben"):
        lines = open(os.path.join(state, name), "w+")
        terminals.append(subprocess.Popen(
            [COMMAND[0], "chat", room, "--name", name, "--json", "--follow", "--relay", RELAY], stdin=subprocess.PIPE, text=True,
            stdout=lines, stderr=subprocess.DEVNULL, env={**os.environ, "XDG_STATE_HOME": state}))
        printed.append(lambda path=lines.name: [
            line["text"] for line in map(json.loads, open(path).read().splitlines()) if "text" in line])
        until(f"{name} is in the room", lambda: '"event":"room"' in open(lines.name).read())

    def script():
        for number in range(count):
            post = urllib.request.Request(
                RELAY + "/v1/messages?room=" + room, f"post {number}".encode(), {"Idempotency-Key": f"post-{number}"})
            while True:
                try:
                    urllib.request.urlopen(post, timeout=10).close()
                    break
                except OSError:  # The relay does not listen, or does not respond any more.
                    time.sleep(0.05)

    posting = threading.Thread(target=script)
    posting.start()
    until("the posts come", lambda: "post 3" in texts(driver))
    for number in range(8):
        for each, name in zip(terminals, "ab"):
            each.stdin.write(f"{name} {number}\n")
            each.stdin.flush()
        if number == 3:
            relay.send_signal(signal.SIGKILL)
            relay.wait()
            relay = start_again()
    posting.join()
    say(driver, "the last")
    every = {f"post {number}" for number in range(count)} | {f"{name} {number}" for name in "ab" for number in range(8)}
    for told in (*printed, lambda: texts(driver)):
        until("all members have all messages", lambda: every | {"the last"} <= set(told()), told=told)
    check("once, and in one order", printed[0]() == printed[1]() == texts(driver) and len(printed[0]()) == len(every) + 1,
          [each() for each in printed] + [texts(driver)])
    for each in terminals:
        each.send_signal(signal.SIGTERM)
        check("a terminal ends in order", each.wait(20) == 0)
    shutil.rmtree(state)
    return relay


def inbox(relay):
    driver, phone = browser(), browser(PHONE, dark=True)
    for each in (driver, phone):
        each.get(SANDBOX + "/")
        until("the inbox shows the pushes", lambda: any("Carol" in text or "Alice: " in text for text in texts(each, "#list .body")))
    count = len(texts(driver, "#list li"))
    token = "d" * 64
    form(cmd="join", udid="d" * 40, token=token, name="Dora", code="<i>hall</i>")
    form(cmd="join", udid="e" * 40, token=0, name="<u>Eve</u>", code="<i>hall</i>")
    form(cmd="message", udid="e" * 40, text="<b>Hello</b> \U0001f375")
    until("and shows new ones first", lambda: texts(driver, "#list li:first-child .body") == ["<u>Eve</u>: <b>Hello</b> \U0001f375"])
    click(driver, "#list li:first-child button")
    check("all of it is shown", "<b>Hello</b>" in find(driver, "pretty").text and token in find(driver, "facts").text)
    check("with its size", "bytes of 4096" in find(driver, "size").text, find(driver, "size").text)
    accessible(driver, "inbox")
    accessible(phone, "inbox in the dark")
    fits(phone, "inbox on a phone")
    picture(driver, "inbox-light")
    picture(phone, "inbox-dark-phone")

    driver.find_element(By.ID, "remove").click()
    until("an app is removed by a button", lambda: "rejected" in find(driver, "removed").text)
    form(cmd="message", udid="e" * 40, text="Gone")
    until("and the next push is refused", lambda: texts(driver, "#list li:first-child .marks .bad") == ["Unregistered"])
    find(driver, "make").click()
    made = until("a device is made by a button", lambda: texts(driver, "#devices code")[:1] != [token] and texts(driver, "#devices code")[0])
    form(cmd="join", udid="d" * 40, token=made, name="Dora", code="<i>hall</i>")
    field = find(driver, "fault-reason")
    field.clear()
    field.send_keys("BadMessageId")
    click(driver, "#fault button")
    until("a fault is asked for by a button", lambda: "BadMessageId" in " ".join(texts(driver, "#faults li")))
    form(cmd="message", udid="e" * 40, text="Goes wrong")
    until("and happens", lambda: texts(driver, "#list li:first-child .marks .bad") == ["BadMessageId"])
    find(driver, "clear-faults").click()
    until("and goes away", lambda: texts(driver, "#faults li") == [])
    find(driver, "filter-token").send_keys(made)
    until("the list is narrowed to a token", lambda: len(texts(driver, "#list li")) == 1)
    find(driver, "filter-token").clear()
    find(driver, "filter-token").send_keys(" " + Keys.BACKSPACE)
    until("and widened again", lambda: len(texts(driver, "#list li")) > count)
    find(driver, "make-browser").click()
    subscription = until("a browser is made by a button", lambda: find(driver, "subscription-text").text)
    form(cmd="join", udid="f" * 40, subscription=subscription, name="Fred", code="<i>hall</i>")
    form(cmd="message", udid="e" * 40, text="To a browser")
    until("and shows posted messages", lambda: any("a browser" in text and "To a browser" in text for text in texts(driver, "#list li")))
    accessible(driver, "inbox with a browser")
    click(driver, "#browsers button")
    until("it is ended by a button", lambda: texts(driver, "#browsers .bad") == ["removed"])
    find(driver, "clear").click()
    until("it is emptied", lambda: texts(driver, "#list li") == [] and find(driver, "empty").is_displayed())
    quiet(driver, "inbox")
    return relay


def sessions(relay):
    """Uses sessions of the operator's own system: they survive a reload, and no text is lost when one ends."""
    relay.send_signal(signal.SIGTERM)
    relay.wait()
    secret = "a-shared-secret-of-at-least-32-characters"
    relay = start_again("--set", "registration=session", "--set", "session.secret=" + secret)

    def link(seconds):
        parts = [json.dumps(part).encode() for part in (
            {"alg": "HS256", "typ": "JWT"}, {"sub": "ivy", "exp": int(time.time()) + seconds})]
        text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
        signature = base64.urlsafe_b64encode(hmac.digest(secret.encode(), text, hashlib.sha256)).rstrip(b"=")
        return RELAY + "/#" + urllib.parse.urlencode({"code": "clubhouse", "token": (text + b"." + signature).decode()})

    driver = browser()
    driver.get(link(600))
    find(driver, "name").send_keys("Ivy" + Keys.ENTER)
    until("with a session one enters", lambda: find(driver, "chat").is_displayed())
    say(driver, "first")
    until("and speaks", lambda: texts(driver) == ["first"] and texts(driver, "#outbox li") == [])
    driver.refresh()
    until("the tab keeps the session", lambda: find(driver, "members").text == "Only you are here")
    driver.get("about:blank")
    driver.get(link(-600))
    until("the page says that the session has ended", lambda: "session has ended" in find(driver, "status").text)
    say(driver, "second")
    until("a message that is posted then stays", lambda: "expired" in "".join(texts(driver, "#outbox .problem")))
    driver.get("about:blank")
    driver.get(link(600))
    until("a new one goes on", lambda: find(driver, "members").text == "Only you are here")
    click(driver, "#outbox button")
    until("and the kept message is sent", lambda: texts(driver) == ["first", "second"] and texts(driver, "#outbox li") == [])
    return relay


class DevTools:
    """The DevTools protocol of a browser or a target, for the events and workers that its driver does not support."""

    def __init__(self, driver, kind=None, address=None):
        debugger = driver.capabilities["goog:chromeOptions"]["debuggerAddress"]

        def ask(what):
            with urllib.request.urlopen(f"http://{debugger}/json/{what}", timeout=LIMIT) as answer:
                return json.loads(answer.read())

        def look():
            return [target for target in ask("list") if target["type"] == kind and target["url"].startswith(address)]
        target = until(f"the debugger sees the {kind}", look)[0] if kind else ask("version")
        self.socket = websocket.create_connection(target["webSocketDebuggerUrl"], timeout=LIMIT, suppress_origin=True)
        self.count = 0
        self.events = []

    def call(self, method, **parameters):
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise SystemExit(f"FAILED {method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def allow(self, *permissions):
        """Grants permissions to the relay's pages while this object exists: they end with the connection."""
        self.call("Browser.grantPermissions", permissions=permissions, origin=RELAY)

    def run(self, script):
        """Returns the value of a script's last expression, which may be a promise."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise SystemExit(f"FAILED {script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def event(self, method, holds):
        while True:
            for event in self.events:
                if event.get("method") == method and holds(event["params"]):
                    return event["params"]
            self.events.append(json.loads(self.socket.recv()))


# A fake push service, because the browser's own needs the vendor's. Like that one, it keeps one subscription per worker.
FAKE_PUSH_SERVICE = """
(() => {
  const stored = () => JSON.parse(localStorage.getItem("fake") ?? "null");
  const bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const made = (kept) => kept && {
    options: { applicationServerKey: bytes(kept.key).buffer },
    toJSON: () => kept.subscription,
    unsubscribe: async () => { localStorage.removeItem("fake"); return true; },
  };
  PushManager.prototype.getSubscription = async () => made(stored());
  PushManager.prototype.subscribe = async (options) => {
    if (localStorage.getItem("fail")) throw new DOMException("push service not available", "AbortError");
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


def notifications(relay):
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
        check("one room needs no list", not find(each, "room-list").is_displayed())
        for code in (hall, third)[: 1 if each is driver else 2]:
            find(each, "another").click()
            check("a member that joins another room can go back", find(each, "back").is_displayed())
            picture(each, "another-" + ("light" if each is driver else "dark-phone"))
            check("and need not say the name again", find(each, "name").get_attribute("value") == "Nina")
            find(each, "code").send_keys(code + Keys.ENTER)
            until("and is in it as well", lambda: find(each, "room").text == code and find(each, "chat").is_displayed())
    check("both rooms are listed", texts(driver, "#room-list button") == [kitchen, hall])
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
    driver.execute_script("localStorage.removeItem('fail')")
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

    find(driver, "another").click()  # Show no room, so that its notifications stay.
    form(cmd="message", udid="1" * 40, text="Soup")
    soup = message(kitchen, 4711, "Soup", silent=True)
    push_until("a push is shown", lambda: [(each["title"], each["body"], each["tag"], each["silent"], each["data"]["message_id"])
               for each in shown()] == [("Otto", "Soup", "message-4711", True, 4711)], soup)
    # The worker handles both at the same time, in any order.
    push_until("a repeat replaces, another is added", lambda: {(each["tag"], each["silent"]) for each in shown()}
               == {("message-4711", True), ("message-4712", False)} and len(shown()) == 2,
               soup, message(hall, 4712, "Open the door"))
    until("unread messages are counted, at the room and in the title", lambda: driver.title.startswith("(1) ")
          and texts(driver, "#room-list .unread-count") == ["1 unread"])
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
    until("a push counts for a room that is not shown", lambda: texts(driver, "#room-list button") == [kitchen, hall + "1 unread"])
    accessible(driver, "two rooms")
    fits(driver, "two rooms")
    picture(driver, "unread-light")
    driver.find_element(By.CSS_SELECTOR, "#room-list li:nth-child(2) button").send_keys(Keys.ENTER)
    until("by the keyboard the other room is shown", lambda: find(driver, "room").text == hall and texts(driver) == ["Open the door"])
    check("the focus stays in the list", driver.switch_to.active_element.text == hall)
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
    check("a click then opens the room", worker.run("opened") == ["/#room=" + room_hash(kitchen)], worker.run("opened"))
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
    find(driver, "leave").click()
    until("a member that leaves one room is in the other", lambda: find(driver, "room").text == hall and find(driver, "chat").is_displayed()
          and find(driver, "leave").is_enabled())
    find(driver, "leave").click()
    until("and then at the door", lambda: find(driver, "login").is_displayed() and not find(driver, "back").is_displayed())
    quiet(driver, "rooms and notifications", 409)
    return relay


# Keeps the page's streams, so that a test can send events as a relay would, and counts additions to the message list.
WATCHED_STREAMS = """
(() => {
  self.streams = [];
  self.EventSource = class extends EventSource {
    constructor(...all) { super(...all); streams.push(this); }
  };
  self.hear = (name, data) => streams.at(-1).dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data) }));
  self.added = 0;
  self.watch = () => {
    self.added = 0;
    new MutationObserver((changes) => changes.forEach((change) => { added += change.addedNodes.length; }))
      .observe(document.getElementById("log"), { childList: true, subtree: true, characterData: true });
  };
})();
"""


def programs(relay):
    """Tests programs' messages with title and link, deleted messages, removed members, and banned members."""
    room = "machines"
    driver, phone = browser(), browser(PHONE, dark=True)
    allowing = DevTools(driver)
    allowing.allow("notifications")
    for each, name in ((driver, "Ada"), (phone, "Ben")):
        each.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCHED_STREAMS})
        enter(each, name, room)
        until("and has a stream", lambda: find(each, "members").text != "\u00a0" and each.execute_script("return streams.length"))

    def post(**fields):
        status, answer = admin_call("POST", "/v1/messages", {"room": room, "name": "backup", **fields})
        check("a program posts", status == 201, answer)
        return answer["id"]

    spoken = " (opens a new tab)"
    link = "https://example.org/backup?x=1&y=<b>#z"
    first = post(text="/srv: 12 GB\nin 3 minutes", title="Backup", link=link)
    second = post(text="All disks are well", link="http://[::1]:8080/disks")
    third = post(text="Restart when you have the time", title="Updates installed")
    fourth = post(text="It is 31 °C in the rack")
    wanted = ["Backup" + spoken + "/srv: 12 GB\nin 3 minutes", "All disks are well[::1]:8080" + spoken,
              "Updates installedRestart when you have the time", "It is 31 °C in the rack"]
    for each in (driver, phone):
        until("with title and link, the page shows it", lambda: texts(each) == wanted)
        check("and says that a program has written it", texts(each, "#log .name") == ["backup program"], texts(each, "#log .name"))
        links = each.find_elements(By.CSS_SELECTOR, "#log a")
        check("the title is the link; without one, the host is", [
            (made.get_attribute("href"), made.accessible_name) for made in links] == [
                (link.replace("<", "%3C").replace(">", "%3E"), "Backup" + spoken),
                ("http://[::1]:8080/disks", "[::1]:8080" + spoken)],
            [(made.get_attribute("href"), made.accessible_name) for made in links])
        check("it opens another page, which learns nothing of this one", all(
            made.get_attribute("target") == "_blank" and made.get_attribute("rel") == "noopener noreferrer" for made in links))
        check("title, text and host are read one after the other, on lines of their own", set(each.execute_script(
            "return [...document.querySelectorAll('#log .bubble > *')].map((part) => getComputedStyle(part).display)")) == {"block"})
        check("the title is bold", int(each.execute_script(
            "return getComputedStyle(document.querySelector('#log .title')).fontWeight")) >= 600)
    for bad in ("javascript:alert(1)", "data:text/html,x", "//example.org", "file:///etc/passwd", 7, {}, ""):
        made = driver.execute_script("return bubbleOf({ title: '<b>T', text: '<b>x', link: arguments[0] }).outerHTML", bad)
        check(f"no link to {bad!r}", not any(part in made for part in ("<a", "href", "<b")), made)
    form(cmd="join", udid="9" * 40, token=0, name="Cleo", code=room)
    form(cmd="message", udid="9" * 40, text="Thank you, backup!")
    say(phone, "Good")
    until("people answer", lambda: len(texts(driver)) == 6 and texts(phone, "#outbox li") == [])
    accessible(phone, "messages of programs in the dark")
    accessible(driver, "messages of programs")
    fits(phone, "messages of programs on a phone")
    phone.execute_script("document.activeElement.blur()")
    picture(phone, "chat-titled-dark-phone")
    picture(driver, "chat-titled-light")

    # The operator deletes a message. If the relay cannot delete yet, the test sends the event to the stream.
    def delete(id):
        status, _ = admin_call("DELETE", f"/v1/messages/{id}")
        if status != 204:
            check("this relay does not delete", status in (404, 405), status)
            for each in (driver, phone):
                each.execute_script("hear('deleted', { id: arguments[0] })", id)

    def kept(each):
        return each.execute_script("""return Object.keys(localStorage).filter((key) => key.startsWith("pushchat.room."))
            .flatMap((key) => JSON.parse(localStorage.getItem(key)).messages.map((message) => message.id))""")

    def notified():
        return driver.execute_async_script("""const done = arguments[0];
            navigator.serviceWorker.ready.then((worker) => worker.getNotifications())
              .then((all) => done(all.map((each) => each.tag).sort()))""")

    driver.execute_async_script("""const [tags, done] = arguments; navigator.serviceWorker.ready.then((worker) =>
        Promise.all(tags.map((tag) => worker.showNotification("backup", { tag })))).then(() => done())""",
                                [f"message-{first}", f"message-{second}"])
    check("names stand above the first of several", texts(driver, "#log .name") == ["backup program", "Cleo", "Ben"], texts(driver, "#log .name"))
    driver.execute_script("watch(); document.querySelector('#log a').focus()")
    delete(first)
    for each in (driver, phone):
        until("a deleted message is gone from the page", lambda: texts(each)[0] == wanted[1] and len(texts(each)) == 5)
        until("and from its stored messages", lambda: first not in kept(each) and second in kept(each))
        check("the next one has the name now", texts(each, "#log .name")[0] == "backup program", texts(each, "#log .name"))
    until("its notification is closed, others stay", lambda: notified() == [f"message-{second}"])
    check("a screen reader has nothing new to read", driver.execute_script("return added") == 0, driver.execute_script("return added"))
    check("the focus stays among the messages", driver.switch_to.active_element.get_attribute("id") == "scroll")
    find(driver, "another").click()
    more = [post(text="unread one"), post(text="unread two")]
    until("messages that arrive in the meantime are unread", lambda: driver.title.startswith("(2) "))
    delete(more[0])
    until("a deleted message is no longer unread", lambda: driver.title.startswith("(1) "))
    delete(second)  # It has been read.
    until("a deleted message that was read does not change the count", lambda: second not in kept(driver) and driver.title.startswith("(1) "))
    delete(more[1])
    until("then no message is unread", lambda: not driver.title.startswith("(") and texts(driver, "#log .unread") == [])
    find(driver, "back").click()

    # Another program deletes a message in the database while no page is open.
    driver.get("about:blank")
    subprocess.run([*SHELL, f"DELETE FROM messages WHERE message_id = {fourth}"], check=True, timeout=LIMIT)
    driver.get(RELAY + "/")
    until("messages that were deleted in the meantime are gone", lambda: texts(driver) == [wanted[2], "Thank you, backup!", "Good"]
          and fourth not in kept(driver))
    until("and the page listens again", lambda: driver.execute_script("return streams.length"))
    for id in kept(phone):
        phone.execute_script("hear('deleted', { id: arguments[0] })", id)
    until("nothing is left of an empty room, not even its days", lambda: phone.execute_script(
        "return document.getElementById('log').childElementCount") == 0)
    quiet(driver, "messages of programs")

    # The operator removes and bans a member.
    _, answer = admin_call("GET", "/v1/members?" + urllib.parse.urlencode({"room": room}, quote_via=urllib.parse.quote))
    [ada] = [member["id"] for member in answer["members"] if member["name"] == "Ada"]
    removed = driver.execute_script("return current.udid")
    status, _ = admin_call("DELETE", f"/v1/members/{ada}")
    if status != 204:
        check("this relay does not remove", status in (404, 405), status)
        driver.execute_script("hear('left', { reason: 'removed' })")
    until("a removed member sees the reason", lambda: find(driver, "login-error").text == "You were removed from this room.")
    check("and comes back with no single click", [find(driver, id).get_attribute("value") for id in ("name", "code")] == ["", ""])
    driver.execute_script("""window.fetch = async (path, options) => {
        window.joined = options?.body?.get?.("udid") ?? window.joined;
        return new Response(
            JSON.stringify({ error: { code: "forbidden", message: "This room is closed until Monday." } }), { status: 403 }); }""")
    find(driver, "name").send_keys("Ada")
    find(driver, "code").send_keys(room, Keys.ENTER)
    until("a banned member sees the reason", lambda: find(driver, "login-error").text == "This room is closed until Monday.")
    check("and is the member that was removed", driver.execute_script("return joined") == removed, removed)
    accessible(driver, "a refusal at the door")
    return relay


def look_up(driver, kind, term, submit=True):
    click(driver, f"#kind option[value={kind}]")
    find(driver, "term").clear()
    find(driver, "term").send_keys(term)
    if submit:
        click(driver, "#search button")


def night():
    """Tests the metrics of the relay's last twelve hours, in one of which it did not run."""
    now = time.time()
    with open(COMMAND[COMMAND.index("--database") + 1] + ".figures", "w") as file:
        for ago in [*range(720, 300, -1), *range(240, 0, -1)]:
            json.dump({"at": time.strftime("%Y-%m-%dT%H:%M:00.000Z", time.gmtime(now - 60 * ago)),
                       "queue": 400 if 500 < ago < 520 else ago % 7, "oldest_age_seconds": 90.5 if 500 < ago < 520 else 0.0,
                       "sent": 200 + ago % 90, "failed": 40 if ago == 600 else 0, "messages": 20, "streams": 5}, file)
            file.write("\n")


def admin(relay):
    relay.send_signal(signal.SIGTERM)
    relay.wait()
    night()
    relay = start_again("--set", "admin.token=geheim-und-lang-genug")
    driver, phone = browser(), browser(PHONE, dark=True)
    for each in (driver, phone):
        each.get(RELAY + "/admin")
        until("the operator is asked for the token", lambda: find(each, "door").is_displayed())
        check("and nothing is shown without it", texts(each, "#figures dd") == [])
    accessible(driver, "the operator's door")
    find(driver, "token").send_keys("wrong" + Keys.ENTER)
    until("a wrong one is refused", lambda: "not the relay's admin.token" in find(driver, "problem").text)
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
    until("the failure is among the recent errors", lambda: "PayloadTooLarge" in find(driver, "failures").text)
    check("and its log line is shown", "refused by the gateway" in find(driver, "warnings").text)
    look_up(driver, "token", "not hexadecimal", submit=False)
    click(driver, "#search button")
    until("the page shows the error", lambda: "hexadecimal" in find(driver, "problem").text)
    driver.execute_script("scrollTo(0, 0)")
    accessible(driver, "the operator's page")
    accessible(phone, "the operator's page in the dark")
    fits(phone, "the operator's page on a phone")
    fits(driver, "the operator's page")
    picture(driver, "admin-light")
    picture(phone, "admin-dark-phone")
    tokens_of_programs(driver, phone)
    return relay


ADMIN = "geheim-und-lang-genug"


def sure(driver, title):
    """Checks the dialog before an irreversible action."""
    until(f"is asked: {title}", lambda: find(driver, "sure").is_displayed() and find(driver, "sure-title").text == title)


def press_key(driver, key):
    click(driver, f"[data-key={key}]")


def tokens_of_programs(driver, phone):
    """Tests that tokens can be created, are shown once, can be used and revoked."""
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
    until("a token without a scope is not created", lambda: "Choose what" in find(driver, "problem").text)
    create("figures", room="kitchen", scopes=("figures",))
    until("the page shows the relay's refusal", lambda: "leave out room" in find(driver, "problem").text)
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


# Simulates a relay that supports neither tokens nor moderation.
OLD_RELAY = """
const real = fetch;
self.fetch = async (path, options = {}) =>
  /^\\/v1\\/(bans|moderation|tokens)/.test(new URL(path, location.origin).pathname) || options.method === "DELETE"
    ? new Response("{}", { status: 404 }) : real(path, options);
"""


def order(relay):
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


def another_app(relay):
    """Tests "Use another app": passwords for clients of ntfy and Gotify are made, shown, passed on by a QR code, and revoked."""
    driver, phone = browser(), browser(PHONE, dark=True)
    enter(driver, "Ada", "workbench & <b>")
    udid = driver.execute_script("return JSON.parse(localStorage.getItem(\"pushchat.rooms\"))[0].udid")

    def lines(each):
        return dict(each.execute_script(
            "return [...document.querySelectorAll(\"#app-rows label\")].map((row) => [row.firstChild.data, row.lastChild.value])"))

    def status(secret):
        # Other calls than those of ntfy and Gotify refuse a credential, but not in the words for an unknown one.
        return admin_call("GET", "/v1/messages?room=workbench", token=secret)[0]

    find(driver, "use-app").send_keys(Keys.ENTER)
    until("the dialog is open", lambda: find(driver, "apps").is_displayed())
    check("without an app, there is no list", not find(driver, "app-own").is_displayed())
    accessible(driver, "another app")
    find(driver, "app-name").send_keys("<i>Phone</i>" + Keys.ENTER)
    until("a password is made", lambda: find(driver, "app-lines").is_displayed())
    check("its lines have the focus", driver.switch_to.active_element.get_attribute("id") == "app-lines-title")
    ntfy = lines(driver)
    topic, secret = ntfy["Topic"], ntfy["Password"]
    check("ntfy gets the server, the topic, a user name and the password", list(ntfy) == ["Topic", "Server", "User name", "Password"]
          and ntfy["Server"] == RELAY + "/ntfy" and len(topic) == 22 and secret.startswith("pcc_") and ntfy["User name"], ntfy)
    until("the app is listed", lambda: texts(driver, "#app-list bdi") == ["<i>Phone</i>"])
    check("as one that was not used", texts(driver, "#app-list .hint") == ["Not used yet"], texts(driver, "#app-list .hint"))
    check("the picture is there", texts(driver, "#app-qr svg path") != [])
    picture(driver, "another-app-light")
    accessible(driver, "the lines for another app")
    click(driver, "#app-rows div:last-child button")
    until("the password can be copied", lambda: find(driver, "app-status").text == "Password copied")
    click(driver, "#app-kinds label", "Gotify")
    gotify = lines(driver)
    check("Gotify gets the URL, a user name and the password", list(gotify) == ["URL", "User name", "Password"]
          and gotify["URL"] == RELAY + "/gotify" and gotify["Password"] == secret, gotify)

    # Another device opens the link of the picture. It need not be in the room.
    phone.get(RELAY + "/#" + urllib.parse.urlencode({"app": secret, "topic": topic}))
    until("the picture opens the lines on a phone", lambda: find(phone, "apps").is_displayed())
    check("the same ones", lines(phone) == ntfy, lines(phone))
    check("and the password is not in the address", "#" not in phone.current_url, phone.current_url)
    check("nor is there a list, or a picture", not find(phone, "app-own").is_displayed() and not find(phone, "app-qr").is_displayed())
    picture(phone, "another-app-dark-phone")
    accessible(phone, "the lines on a phone")
    fits(phone, "the lines on a phone")
    find(phone, "apps-close").click()
    check("closed, the password is gone", secret not in phone.page_source and lines(phone) == {})
    for fragment in ({"app": "Call 0900 now", "topic": topic}, {"app": secret, "topic": "x"}, {"app": secret}):
        phone.get("about:blank")
        phone.get(RELAY + "/#" + urllib.parse.urlencode(fragment))
        until("the page is shown", lambda: find(phone, "login").is_displayed())
        check(f"a link with other text shows no lines: {list(fragment.values())[-1]}", not find(phone, "apps").is_displayed())

    check("the relay knows the password", status(secret) == 403, status(secret))
    driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    until("Escape closes the dialog", lambda: not find(driver, "apps").is_displayed())
    check("and the password is gone", secret not in driver.page_source and lines(driver) == {})

    def used():
        find(driver, "use-app").click()
        time.sleep(0.2)
        shown = texts(driver, "#app-list .hint")
        if not any(text.startswith("Last used") for text in shown):
            find(driver, "apps-close").click()
            return None
        return shown
    shown = until("the list shows the last use", used)
    check("with its address", " from " in shown[0], shown)
    click(driver, "#app-list button")
    check("Revoke asks first", "Press again" in find(driver, "app-status").text and status(secret) == 403)
    click(driver, "#app-list button")
    until("then it revokes", lambda: texts(driver, "#app-list li") == [] and "is revoked" in find(driver, "app-status").text)
    check("the relay does not know the password any more", status(secret) == 401, status(secret))
    for number in range(20):
        form(cmd="credential", udid=udid, name=f"app {number}")
    click(driver, "#app-make")
    until("the limit is explained", lambda: "20 credentials" in find(driver, "app-status").text)
    find(driver, "apps-close").click()
    find(driver, "leave").click()
    until("the member has left", lambda: find(driver, "login").is_displayed())
    quiet(driver, "another app", 409)
    quiet(phone, "another app on a phone")
    return relay


def new_code(relay):
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


# Each scenario takes the relay, and returns the one that runs at its end. Later ones continue with what earlier ones left.
SCENARIOS = {"chat": [basics, chat, programs, another_app, inbox, together], "operator": [admin, order, new_code, notifications, sessions]}
relay, scenario = None, None
try:
    relay = start_again()
    for scenario in SCENARIOS[WHAT]:
        relay = scenario(relay)
except SystemExit:
    for number, driver in enumerate(browsers):
        try:
            print(f"browser {number}:", driver.get_log("browser"), file=sys.stderr)
        except Exception:
            pass
    print(f"failed scenario: {scenario.__name__ if scenario else 'start'}", file=sys.stderr)
    raise
except Exception:
    traceback.print_exc()
    print(f"failed scenario: {scenario.__name__ if scenario else 'start'}", file=sys.stderr)
    sys.exit(1)
finally:
    for driver in browsers:
        try:
            driver.quit()
        except Exception:
            pass
    if relay:
        relay.kill()
