"""Messages that a browser writes without a connection."""
from selenium.webdriver.common.keys import Keys

from checks import check, until
from pages.helper import RELAY, accessible, browser, click, enter, find, form, lose_network, picture, quiet, say, texts


def play(relay):
    driver = browser()
    enter(driver, "Ada", "out of reach")
    form(cmd="join", udid="a1" * 20, token=0, name="Ben", code="out of reach")
    until("both are in", lambda: find(driver, "members").text == "2 members")
    until("the worker is active, so that the page opens offline", lambda: driver.execute_async_script(
        "const done = arguments[0]; navigator.serviceWorker.ready.then((worker) => done(Boolean(worker.active)))"))
    lose_network(driver, True)
    for text in ("first", "second", "third"):
        say(driver, text)
    until("without a connection they wait in order", lambda: texts(driver, "#outbox .bubble") == ["first", "second", "third"]
          and "Not sent" in texts(driver, "#outbox .problem")[0])
    driver.refresh()
    until("a reload keeps them", lambda: texts(driver, "#outbox .bubble") == ["first", "second", "third"])
    click(driver, "#outbox li:nth-child(3) button", "Delete")
    until("one is deleted", lambda: texts(driver, "#outbox .bubble") == ["first", "second"])
    say(driver, "fourth")
    form(cmd="message", udid="a1" * 20, text="meanwhile")
    lose_network(driver, False)
    wanted = ["meanwhile", "first", "second", "fourth"]
    until("with a connection they are sent without a click, in order", lambda: texts(driver) == wanted)
    until("and wait no more", lambda: texts(driver, "#outbox li") == [])

    # The relay stores a message, but its response is lost. The page sends it again, and it arrives once.
    driver.execute_script("""
        window.real = fetch;
        window.tries = [];
        window.fetch = async (path, options) => {
          const response = await real(path, options);
          if (options?.body?.get?.("cmd") !== "message") return response;
          tries.push(options.headers["Idempotency-Key"]);
          if (tries.length === 1) throw new TypeError("lost");
          return response;
        };
        stream.close();""")
    say(driver, "once")
    until("it waits", lambda: texts(driver, "#outbox .problem"))
    say(driver, "and then this")
    driver.execute_script("connect()")
    until("a lost response causes no duplicate", lambda: texts(driver) == [*wanted, "once", "and then this"]
          and texts(driver, "#outbox li") == [])
    tries = driver.execute_script("return tries")
    check("the second try had the same key", len(tries) == 3 and tries[0] == tries[1] != tries[2], tries)

    # The relay refuses a message. It returns to the input, or waits for it, and does not hold up the next one.
    driver.execute_script("""
        window.fetch = async (path, options) => options?.body?.get?.("text") !== "refuse me" ? real(path, options)
          : new Response(JSON.stringify({ error: { code: "invalid", message: "text: refused" } }), { status: 400 });""")
    field = find(driver, "text")
    say(driver, "refuse me")
    until("a refused message is in the input again", lambda: field.get_attribute("value") == "refuse me")
    check("with the reason, and not in the outbox", find(driver, "refusal").text == "text: refused"
          and texts(driver, "#outbox li") == [])
    accessible(driver, "a refused message")
    picture(driver, "refused-light")
    driver.refresh()
    until("a reload keeps it", lambda: find(driver, "text").get_attribute("value") == "refuse me")
    field = find(driver, "text")
    field.send_keys(Keys.END + " no longer" + Keys.ENTER)
    until("corrected, it is sent", lambda: texts(driver)[-1] == "refuse me no longer" and not find(driver, "refusal").is_displayed())
    driver.execute_script("""
        window.real = fetch;
        window.fetch = async (path, options) => {
          if (options?.body?.get?.("text") !== "refuse me") return real(path, options);
          return new Promise((done) => { window.answerNow = () => done(new Response("<h1>Too large</h1>", { status: 413 })); });
        };""")
    say(driver, "refuse me")
    field.send_keys("the next")
    driver.execute_script("answerNow()")
    until("a proxy's refusal is final, too", lambda: "413" in "".join(texts(driver, "#outbox .problem")))
    check("the text in the input stays", field.get_attribute("value") == "the next")
    field.send_keys(Keys.ENTER)
    until("a refused message does not hold up the next one", lambda: texts(driver)[-1] == "the next")
    field.send_keys("more")
    click(driver, "#outbox li button", "Edit")
    until("it can be edited", lambda: field.get_attribute("value") == "refuse me\nmore" and texts(driver, "#outbox li") == [])
    field.clear()
    field.send_keys(" " + Keys.BACKSPACE)

    # The relay limits the rate. The messages wait, and keep their order.
    driver.execute_script("""
        window.fetch = async (path, options) => options?.body?.get?.("text") !== "too fast" ? real(path, options)
          : new Response(JSON.stringify({ error: { code: "too_many_requests", message: "slower" } }), { status: 429 });""")
    say(driver, "too fast")
    until("a message above the limit waits", lambda: texts(driver, "#outbox .problem") == ["slower"])
    say(driver, "after it")
    driver.execute_script("window.fetch = real; sendOutbox(current)")
    until("and is sent before the next one", lambda: texts(driver)[-2:] == ["too fast", "after it"])

    # A proxy answers while the relay restarts. Only the relay knows who is a member.
    driver.execute_script("""
        window.asked = 0;
        window.fetch = async () => { asked += 1; return new Response("<h1>404</h1>", { status: 404 }); };
        connect();""")
    say(driver, "past the proxy")
    until("a proxy's 404 is no refusal", lambda: "404" in "".join(texts(driver, "#outbox .problem"))
          and driver.execute_script("return asked") > 2)
    check("and deletes nothing", driver.execute_script("return rooms.length") == 1 and texts(driver)[-1] == "after it")
    driver.execute_script("window.fetch = real; connect()")
    until("the message is sent afterwards", lambda: texts(driver)[-1] == "past the proxy")

    # The member writes the same text in another app, and the page's message fails.
    driver.execute_script("""
        window.fetch = (path, options) => options?.body?.get?.("text") !== "twice" ? real(path, options)
          : new Promise((done, fail) => { window.failNow = () => fail(new TypeError("lost")); });""")
    say(driver, "twice")
    form(cmd="message", udid=driver.execute_script("return current.udid"), text="twice")
    until("the other app's message is shown", lambda: texts(driver)[-2:] == ["past the proxy", "twice"])
    driver.execute_script("window.fetch = real; failNow()")
    until("the page's message waits", lambda: texts(driver, "#outbox .problem"))
    driver.execute_script("sendOutbox(current)")
    until("and is sent", lambda: texts(driver)[-2:] == ["twice", "twice"])

    # Two tabs show the same room. One of them cannot send, and is closed.
    driver.execute_script("""window.fetch = async (path, options) => {
        if (options?.body?.get?.("cmd") === "message") throw new TypeError("lost");
        return real(path, options);
    }""")
    first = driver.current_window_handle
    say(driver, "from the first tab")
    until("it waits in the first tab", lambda: texts(driver, "#outbox .problem"))
    driver.switch_to.new_window("tab")
    driver.get(RELAY + "/")
    until("the second tab shows it too", lambda: "from the first tab" in texts(driver) + texts(driver, "#outbox .bubble"))
    second = driver.current_window_handle
    driver.switch_to.window(first)
    driver.close()
    driver.switch_to.window(second)
    until("the second tab has sent it once", lambda: texts(driver).count("from the first tab") == 1
          and texts(driver, "#outbox li") == [])

    # A database that was restored has lower ids than the page.
    driver.execute_script("current.cursor += 1000")
    shown = texts(driver)
    form(cmd="message", udid="a1" * 20, text="after a restore")
    until("the page reads a restored room again", lambda: texts(driver) == [*shown, "after a restore"])
    quiet(driver, "unsent messages")
    return relay
