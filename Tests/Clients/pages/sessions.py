"""Sessions of the operator's own system."""
import base64, hashlib, hmac, json, signal, time, urllib.parse

from selenium.webdriver.common.keys import Keys

from checks import until
from pages.helper import RELAY, browser, click, find, say, start_again, texts


def play(relay):
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
    until("and the kept message is sent", lambda: texts(driver) == ["first", "second"] and texts(driver, "#outbox li") == [])
    return relay
