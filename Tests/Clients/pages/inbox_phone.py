"""The inbox on a phone: the details are a sheet with Back, buttons select the panels, and the texts are German."""
from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import PHONE, SANDBOX, accessible, browser, click, find, fits, form, picture, quiet, resize, texts


def play(relay):
    form(cmd="join", udid="b7" * 20, token="b7" * 32, name="Pia", code="pocket")
    form(cmd="join", udid="b8" * 20, token=0, name="Max", code="pocket")
    form(cmd="message", udid="b8" * 20, text="Where are you?")
    phone, large = browser(PHONE, dark=True), browser(PHONE, text=32)
    for each in (phone, large):
        each.execute_cdp_cmd("Emulation.setUserAgentOverride", {"userAgent": "phone", "acceptLanguage": "de-DE"})
        each.get(SANDBOX + "/")
        until("the message is in the list", lambda: "Max: Where are you?" in texts(each, "#list .body"))
    check("no sheet covers the list", not find(phone, "detail").is_displayed())
    check("the page is German", find(phone, "inbox-title").text == "Eingang" and phone.execute_script("return document.documentElement.lang") == "de-DE")

    for what, close in (
        ("Back", lambda: find(phone, "back").click()), ("Escape", lambda: phone.switch_to.active_element.send_keys(Keys.ESCAPE)),
        ("the phone's own Back", phone.back),
    ):
        click(phone, "#list li:first-child button")
        until("the details are a sheet", lambda: find(phone, "back").is_displayed() and find(phone, "chosen").is_displayed())
        covers = phone.execute_script("""
            const { x, y, width, height } = document.getElementById("detail").getBoundingClientRect();
            return x === 0 && y === 0 && width === innerWidth && height === innerHeight""")
        check("that covers the list", covers)
        check("with the focus on Back", phone.switch_to.active_element.get_attribute("id") == "back")
        check("what is behind it gets no focus", phone.execute_script("return document.getElementById('inbox').inert"))
        if what == "Back":
            accessible(phone, "the sheet")
            fits(phone, "the sheet")
            picture(phone, "inbox-sheet-dark-phone")
        close()
        until(f"{what} closes it", lambda: not find(phone, "detail").is_displayed())
        check("and the focus returns", phone.execute_script("return document.activeElement.matches('.banner')"))

    for each, width, what in ((phone, PHONE[0], ""), (phone, 320, ""), (large, 320, " in large text")):
        resize(each, width, 700)
        for view, shown, hidden in (("devices", "make", "fault"), ("faults", "fault", "make"), ("inbox", "list", "fault")):
            click(each, f"#views [data-view={view}]")
            check(f"a button shows {view}", find(each, shown).is_displayed() and not find(each, hidden).is_displayed())
            accessible(each, f"{view} at {width} pixels{what}")
            fits(each, f"{view} at {width} pixels{what}")
            picture(each, f"inbox-{view}-{width}{what}")
    for each in (phone, large):
        quiet(each, "the inbox on a phone")
    return relay
