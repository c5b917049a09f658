#!/usr/bin/env python3
"""Notifies a real Firefox, with the chat page closed, through the sandbox's push service.

Usage: firefox_push.py RELAY-URL SANDBOX-URL FOLDER DATABASES RELAY-COMMAND…
(the command starts the relay; DATABASES, in JSON, has for each of three databases the words before a command, the path, and the
words after a command)
Needs marionette-driver and python-xlib from PyPI, firefox-esr and Xvfb. Prints a line for each check that passed. Ends with
status 1 at the first that failed. With SCREENSHOTS=FOLDER it saves pictures there.
"""
import ctypes, json, os, signal, subprocess, sys, traceback, urllib.error, urllib.parse, urllib.request

from marionette_driver.marionette import Marionette
from Xlib import X, display
from Xlib.ext import xtest

from checks import check, until

RELAY, SANDBOX, FOLDER, DATABASES, COMMAND = *sys.argv[1:4], json.loads(sys.argv[4]), sys.argv[5:]
PICTURES = os.environ.get("SCREENSHOTS")
ROOM = "kitchen & <b>"
# The settings of docs/sandbox-browsers.md, then settings that prevent other network access and dialogs.
PREFERENCES = {
    "dom.push.serverURL": SANDBOX.replace("http:", "ws:") + "/push",
    "dom.push.testing.allowInsecureServerURL": True,
    # Show notifications without asking and in Firefox's own windows: there is no user, and no desktop.
    "permissions.default.desktop-notification": 1,
    "alerts.useSystemBackend": False,
    # The system chooses a free port, and Firefox reports it. Marionette disables pushes unless a setting enables them.
    "marionette.port": 0,
    "dom.push.connection.enabled": True,
    "browser.startup.page": 0,
    "browser.shell.checkDefaultBrowser": False,
    "browser.preonboarding.enabled": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
}
processes = []


def start(command, **more):
    """Starts a process that ends with this one, however that ends."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL), **more)  # PR_SET_PDEATHSIG
    processes.append(process)
    return process


def answers(method, address, body=None):
    request = urllib.request.Request(
        address, method=method, data=body, headers={} if body is None else {"Content-Type": "application/x-www-form-urlencoded"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def form(**fields):
    return answers("POST", RELAY + "/api.php", urllib.parse.urlencode(fields).encode())


def inbox(call):
    return json.loads(answers("GET", SANDBOX + call))


def relay(database):
    variables, [path], _ = database
    process = start([*variables, *COMMAND, "--database", path])
    until("the relay runs", lambda: process.poll() is None and answers("GET", RELAY + "/healthz"))
    return process


def end(process):
    process.kill()
    process.wait()


def screen():
    read, write = os.pipe()
    start(["Xvfb", "-displayfd", str(write), "-screen", "0", "1280x800x24", "-nolisten", "tcp"], pass_fds=[write])
    os.close(write)
    with os.fdopen(read) as number:
        return ":" + number.readline().strip()


def firefox(screen):
    profile = os.path.join(FOLDER, "profile")
    os.mkdir(profile)
    with open(os.path.join(profile, "user.js"), "w") as preferences:
        for name, value in PREFERENCES.items():
            preferences.write(f"user_pref({json.dumps(name)}, {json.dumps(value)});\n")
    process = start(
        ["firefox-esr", "--marionette", "--remote-allow-system-access", "--no-remote", "--profile", profile, "about:blank"],
        env={**os.environ, "DISPLAY": screen, "HOME": FOLDER, "MOZ_CRASHREPORTER_DISABLE": "1"})

    def port():
        if process.poll() is not None:
            raise SystemExit(f"FAILED Firefox ended with {process.returncode}")
        with open(os.path.join(profile, "MarionetteActivePort")) as file:
            return int(file.read())

    client = Marionette(host="127.0.0.1", port=until("Firefox runs", port), socket_timeout=180)
    client.start_session()
    client.timeout.page_load = 120
    return client


def find(id):
    return client.find_element("id", id)


def enter(name):
    for field, text in (("name", name), ("code", ROOM)):
        find(field).clear()
        find(field).send_keys(text)
    find("enter").click()
    until(f"{name} is in the room", lambda: find("room").text == ROOM and find("chat").is_displayed())


def leave():
    """Closes the page. Firefox keeps running."""
    pages = client.window_handles
    blank = client.open(type="tab", focus=True)["handle"]
    for page in pages:
        client.switch_to_window(page)
        client.close()
    client.switch_to_window(blank)
    check("no page is open", client.window_handles == [blank] and client.get_url() == "about:blank")


def picture(name):
    if PICTURES:
        subprocess.run(["import", "-display", address, "-window", "root", os.path.join(PICTURES, name + ".png")])


def shown():
    """Returns the notifications that Firefox itself shows on the screen."""
    with client.using_context("chrome"):
        return client.execute_script("""
            return [...Services.wm.getEnumerator("alert:alert")].map((alert) => ({
              title: alert.document.getElementById("alertTitleLabel").value,
              text: alert.document.getElementById("alertTextLabel").textContent,
              x: alert.mozInnerScreenX, y: alert.mozInnerScreenY, width: alert.innerWidth, height: alert.innerHeight,
              ready: alert.document.readyState }))""")


def notified(text, name):
    """Posts as another member. Checks that the notification is shown, and that a click on it opens the room."""
    form(cmd="message", udid="1" * 40, text=text)
    until(f"{text!r} is shown", lambda: [(each["title"], each["text"]) for each in shown()] == [("Otto", text)])
    last = until("and acknowledged", lambda: [
        each for each in inbox("/notifications?protocol=webpush")["notifications"][-1:] if each.get("delivery") == "acknowledged"])[0]
    check("with the code for a delivered message", last["delivery_code"] == 100 and last["answer"] == "accepted", last)
    check("the sandbox cannot read it", "payload" not in last and "payload_base64" in last, last)
    picture(name)

    # Click as the system reports it until the alert is gone: it may still move to its final position.
    pointer = display.Display(address)

    def click():
        alerts = shown()
        for alert in alerts:
            xtest.fake_input(pointer, X.MotionNotify, x=int(alert["x"] + alert["width"] / 2), y=int(alert["y"] + alert["height"] / 2))
            xtest.fake_input(pointer, X.ButtonPress, 1)
            xtest.fake_input(pointer, X.ButtonRelease, 1)
            pointer.sync()
        return not alerts

    until("it is clicked", click)
    pointer.close()

    def opened():
        for page in client.window_handles:
            client.switch_to_window(page)
            if client.get_url().startswith(RELAY):
                return find("room").text == ROOM and text in [each.text for each in client.find_elements("css selector", "#log .bubble")]

    until("and opens the room, with the message", opened)
    picture(name + "-opened")


def endpoints():
    """Returns the tokens of the sandbox's subscribed browsers, which must be real ones."""
    browsers = inbox("/browsers")["browsers"]
    if not all("channel_id" in each and "keys" not in each["subscription"] for each in browsers):
        raise SystemExit(f"FAILED they are real browsers': {browsers}")
    return [each["token"] for each in browsers if "removed_at" not in each]


def members():
    """Returns the devices to which the relay sends messages of the room."""
    found = json.loads(answers("GET", RELAY + "/v1/members?" + urllib.parse.urlencode({"room": ROOM}, quote_via=urllib.parse.quote)))
    return [each["token"] for each in found["members"] if each["token"]]


def known():
    until("the relay knows the subscription", lambda: len(members()) == 1 and members() == endpoints())


def key(database, *more):
    variables, _, flags = database
    command = [*variables, COMMAND[0], "webpush", "key", *flags, *more]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


signal.signal(signal.SIGTERM, lambda *_: sys.exit("FAILED: ended"))
try:
    first, second, third = DATABASES
    address = screen()
    process = relay(first)
    client = firefox(address)

    client.navigate(RELAY + "/")
    enter("Nina")
    form(cmd="join", udid="1" * 40, token=0, name="Otto", code=ROOM)
    find("notify").click()
    until("Firefox has subscribed", lambda: find("notify").text == "Stop notifying")
    check("at the sandbox", len(endpoints()) == 1 and inbox("/stats")["browsers"]["connected"] == 1)
    [endpoint] = endpoints()
    known()
    leave()
    notified("Dinner is ready", "firefox")

    leave()
    end(process)
    process = relay(first)
    notified("after a kill", "firefox-after-kill")

    # Only the key is the same: the page learns that it is in no room any more when it is opened, and not before.
    secret = key(first, "--export")
    leave()
    end(process)
    check("the key is imported", key(second, "--import", secret) == key(first))
    process = relay(second)
    client.navigate(RELAY + "/")
    until("the relay has forgotten the rooms", lambda: find("login-error").is_displayed())
    form(cmd="join", udid="1" * 40, token=0, name="Otto", code=ROOM)
    enter("Nina")
    known()
    leave()
    notified("with the same key", "firefox-same-key")
    check("the subscription is the same", endpoints() == [endpoint])

    # The third database has another key.
    leave()
    end(process)
    process = relay(third)
    client.navigate(RELAY + "/")
    until("the relay has forgotten the rooms again", lambda: find("login-error").is_displayed())
    form(cmd="join", udid="1" * 40, token=0, name="Otto", code=ROOM)
    enter("Nina")
    until("with another key Firefox subscribes again", lambda: endpoints() not in ([endpoint], []))
    known()
    leave()
    notified("with another key", "firefox-another-key")

    until("the page knows that it is subscribed", lambda: find("notify").text == "Stop notifying")
    find("notify").click()
    until("a browser that stops notifications has no subscription", lambda: find("notify").text == "Notify me" and endpoints() == [])
except SystemExit:
    raise
except Exception:
    traceback.print_exc()
    sys.exit(1)
finally:
    # Xvfb removes its files when it is terminated.
    for each in reversed(processes):
        each.terminate()
        try:
            each.wait(10)
        except subprocess.TimeoutExpired:
            end(each)
