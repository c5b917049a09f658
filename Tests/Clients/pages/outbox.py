"""Messages that a browser writes without a connection."""
from checks import check, until
from pages.helper import browser, click, enter, find, form, lose_network, quiet, say, texts


def play(relay):
    driver = browser()
    enter(driver, "Ada", "out of reach")
    form(cmd="join", udid="a1" * 20, token=0, name="Ben", code="out of reach")
    until("both are in", lambda: find(driver, "members").text == "2 members")
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

    # The relay refuses a message. It stays, and does not hold up the next one.
    driver.execute_script("""
        window.fetch = async (path, options) => options?.body?.get?.("text") !== "refuse me" ? real(path, options)
          : new Response(JSON.stringify({ error: { code: "invalid", message: "text: refused" } }), { status: 400 });""")
    say(driver, "refuse me")
    say(driver, "the next")
    until("a refused message does not hold up the next one", lambda: texts(driver)[-1] == "the next")
    check("it stays with its reason", texts(driver, "#outbox .problem") == ["text: refused"])
    click(driver, "#outbox li button", "Delete")
    quiet(driver, "unsent messages")
    return relay
