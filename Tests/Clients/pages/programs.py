"""Messages of programs, deleted messages, removed and banned members."""
import subprocess, time, urllib.parse

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import (
    choose, LIMIT, PHONE, RELAY, SHELL, DevTools, accessible, admin_call, browser, click, enter, find, fits, form,
    picture, quiet, say, texts,
)


# Keeps the page's streams, so that a test can send events as a relay would, and counts additions to the message list.
WATCHED_STREAMS = """
(() => {
  self.streams = [];
  self.EventSource = class extends EventSource {
    constructor(...all) { super(...all); streams.push(this); }
  };
  self.hear = (name, data) => streams.at(-1).dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data) }));
  self.added = 0;
  self.watch = () => {
    self.added = 0;
    new MutationObserver((changes) => changes.forEach((change) => { added += change.addedNodes.length; }))
      .observe(document.getElementById("log"), { childList: true, subtree: true, characterData: true });
  };
})();
"""


def play(relay):
    """Tests programs' messages with title and link, deleted messages, removed members, and banned members."""
    room = "machines"
    driver, phone = browser(), browser(PHONE, dark=True)
    allowing = DevTools(driver)
    allowing.allow("notifications")
    for each, name in ((driver, "Ada"), (phone, "Ben")):
        each.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCHED_STREAMS})
        enter(each, name, room)
        until("and has a stream", lambda: find(each, "members").text.strip() and each.execute_script("return streams.length"))

    def post(**fields):
        status, answer = admin_call("POST", "/v1/messages", {"room": room, "name": "backup", **fields})
        check("a program posts", status == 201, answer)
        return answer["id"]

    spoken = " (opens a new tab)"
    link = "https://example.org/backup?x=1&y=<b>#z"
    first = post(text="/srv: 12 GB\nin 3 minutes", title="Backup", link=link)
    second = post(text="All disks are well", link="http://[::1]:8080/disks")
    third = post(text="Restart when you have the time", title="Updates installed")
    fourth = post(text="It is 31 °C in the rack")
    wanted = ["Backup" + spoken + "/srv: 12 GB\nin 3 minutes", "All disks are well[::1]:8080" + spoken,
              "Updates installedRestart when you have the time", "It is 31 °C in the rack"]
    for each in (driver, phone):
        until("with title and link, the page shows it", lambda: texts(each) == wanted)
        check("and says that a program has written it", texts(each, "#log .name") == ["backup program"], texts(each, "#log .name"))
        links = each.find_elements(By.CSS_SELECTOR, "#log a")
        check("the title is the link; without one, the host is", [
            (made.get_attribute("href"), made.accessible_name) for made in links] == [
                (link.replace("<", "%3C").replace(">", "%3E"), "Backup" + spoken),
                ("http://[::1]:8080/disks", "[::1]:8080" + spoken)],
            [(made.get_attribute("href"), made.accessible_name) for made in links])
        check("it opens another page, which learns nothing of this one", all(
            made.get_attribute("target") == "_blank" and made.get_attribute("rel") == "noopener noreferrer" for made in links))
        check("title, text and host are read one after the other, on lines of their own", set(each.execute_script(
            "return [...document.querySelectorAll('#log .bubble > *')].map((part) => getComputedStyle(part).display)")) == {"block"})
        check("the title is bold", int(each.execute_script(
            "return getComputedStyle(document.querySelector('#log .title')).fontWeight")) >= 600)
    for bad in ("javascript:alert(1)", "data:text/html,x", "//example.org", "file:///etc/passwd", 7, {}, ""):
        made = driver.execute_script("return bubbleOf({ title: '<b>T', text: '<b>x', link: arguments[0] }).outerHTML", bad)
        check(f"no link to {bad!r}", not any(part in made for part in ("<a", "href", "<b")), made)
    form(cmd="join", udid="9" * 40, token=0, name="Cleo", code=room)
    form(cmd="message", udid="9" * 40, text="Thank you, backup!")
    say(phone, "Good")
    until("people answer", lambda: len(texts(driver)) == 6 and texts(phone, "#outbox li") == [])
    accessible(phone, "messages of programs in the dark")
    accessible(driver, "messages of programs")
    fits(phone, "messages of programs on a phone")
    phone.execute_script("document.activeElement.blur()")
    picture(phone, "chat-titled-dark-phone")
    picture(driver, "chat-titled-light")

    # The operator deletes a message. If the relay cannot delete yet, the test sends the event to the stream.
    def delete(id):
        status, _ = admin_call("DELETE", f"/v1/messages/{id}")
        if status != 204:
            check("this relay does not delete", status in (404, 405), status)
            for each in (driver, phone):
                each.execute_script("hear('deleted', { id: arguments[0] })", id)

    def kept(each):
        return each.execute_script("""return Object.keys(localStorage).filter((key) => key.startsWith("pushchat.room."))
            .flatMap((key) => JSON.parse(localStorage.getItem(key)).messages.map((message) => message.id))""")

    def notified():
        return driver.execute_async_script("""const done = arguments[0];
            navigator.serviceWorker.ready.then((worker) => worker.getNotifications())
              .then((all) => done(all.map((each) => each.tag).sort()))""")

    driver.execute_async_script("""const [tags, done] = arguments; navigator.serviceWorker.ready.then((worker) =>
        Promise.all(tags.map((tag) => worker.showNotification("backup", { tag })))).then(() => done())""",
                                [f"message-{first}", f"message-{second}"])
    check("names stand above the first of several", texts(driver, "#log .name") == ["backup program", "Cleo", "Ben"], texts(driver, "#log .name"))
    driver.execute_script("watch(); document.querySelector('#log a').focus()")
    delete(first)
    for each in (driver, phone):
        until("a deleted message is gone from the page", lambda: texts(each)[0] == wanted[1] and len(texts(each)) == 5)
        until("and from its stored messages", lambda: first not in kept(each) and second in kept(each))
        check("the next one has the name now", texts(each, "#log .name")[0] == "backup program", texts(each, "#log .name"))
    until("its notification is closed, others stay", lambda: notified() == [f"message-{second}"])
    check("a screen reader has nothing new to read", driver.execute_script("return added") == 0, driver.execute_script("return added"))
    check("the focus stays among the messages", driver.switch_to.active_element.get_attribute("id") == "scroll")
    choose(driver, "another")
    more = [post(text="unread one"), post(text="unread two")]
    until("messages that arrive in the meantime are unread", lambda: driver.title.startswith("(2) "))
    delete(more[0])
    until("a deleted message is no longer unread", lambda: driver.title.startswith("(1) "))
    delete(second)  # It has been read.
    until("a deleted message that was read does not change the count", lambda: second not in kept(driver) and driver.title.startswith("(1) "))
    delete(more[1])
    until("then no message is unread", lambda: not driver.title.startswith("(") and texts(driver, "#log .unread") == [])
    find(driver, "back").click()

    # Another program deletes a message in the database while no page is open.
    driver.get("about:blank")
    subprocess.run([*SHELL, f"DELETE FROM messages WHERE message_id = {fourth}"], check=True, timeout=LIMIT)
    driver.get(RELAY + "/")
    until("messages that were deleted in the meantime are gone", lambda: texts(driver) == [wanted[2], "Thank you, backup!", "Good"]
          and fourth not in kept(driver))
    until("and the page listens again", lambda: find(driver, "members").text.strip())
    for id in kept(phone):
        phone.execute_script("hear('deleted', { id: arguments[0] })", id)
    until("nothing is left of an empty room, not even its days", lambda: phone.execute_script(
        "return document.getElementById('log').childElementCount") == 0)
    quiet(driver, "messages of programs")

    # The operator removes and bans a member.
    _, answer = admin_call("GET", "/v1/members?" + urllib.parse.urlencode({"room": room}, quote_via=urllib.parse.quote))
    [ada] = [member["id"] for member in answer["members"] if member["name"] == "Ada"]
    removed = driver.execute_script("return current.udid")
    status, _ = admin_call("DELETE", f"/v1/members/{ada}")
    if status != 204:
        check("this relay does not remove", status in (404, 405), status)
        driver.execute_script("hear('left', { reason: 'removed' })")
    until("a removed member sees the reason", lambda: find(driver, "login-error").text == "You were removed from this room.")
    check("and comes back with no single click", [find(driver, id).get_attribute("value") for id in ("name", "code")] == ["", ""])
    driver.execute_script("""window.fetch = async (path, options) => {
        window.joined = options?.body?.get?.("udid") ?? window.joined;
        return new Response(
            JSON.stringify({ error: { code: "forbidden", message: "This room is closed until Monday." } }), { status: 403 }); }""")
    find(driver, "name").send_keys("Ada")
    find(driver, "code").send_keys(room, Keys.ENTER)
    until("a banned member sees the reason", lambda: find(driver, "login-error").text == "This room is closed until Monday.")
    check("and is the member that was removed", driver.execute_script("return joined") == removed, removed)
    accessible(driver, "a refusal at the door")
    return relay
