"""The page of all calls, and the page for an unknown address."""
from checks import check, until
from pages.helper import PHONE, RELAY, DevTools, accessible, browser, click, find, fits, picture, quiet, texts


def play(relay):
    driver, phone = browser(), browser(PHONE, dark=True)
    allowing = DevTools(driver)
    allowing.allow("clipboardReadWrite", "clipboardSanitizedWrite")
    for each in (driver, phone):
        each.get(RELAY + "/v1/docs#postMessage")
        until("the named call is open", lambda: texts(each, "#postMessage h3"))
        accessible(each, "the calls")
        fits(each, "the calls")
    picture(driver, "calls-light")
    picture(phone, "calls-dark-phone")
    colours = driver.execute_script("""
        return ["get", "post", "put", "delete"].map((name) => getComputedStyle(document.querySelector(".method." + name)).color)""")
    check("each method has its colour", len(set(colours)) == 4, colours)
    example = texts(driver, "#postMessage pre code")[0]
    check("a call has an example for a shell", example.splitlines() == [
        f"curl -X POST {RELAY}/v1/messages \\", '  -H "Authorization: Bearer $TOKEN" \\', "  -H 'Content-Type: application/json' \\",
        """  -d '{"room":"kitchen","text":"Tea is ready"}'"""], example)
    click(driver, "#postMessage .copyable button")
    until("it is copied by a button", lambda: driver.execute_async_script(
        "const done = arguments[0]; navigator.clipboard.readText().then(done, () => done(null))") == example)
    check("rules are readable", "1 to 4,000 characters" in texts(driver, "#postMessage .limit"), texts(driver, "#postMessage .limit"))
    check("and required fields are marked", "text required" in find(driver, "postMessage").text)
    driver.execute_script("document.querySelectorAll('#groups details').forEach((each) => { each.open = true; })")
    until("every call can be opened", lambda: driver.execute_script("""
        return [...document.querySelectorAll("#groups details")].every((each) => each.querySelector(".copyable code")?.textContent.startsWith("curl "))"""))
    check("no text is broken", "undefined" not in driver.execute_script("return document.body.innerText"))
    fits(driver, "all calls")
    find(driver, "filter").send_keys("queue")
    until("the calls can be searched", lambda: find(driver, "found").text.endswith("calls") or find(driver, "found").text == "1 call")

    driver.get(RELAY + "/nowhere/<b>")
    check("an unknown address is a page", texts(driver, "h1") == ["There is nothing at this address"], texts(driver, "body"))
    accessible(driver, "an unknown address")
    driver.find_element("css selector", "main a").click()
    until("that leads to the chat", lambda: driver.current_url == RELAY + "/")
    quiet(driver, "the calls")
    return relay
