"""The pages below a path of a site, behind a proxy that removes the path."""
import base64, json, urllib.request

from checks import check, until
from pages.helper import LIMIT, RELAY, DevTools, browser, choose, click, enter, find, form, lose_network, picture, quiet, say, texts


def play(relay):
    driver = browser()
    driver.get(RELAY)
    until("the path without its slash leads to the page", lambda: driver.current_url == RELAY + "/")
    form(cmd="join", udid="b1" * 20, token=0, name="Ben", code="below a path")
    enter(driver, "Ada", "below a path")
    until("the stream says who is here", lambda: find(driver, "members").text == "2 members")
    say(driver, "from the page")
    form(cmd="message", udid="b1" * 20, text="to the page")
    until("messages go and come", lambda: sorted(texts(driver)) == ["from the page", "to the page"])
    keys = driver.execute_script("return Object.keys(localStorage)")
    check("other servers of this origin have other rooms", keys and all(key.startswith("pushchat./chat/") for key in keys), keys)

    scope = driver.execute_async_script(
        "const done = arguments[0]; navigator.serviceWorker.ready.then((worker) => done(worker.active && worker.scope))")
    check("the worker serves this path", scope == RELAY + "/", scope)
    until("the worker has the files of the page", lambda: driver.execute_async_script("""
        const done = arguments[0];
        caches.match(new URL("chat.js", location).href).then((kept) => done(Boolean(kept)))"""))
    lose_network(driver, True)
    driver.refresh()
    until("without a connection the page is there", lambda: sorted(texts(driver)) == ["from the page", "to the page"])
    lose_network(driver, False)
    driver.refresh()
    until("and with it as well", lambda: find(driver, "members").text == "2 members")

    manifest = driver.execute_cdp_cmd("Page.getAppManifest", {})
    start = json.loads(manifest["data"])["start_url"]
    check("the manifest is valid, and opens the page", manifest["errors"] == [] and manifest["url"].startswith(RELAY + "/")
          and start == "./", manifest)
    choose(driver, "invite")
    link = find(driver, "link").get_attribute("value")
    check("an invitation leads here", link.startswith(RELAY + "/#code="), link)
    find(driver, "close").click()

    choose(driver, "use-app")
    find(driver, "app-name").send_keys("ntfy")
    click(driver, "#app-make")
    until("another app gets its lines", lambda: find(driver, "app-lines").is_displayed())
    topic, server, _, password = driver.execute_script(
        "return [...document.querySelectorAll('#app-rows textarea')].map((field) => field.value)")
    check("with the address of this relay", server == RELAY + "/ntfy", server)
    request = urllib.request.Request(f"{server}/{topic}/json?poll=1&since=all", headers={
        "Authorization": "Basic " + base64.b64encode(f"me:{password}".encode()).decode()})
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        check("the app reads the room there", "to the page" in answer.read().decode())
    find(driver, "apps-close").click()
    picture(driver, "sub-path")

    # A notification's click leads to the open page.
    worker = DevTools(driver, "service_worker", RELAY + "/sw.js")
    check("the worker knows the open page", worker.run("pages().then((all) => all.length)") == 1)
    code = driver.execute_script("return hashOf(current)")
    click(driver, "#another" if find(driver, "another").is_displayed() else "#add-room")
    find(driver, "code").send_keys("another room")
    click(driver, "#enter")
    until("another room is shown", lambda: find(driver, "room").text == "another room")
    worker.run(f"follow({{ room: '{code}' }}).catch(() => 0)")
    until("a click on a notification shows its room", lambda: find(driver, "room").text == "below a path")

    driver.get(RELAY + "/admin/")
    until("the operator's page explains why it is closed", lambda: find(driver, "closed").is_displayed())
    check("and has its style", driver.execute_script("return getComputedStyle(document.querySelector('#view')).display") == "grid")
    check("at its own address", driver.current_url == RELAY + "/admin", driver.current_url)
    driver.get(RELAY + "/nothing/here")
    click(driver, "a", "Open the chat")
    until("a wrong address leads to the chat", lambda: driver.current_url == RELAY + "/" and find(driver, "chat").is_displayed())
    quiet(driver, "the pages below a path")
    return relay
