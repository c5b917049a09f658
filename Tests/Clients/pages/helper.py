"""The steps that the scenarios of the pages share."""
import json, os, sys, urllib.error, urllib.parse, urllib.request

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
import websocket  # A dependency of selenium.

from checks import check, until
from pages.firefox import Firefox
from relay import start

RELAY, SANDBOX, SHELL, COMMAND = *sys.argv[2:4], json.loads(sys.argv[4]), sys.argv[5:]
PICTURES = os.environ.get("SCREENSHOTS")
IN_FIREFOX = os.environ.get("BROWSER") == "firefox"
PHONE, DESKTOP = (390, 844), (1280, 800)
# The tabs of the operator's page.
TABS = ("overview", "rooms", "devices", "notifications", "queue", "tokens", "moderation", "log")
# Seconds after which an operation counts as hanging.
LIMIT = 120
ADMIN = os.environ.get("ADMIN_TOKEN", "geheim-und-lang-genug")
browsers, relays = [], []


def browser(size=DESKTOP, dark=False, text=16):
    """Opens a browser. `text` is the text size in pixels that its user prefers. Firefox ignores it."""
    if IN_FIREFOX:
        browsers.append(Firefox(size, dark, LIMIT))
        return browsers[-1]
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--lang=en-GB"):
        options.add_argument(argument)
    if RELAY.startswith("https:"):
        # A worker needs the flag: for its script the driver's own setting is not enough.
        options.add_argument("--ignore-certificate-errors")
    options.add_experimental_option("prefs", {"webkit.webprefs.default_font_size": text})
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
    """Clicks the first match that begins with the text. Finds it again if the page replaces it, and waits until it is enabled."""
    def look():
        [element] = [each for each in driver.find_elements(By.CSS_SELECTOR, selector) if each.text.startswith(text)][:1]
        if not element.is_enabled():
            return False
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


def choose(driver, id):
    """Presses a button of the chat's menu."""
    find(driver, "menu-button").click()
    click(driver, "#" + id)


def leave(driver):
    """Leaves the room that is shown. The page asks first."""
    choose(driver, "leave")
    until("the page asks before a member leaves", lambda: find(driver, "leaving").is_displayed())
    find(driver, "really-leave").click()


def lose_network(driver, is_lost):
    if isinstance(driver, Firefox):
        return driver.lose_network(is_lost)
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd("Network.emulateNetworkConditions", {
        "offline": is_lost, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1})


def resize(driver, width, height):
    if isinstance(driver, Firefox):
        return driver.resize(width, height)
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500})


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
        return json.loads(answer.read() or b"{}")


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
    # On a busy machine the relay may not be ready for a moment.
    log = [line for line in log if "/readyz" not in line]
    check(f"{what}: the console is quiet", not log, log)


def fits(driver, what):
    wide = driver.execute_script("""
        const { scrollWidth, clientWidth } = document.documentElement;
        if (scrollWidth <= clientWidth) return [];
        const isOut = ({ left, right }) => left < -1 || right > clientWidth + 1;
        return [scrollWidth - clientWidth, ...[...document.querySelectorAll("body *")]
          .filter((each) => isOut(each.getBoundingClientRect()) && !each.querySelector("*"))
          .map((each) => [each.tagName, each.id, each.textContent.slice(0, 40)])]""")
    check(f"{what}: nothing is wider than the screen", not wide, wide)


def start_again(*more):
    """Starts the relay on its port, and waits until it responds."""
    relays.append(start(RELAY, [*COMMAND, *more]))
    return relays[-1]


def end_relays():
    while relays:
        relay = relays.pop()
        relay.kill()
        relay.wait()


def end_browsers():
    while browsers:
        try:
            browsers.pop().quit()
        except Exception:
            pass


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


def operator(token=None, **sizes):
    """Opens the operator's page in a new browser."""
    driver = browser(**sizes)
    driver.get(RELAY + "/admin")
    find(driver, "token").send_keys((token or ADMIN) + Keys.ENTER)
    until("the operator is in", lambda: find(driver, "view").is_displayed())
    return driver


def tab(driver, name):
    """Opens a tab of the operator's page."""
    click(driver, f"#tab-{name}")
    until(f"the tab is open: {name}", lambda: find(driver, "tab-" + name).get_attribute("aria-current") == "page")


def visit_tabs(driver, phone, how, pictures, *checks):
    """Opens each tab of the operator's page on a desktop and on a phone, and checks that it fits, and more."""
    for name in TABS:
        for each, what in ((driver, "a desktop"), (phone, "a phone in the dark")):
            tab(each, name)
            for seen in (fits, *checks):
                seen(each, f"{name}{how} on {what}")
        for each, kind in zip((driver, phone), pictures):
            picture(each, f"admin-{name}-{kind}")


def visit_tabs_at_320(phone, how):
    """Checks that each tab of the operator's page fits on the smallest phone."""
    resize(phone, 320, 640)
    for name in TABS:
        tab(phone, name)
        fits(phone, f"{name}{how} at 320 pixels")


def look_up(driver, kind, term, submit=True):
    click(driver, f"#kind option[value={kind}]")
    find(driver, "term").clear()
    find(driver, "term").send_keys(term)
    if submit:
        click(driver, "#search button")


def sure(driver, title):
    """Checks the dialog before an irreversible action."""
    until(f"is asked: {title}", lambda: find(driver, "sure").is_displayed() and find(driver, "sure-title").text == title)


def press_key(driver, key):
    click(driver, f"[data-key={key}]")
