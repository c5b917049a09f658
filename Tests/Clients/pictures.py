#!/usr/bin/env python3
"""Renews the pictures of the documentation: starts `pushchat dev`, plays a small story in a real browser, and saves docs/pictures.

Usage: pictures.py EXECUTABLE FOLDER
Needs selenium from PyPI, chromium and its driver, and pngquant if the pictures are to be small.
"""
import json, os, shutil, subprocess, sys, tempfile, urllib.error, urllib.parse, urllib.request

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from checks import free_port, until

EXECUTABLE, FOLDER = sys.argv[1:3]
RELAY, SANDBOX = (f"http://localhost:{free_port()}" for _ in range(2))
DESKTOP, TALL, PHONE = (1100, 700), (1100, 1500), (390, 780)


def call(method, address, body=None, form=None):
    data = json.dumps(body).encode() if body is not None else urllib.parse.urlencode(form).encode() if form else None
    headers = {"Content-Type": "application/json"} if body is not None else {}
    with urllib.request.urlopen(urllib.request.Request(address, method=method, data=data, headers=headers), timeout=60) as answer:
        return answer.read().decode()


def chat(**fields):
    return call("POST", RELAY + "/api.php", form=fields)


def is_up(address):
    try:
        return call("GET", address + "/healthz")
    except (urllib.error.URLError, OSError):
        return None


def browser(size, dark):
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--lang=en-US", "--hide-scrollbars"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    resize(driver, size)
    driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Europe/Berlin"})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
        "features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
    return driver


def resize(driver, size):
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 500})


def shown(driver, text):
    until(f"the page shows {text!r}", lambda: text in driver.find_element(By.TAG_NAME, "body").text)


def save(driver, name):
    # Without the blinking cursor and the ring around the focus, equal pages are equal pictures.
    driver.execute_script("document.activeElement?.blur?.()")
    path = os.path.join(FOLDER, name + ".png")
    driver.save_screenshot(path)
    if shutil.which("pngquant"):
        subprocess.run(["pngquant", "--force", "--skip-if-larger", "--output", path, path], check=False)
    print(path, flush=True)


def enter(driver, name, code):
    driver.find_element(By.ID, "name").send_keys(name)
    driver.find_element(By.ID, "code").send_keys(code + Keys.ENTER)
    until(f"{name} is in the room", lambda: driver.find_element(By.ID, "chat").is_displayed())


def story():
    """Fills two rooms and the sandbox: phones, a browser, messages of people and of a program, pushes that fail."""
    for number, name in enumerate(("Ben", "Carla", "Emil", "Fay", "Gus")):
        chat(cmd="join", udid=f"{number + 1:040x}", token=f"{number + 1:02x}" * 32, name=name, code="kitchen")
    chat(cmd="join", udid=f"{9:040x}", token=0, name="Ivy", code="machines")
    subscription = json.loads(call("POST", SANDBOX + "/browsers", {}))["subscription"]
    chat(cmd="join", udid=f"{8:040x}", subscription=json.dumps(subscription), name="Hal", code="kitchen")


def talk(ada):
    """Ada's page is in the room. The others write."""
    chat(cmd="message", udid=f"{1:040x}", text="Coffee is ready ☕")
    shown(ada, "Coffee is ready")
    say(ada, "Coming!")
    chat(cmd="message", udid=f"{2:040x}", text="Is there any milk left? Otherwise I’ll bring some on the way, and bread for tomorrow.")
    chat(cmd="message", udid=f"{1:040x}", text="None. Thank you!")
    shown(ada, "None. Thank you!")
    say(ada, "See you in five minutes")
    for number in (3, 4, 5):
        chat(cmd="messages", udid=f"{number:040x}")
    shown(ada, "Read by")


def say(driver, text):
    """Sends a message. Waits until the relay has it: before, the page shows it in the outbox, and no member can read it."""
    driver.find_element(By.ID, "text").send_keys(text + Keys.ENTER)
    until(f"{text!r} is sent", lambda: text in [each.text for each in driver.find_elements(By.CSS_SELECTOR, "#log .own .bubble")])


def pages_of(dark):
    look = "dark" if dark else "light"
    for size, kind in ((DESKTOP, "desktop"), (PHONE, "phone")):
        driver = browser(size, dark)
        call("DELETE", SANDBOX + "/notifications")
        driver.get(RELAY + "/")
        shown(driver, "Your name")
        save(driver, f"login-{look}-{kind}")
        enter(driver, "Ada", "kitchen")
        talk(driver)
        save(driver, f"chat-{look}-{kind}")
        if (look, kind) == ("light", "desktop"):
            driver.find_element(By.ID, "menu-button").click()
            driver.find_element(By.ID, "invite").click()
            until("the invitation is open", lambda: driver.find_element(By.ID, "invitation").is_displayed())
            save(driver, "invite-light-desktop")
        # The member leaves, so that the next page shows the same room.
        chat(cmd="leave", udid=driver.execute_script("return current.udid"))
        driver.execute_script("localStorage.clear()")
        if kind == "desktop":
            # The inbox has three columns.
            resize(driver, (1280, 800))
        driver.get(SANDBOX + "/")
        shown(driver, "See you in five minutes")
        if kind == "desktop":
            # An iPhone's notification, not the browser's, which may be the newest.
            driver.execute_script("[...document.querySelectorAll('.banner')].find((each) => each.querySelector('.many')).click()")
            until("the details are shown", lambda: driver.find_elements(By.CSS_SELECTOR, "#preview .ios"))
        save(driver, f"inbox-{look}-{kind}")
        driver.quit()


def programs(size, dark, name):
    driver = browser(size, dark)
    driver.get(RELAY + "/")
    enter(driver, "Ivan", "machines")
    for fields in (
        {"title": "Backup", "text": "/srv: 12 GB in 3 minutes", "link": "https://example.org/backup"},
        {"text": "All disks are well", "link": "https://example.org/disks"},
        {"title": "Updates installed", "text": "Restart when you have the time"},
    ):
        call("POST", RELAY + "/v1/messages", {"room": "machines", "name": "backup", **fields})
    shown(driver, "Updates installed")
    until("the number of members is shown", lambda: driver.find_element(By.ID, "members").text.strip())
    save(driver, name)
    driver.quit()


def operator(size, dark, section, name):
    """Saves a section of the operator's page."""
    driver = browser(size, dark)
    driver.get(RELAY + "/admin#" + section)
    until("the operator's page is filled", lambda: driver.find_element(By.ID, "verdict").text.strip())
    if section == "tokens":
        shown(driver, "dashboard")
    save(driver, name)
    driver.quit()


def main():
    with tempfile.TemporaryDirectory() as folder:
        command = [EXECUTABLE, "dev", "--directory", folder, "--port", RELAY.rpartition(":")[2], "--control-port", SANDBOX.rpartition(":")[2]]
        for port in ("binary", "feedback", "http2", "channels", "webpush", "fcm", "proxy"):
            command += [f"--{port}-port", "0"]
        dev = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until("relay and sandbox run", lambda: is_up(RELAY) and is_up(SANDBOX), within=60)
            story()
            for dark in (False, True):
                pages_of(dark)
            programs((1280, 800), False, "chat-titled-light-desktop")
            programs((390, 844), True, "chat-titled-dark-phone")
            for name, scopes in (("backup", ["post"]), ("dashboard", ["read"])):
                call("POST", RELAY + "/v1/tokens", {"name": name, "scopes": scopes})
            for dark, look in ((False, "light"), (True, "dark")):
                operator(TALL, dark, "overview", f"admin-{look}-desktop")
                operator(PHONE, dark, "overview", f"admin-{look}-phone")
            operator((1280, 800), False, "tokens", "admin-tokens-light-desktop")
            operator((390, 844), True, "tokens", "admin-tokens-dark-phone")
        finally:
            dev.terminate()
            dev.wait()


main()
