"""The input and the browser's storage: drafts, a window of small height, a browser that keeps nothing."""
from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import IN_FIREFOX, RELAY, admin_call, browser, choose, enter, find, fits, leave, picture, quiet, resize


def play(relay):
    driver = browser()
    for code in ("drafts", "other drafts"):
        enter(driver, "Dora", code) if code == "drafts" else None
        if code != "drafts":
            choose(driver, "another")
            find(driver, "code").send_keys(code + Keys.ENTER)
        until(f"{code} is open", lambda: find(driver, "room").text == code)
        find(driver, "text").send_keys(f"half a sentence in {code}")
    driver.refresh()
    until("a reload keeps a draft", lambda: find(driver, "text").get_attribute("value") == "half a sentence in other drafts")
    find(driver, "text").send_keys(Keys.ENTER)
    driver.execute_script("open(rooms[0])")
    check("each room has its own", find(driver, "text").get_attribute("value") == "half a sentence in drafts")
    driver.execute_script("open(rooms[1])")
    check("a draft that was sent is gone", find(driver, "text").get_attribute("value") == "")
    driver.refresh()
    until("for good", lambda: find(driver, "room").text == "other drafts" and find(driver, "text").get_attribute("value") == "")
    leave(driver)
    until("the first room is shown again", lambda: find(driver, "room").text == "drafts")
    leave(driver)
    until("the member has left", lambda: find(driver, "login").is_displayed())
    left = driver.execute_script("return Object.keys(localStorage).filter((key) => key.includes('draft.'))")
    check("and with a room its draft is forgotten", left == [], left)

    enter(driver, "Dora", "a low window")
    for height in (657, 480, 320):
        resize(driver, 1000, height)
        find(driver, "menu-button").click()
        check(f"the whole menu can be reached at a height of {height} pixels", driver.execute_script(
            "return document.getElementById('menu').getBoundingClientRect().bottom <= innerHeight"))
        find(driver, "menu-button").click()
        choose(driver, "invite")
        until("the invitation is open", lambda: find(driver, "invitation").is_displayed())
        box = driver.execute_script("""
            const { top, bottom } = document.getElementById("copy").getBoundingClientRect();
            const at = document.elementFromPoint(document.getElementById("copy").getBoundingClientRect().left + 5, (top + bottom) / 2);
            return [top, bottom, innerHeight, at?.id]""")
        check(f"the link can be copied at a height of {height} pixels", 0 <= box[0] and box[1] <= box[2] and box[3] == "copy", box)
        check("before the picture it says that the link works only on this computer", driver.execute_script("""
            const [notice, code] = ["only-here", "qr"].map((id) => document.getElementById(id).getBoundingClientRect());
            return notice.height > 0 && notice.bottom <= code.top && document.getElementById("invitation").scrollTop === 0"""))
        fits(driver, f"the invitation at {height} pixels")
        picture(driver, f"invitation-{height}")
        driver.switch_to.active_element.send_keys(Keys.TAB)
        check("the keyboard leads to the link, which no button hides", driver.execute_script("""
            const link = document.getElementById("link"), { left, bottom } = link.getBoundingClientRect();
            return document.activeElement === link && document.elementFromPoint(left + 20, bottom - 2) === link"""))
        find(driver, "close").click()
    resize(driver, 1280, 800)

    if not IN_FIREFOX:
        # German has the longer words.
        large = browser(text=32)
        large.execute_cdp_cmd("Emulation.setUserAgentOverride", {"userAgent": "phone", "acceptLanguage": "de-DE"})
        resize(large, 320, 568)
        large.get(RELAY)
        fits(large, "the login in large text on a small phone")
        enter(large, "Lara", "a low window")
        until("the stream says who is here", lambda: find(large, "members").text == "2 Mitglieder")
        fits(large, "the chat in large text on a small phone")
        check("its room's name can be read", large.execute_script("return document.getElementById('room').clientWidth") > 100)
        for button, dialog in (("invite", "invitation"), ("show-people", "people"), ("show-search", "search"), ("use-app", "apps")):
            choose(large, button)
            until(f"the dialog is open: {dialog}", lambda: find(large, dialog).is_displayed())
            check(f"in large text, {dialog} is not wider than the screen", large.execute_script(
                "const { scrollWidth, clientWidth } = document.getElementById(arguments[0]); return scrollWidth <= clientWidth", dialog))
            find(large, dialog).send_keys(Keys.ESCAPE)
        quiet(large, "large text")

    # The page must not join as another member at each visit.
    if not IN_FIREFOX:
        blocked = browser()
        blocked.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": """
            for (const name of ["localStorage", "sessionStorage"]) {
              Object.defineProperty(window, name, { get() { throw new DOMException("blocked", "SecurityError"); } });
            }"""})
        blocked.get(RELAY + "/#code=no+storage")
        until("without storage the page says that it needs it", lambda: "needs the browser’s storage" in find(blocked, "login-error").text)
        find(blocked, "name").send_keys("Ghost" + Keys.ENTER)
        check("and does not join", not find(blocked, "enter").is_enabled() and find(blocked, "login").is_displayed())
        picture(blocked, "no-storage")
        blocked.get(RELAY + "/admin")
        until("the operator's page works until it is closed", lambda: any(find(blocked, each).is_displayed() for each in ("token", "inside")))
        quiet(blocked, "pages without storage", 401)
    quiet(driver, "the input")
    return relay
