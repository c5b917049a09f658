#!/usr/bin/env python3
"""Joins a room over HTTPS with a phone's browser, posts, and receives a message.

Usage: phone.py URL AUTHORITY.pem     with $HOME/.pki/nssdb that trusts the authority
Needs selenium from PyPI, chromium and its driver. The URL's host name resolves to this machine. Prints a line for each check that
passed. Ends with status 1 at the first that failed.
"""
import socket, ssl, sys, urllib.parse, urllib.request

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from checks import check, until

URL, AUTHORITY = sys.argv[1:]
HOST = urllib.parse.urlsplit(URL).hostname
# Resolves the name for this program, like the phone's `hosts` file.
look_up = socket.getaddrinfo
socket.getaddrinfo = lambda host, *more, **named: look_up("127.0.0.1" if host == HOST else host, *more, **named)


def form(**fields):
    with urllib.request.urlopen(URL + "/api.php", urllib.parse.urlencode(fields).encode(), timeout=20,
                                context=ssl.create_default_context(cafile=AUTHORITY)) as answer:
        return answer.read().decode()


options = webdriver.ChromeOptions()
options.binary_location = "/usr/bin/chromium"
for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--lang=en-GB",
                 f"--host-resolver-rules=MAP {HOST} 127.0.0.1"):
    options.add_argument(argument)
options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
try:
    driver.set_page_load_timeout(60)
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True})
    driver.get(URL + "/")
    check("the browser trusts the page", driver.execute_script("return isSecureContext") and "PushChat" in driver.title, driver.title)
    driver.find_element(By.ID, "name").send_keys("Ann")
    driver.find_element(By.ID, "code").send_keys("first-kitchen" + Keys.ENTER)
    until("Ann is in the room", lambda: driver.find_element(By.ID, "chat").is_displayed())
    until("the worker is at work", lambda: driver.execute_async_script(
        "const done = arguments[0]; navigator.serviceWorker.ready.then((it) => done(!!it.active))"))
    check("notifications are possible", driver.execute_script("return 'PushManager' in window && 'Notification' in window"))
    udid = "b" * 40
    form(cmd="join", udid=udid, token=0, name="Bo", code="first-kitchen")
    form(cmd="message", udid=udid, text="The first message")
    until("the first message is on the screen", lambda: any(
        "The first message" in each.text for each in driver.find_elements(By.CSS_SELECTOR, "#log .bubble")))
    driver.find_element(By.ID, "text").send_keys("And an answer" + Keys.ENTER)
    until("and the answer arrives", lambda: "And an answer" in form(cmd="messages", udid=udid))
    driver.find_element(By.ID, "menu-button").click()
    driver.find_element(By.ID, "invite").click()
    until("the invitation leads to the public address",
          lambda: driver.find_element(By.ID, "link").get_attribute("value").startswith(URL + "/#code="))
    severe = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    check("the console is quiet", not severe, severe)
finally:
    driver.quit()
