"""A real Firefox for the scenarios of the pages, with the methods of Selenium's drivers that they use.

Firefox itself speaks WebDriver BiDi, so this needs no geckodriver. Each driver starts a Firefox without a window.
"""
import base64, json, os, shutil, subprocess, tempfile, time

import websocket  # A dependency of selenium.

# Settings that prevent other network access, dialogs, and requests for permission.
PREFERENCES = {
    "app.update.disabledForTesting": True, "browser.shell.checkDefaultBrowser": False, "browser.startup.page": 0,
    "datareporting.policy.dataSubmissionEnabled": False, "intl.accept_languages": "en-GB, en",
    "network.captive-portal-service.enabled": False, "network.connectivity-service.enabled": False,
}
# WebDriver's rules in short: what a person can see, and its text.
DISPLAYED = "(each) => each.checkVisibility({ visibilityProperty: true }) && each.getClientRects().length > 0"
TEXT = "(each) => each.checkVisibility() ? each.innerText.trim() : ''"
# The center of an element after scrolling, or null while another element covers it.
CENTER = """(each) => {
  each.scrollIntoView({ block: "nearest", inline: "nearest" });
  const { left, top, width, height } = each.getClientRects()[0];
  const [x, y] = [Math.floor(left + width / 2), Math.floor(top + height / 2)];
  const hit = document.elementFromPoint(x, y);
  return each.contains(hit) || (hit?.contains(each) && hit.tagName === "LABEL") ? [x, y] : null;
}"""


class Firefox:
    def __init__(self, size, dark, limit):
        self.limit, self.count, self.errors = limit, 0, []
        self.profile = tempfile.mkdtemp()
        preferences = {**PREFERENCES, "layout.css.prefers-color-scheme.content-override": 0 if dark else 1}
        with open(os.path.join(self.profile, "user.js"), "w") as file:
            file.writelines(f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in preferences.items())
        self.process = subprocess.Popen(
            ["firefox-esr", "--headless", "--remote-debugging-port", "0", "--no-remote", "--profile", self.profile, "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "HOME": self.profile, "MOZ_CRASHREPORTER_DISABLE": "1"})
        address = next(line.split()[-1] for line in self.process.stderr if "WebDriver BiDi listening" in line)
        self.socket = websocket.create_connection(address + "/session", timeout=limit, suppress_origin=True)
        self.call("session.new", capabilities={})
        self.call("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
        # A new tab has the focus. In the first one the address field keeps it, and the keyboard presses no button.
        self.page = self.call("browsingContext.create", type="tab")["context"]
        self.blocked = None
        self.resize(*size)

    def call(self, method, **parameters):
        self.count += 1
        number = self.count
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == number:
                if answer["type"] == "error":
                    raise RuntimeError(f"{method}: {answer['error']}: {answer['message']}")
                return answer["result"]
            self.event(answer)

    def event(self, event):
        if event.get("method") == "log.entryAdded" and event["params"]["level"] == "error":
            self.errors.append({"level": "SEVERE", "message": str(event["params"]["text"])})
        elif event.get("method") == "network.beforeRequestSent" and event["params"]["isBlocked"]:
            self.count += 1
            self.socket.send(json.dumps({
                "id": self.count, "method": "network.failRequest", "params": {"request": event["params"]["request"]["request"]}}))

    def evaluate(self, function, *arguments):
        """Returns the result of a function in the page, which sees the page's variables. Waits for a promise."""
        result = self.call(
            "script.callFunction", functionDeclaration=function, awaitPromise=True, target={"context": self.page},
            arguments=[self.remote(each) for each in arguments], userActivation=True)
        if result["type"] == "exception":
            raise RuntimeError(result["exceptionDetails"]["text"])
        return self.local(result["result"])

    def remote(self, value):
        if isinstance(value, Element):
            return {"sharedId": value.id}
        if isinstance(value, (list, tuple)):
            return {"type": "array", "value": [self.remote(each) for each in value]}
        if isinstance(value, dict):
            return {"type": "object", "value": [[name, self.remote(each)] for name, each in value.items()]}
        if value is None:
            return {"type": "null"}
        kind = {bool: "boolean", str: "string"}.get(type(value), "number")
        return {"type": kind, "value": value}

    def local(self, value):
        kind = value["type"]
        if kind == "node":
            return Element(self, value["sharedId"])
        if kind in ("array", "nodelist", "htmlcollection"):
            return [self.local(each) for each in value.get("value", [])]
        if kind == "object":
            return {name: self.local(each) for name, each in value.get("value", [])}
        return value.get("value")

    # MARK: The methods of Selenium's drivers

    def execute_script(self, script, *arguments):
        return self.evaluate(f"function () {{ {script}\n}}", *arguments)

    def execute_async_script(self, script, *arguments):
        return self.evaluate(
            f"function (...given) {{ return new Promise((done) => {{ (function () {{ {script}\n}}).call(this, ...given, done); }}); }}",
            *arguments)

    def get(self, address):
        self.call("browsingContext.navigate", context=self.page, url=address, wait="complete")

    def refresh(self):
        self.call("browsingContext.reload", context=self.page, wait="complete")

    def find_elements(self, by, selector):
        query = selector if by == "css selector" else f"[id={json.dumps(selector)}]"
        return self.evaluate("(query) => [...document.querySelectorAll(query)]", query)

    def find_element(self, by, selector):
        found = self.find_elements(by, selector)
        if not found:
            raise LookupError(f"no element {selector}")
        return found[0]

    def get_log(self, kind):
        self.evaluate("() => null")  # Receives the events so far.
        errors, self.errors = self.errors, []
        return errors

    def save_screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("browsingContext.captureScreenshot", context=self.page)["data"]))

    @property
    def title(self):
        return self.evaluate("() => document.title")

    @property
    def switch_to(self):
        return self

    @property
    def active_element(self):
        return self.evaluate("() => document.activeElement")

    def quit(self):
        try:
            self.socket.close()
        finally:
            self.process.kill()
            self.process.wait()
            shutil.rmtree(self.profile, ignore_errors=True)

    # MARK: Steps of the helper

    def resize(self, width, height):
        self.call("browsingContext.setViewport", context=self.page, viewport={"width": width, "height": height}, devicePixelRatio=1)

    def lose_network(self, is_lost):
        """Fails all requests from now on, or no longer. Connections that are open stay."""
        if is_lost:
            self.blocked = self.call("network.addIntercept", phases=["beforeRequestSent"])["intercept"]
        else:
            self.call("network.removeIntercept", intercept=self.blocked)

    def act(self, *sources):
        self.call("input.performActions", context=self.page, actions=list(sources))


class Element:
    def __init__(self, driver, id):
        self.driver, self.id = driver, id

    def __eq__(self, other):
        return isinstance(other, Element) and self.id == other.id

    def click(self):
        center = self.driver.evaluate(CENTER, self)
        if center is None:
            raise RuntimeError("another element covers this one")
        [x, y] = center
        self.driver.act({"type": "pointer", "id": "mouse", "actions": [
            {"type": "pointerMove", "x": x, "y": y}, {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]})

    def send_keys(self, *parts):
        self.driver.evaluate("""(each) => {
            if (document.activeElement !== each) each.focus();
            if (each.value && "selectionEnd" in each) each.selectionStart = each.selectionEnd = each.value.length;
        }""", self)
        self.driver.act({"type": "key", "id": "keyboard", "actions": [
            {"type": kind, "value": key} for key in "".join(parts) for kind in ("keyDown", "keyUp")]})

    def clear(self):
        self.driver.evaluate("""(each) => {
            each.focus();
            each.value = "";
            each.dispatchEvent(new Event("input", { bubbles: true }));
            each.dispatchEvent(new Event("change", { bubbles: true }));
        }""", self)

    def is_displayed(self):
        return self.driver.evaluate(DISPLAYED, self)

    def is_enabled(self):
        return self.driver.evaluate("(each) => !each.disabled", self)

    def get_attribute(self, name):
        return self.driver.evaluate(
            "(each, name) => typeof each[name] === 'string' ? each[name] : each.getAttribute(name)", self, name)

    @property
    def text(self):
        return self.driver.evaluate(TEXT, self)
