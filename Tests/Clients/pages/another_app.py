"""Passwords for clients of ntfy and Gotify."""
import urllib.parse

from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import (
    leave, choose, PHONE, RELAY, accessible, admin_call, browser, click, enter, find, fits, form, picture, quiet, resize, texts,
)


def play(relay):
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

    def loaded():
        # While the page loads the list, Enter does nothing.
        return find(driver, "apps").is_displayed() and find(driver, "app-make").is_enabled()

    choose(driver, "use-app")
    until("the dialog is open, and has loaded its list", loaded)
    check("without an app, there is no list", not find(driver, "app-own").is_displayed())
    accessible(driver, "another app")
    find(driver, "app-name").send_keys("<i>Phone</i>")
    find(driver, "apps-close").click()
    choose(driver, "use-app")
    check("closed and opened, the dialog has the name", find(driver, "app-name").get_attribute("value") == "<i>Phone</i>")
    until("the list is loaded again", loaded)
    find(driver, "app-name").send_keys(Keys.ENTER)
    until("a password is made", lambda: find(driver, "app-lines").is_displayed())
    check("its lines have the focus", driver.switch_to.active_element.get_attribute("id") == "app-lines-title")
    ntfy = lines(driver)
    topic, secret = ntfy["Topic"], ntfy["Password"]
    check("ntfy gets the server, the topic, a user name and the password", list(ntfy) == ["Topic", "Server", "User name", "Password"]
          and ntfy["Server"] == RELAY + "/ntfy" and len(topic) == 22 and secret.startswith("pcc_") and ntfy["User name"], ntfy)
    until("the app is listed", lambda: texts(driver, "#app-list bdi") == ["<i>Phone</i>"])
    check("as one that was not used", texts(driver, "#app-list .hint") == ["Not used yet"], texts(driver, "#app-list .hint"))
    check("an address of this computer is not given without a word", "only on this computer" in find(driver, "app-only-here").text)
    check("and has no picture for other devices", not find(driver, "app-qr").is_displayed())
    driver.execute_script("""
        for (const name of ["public-url", "ntfy-url"]) {
          document.querySelector(`meta[name=${name}]`).content = "https://chat.example.org";
        }
        showNewApp(newApp);
        showAppPicture(newApp);""")
    check("at another address the picture is there", texts(driver, "#app-qr svg path") != []
          and not find(driver, "app-only-here").is_displayed())
    driver.execute_script("""
        for (const name of ["public-url", "ntfy-url"]) document.querySelector(`meta[name=${name}]`).content = "";
        showLines();""")
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
    resize(phone, 360, 640)
    check("on a smaller phone no line is cut", phone.execute_script("""
        return [...document.querySelectorAll("#app-rows textarea")].every((field) => field.scrollHeight <= field.clientHeight)"""))
    find(phone, "apps-close").click()
    until("closed, the password is gone", lambda: secret not in phone.page_source and lines(phone) == {})
    for fragment in ({"app": "Call 0900 now", "topic": topic}, {"app": secret, "topic": "x"}, {"app": secret}):
        phone.get("about:blank")
        phone.get(RELAY + "/#" + urllib.parse.urlencode(fragment))
        until("the page is shown", lambda: find(phone, "login").is_displayed())
        check(f"a link with other text shows no lines: {list(fragment.values())[-1]}", not find(phone, "apps").is_displayed())

    check("the relay knows the password", status(secret) == 403, status(secret))
    driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    until("Escape closes the dialog", lambda: not find(driver, "apps").is_displayed())
    until("and the password is gone", lambda: secret not in driver.page_source and lines(driver) == {})

    def used():
        choose(driver, "use-app")
        until("the list is loaded", lambda: find(driver, "app-own").is_displayed())
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
    leave(driver)
    until("the member has left", lambda: find(driver, "login").is_displayed())
    quiet(driver, "another app", 409)
    quiet(phone, "another app on a phone")
    return relay
