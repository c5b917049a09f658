"""A room with thousands of messages: the page looks at the layout once for each list, and has elements for a part of them."""
from checks import check, until
from pages.helper import browser, enter, find, quiet, texts

# Takes 5,000 messages in lists of 500, as after a long absence. Counts how often the page asks for the layout.
ABSENCE = """
    const scroll = document.getElementById("scroll");
    const { get } = Object.getOwnPropertyDescriptor(Element.prototype, "scrollHeight");
    let looks = 0;
    Object.defineProperty(scroll, "scrollHeight", { configurable: true, get() { looks += 1; return get.call(scroll); } });
    const first = current.cursor + 1;
    for (let page = 0; page < 10; page += 1) {
      takeAll(Array.from({ length: 500 }, (_, index) => {
        const id = first + page * 500 + index;
        return { id, name: "Ben", text: "Message " + (page * 500 + index), sent_at: "2026-01-31T09:30:00Z", own: index === 7 };
      }));
    }
    delete scroll.scrollHeight;
    const items = [...document.querySelectorAll("#log > [data-id]")];
    return { looks, cursor: current.cursor - first + 1, items: items.length, last: items.at(-1).querySelector(".bubble").textContent,
      atEnd: scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 2 }"""

# Scrolls up by screens until the first message is shown. Returns the largest jump of a message when the window moved.
CLIMB = """
    const done = arguments[0];
    const scroll = document.getElementById("scroll");
    const tops = () => new Map([...document.querySelectorAll("#log > [data-id]")].map((item) => [item.dataset.id, item.getBoundingClientRect().top]));
    const frame = () => new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
    (async () => {
      let [most, jump, moves] = [0, 0, 0];
      for (let step = 0; step < 5000; step += 1) {
        const start = windowStart;
        scroll.scrollTop -= scroll.clientHeight * 0.9;
        const before = tops();
        await frame();
        const after = tops();
        most = Math.max(most, after.size);
        if (windowStart !== start) {
          moves += 1;
          const seen = [...after].filter(([id, top]) => before.has(id) && top > 0 && top < innerHeight);
          jump = Math.max(jump, seen.length ? Math.max(...seen.map(([id, top]) => Math.abs(top - before.get(id)))) : Infinity);
        }
        if (windowStart === 0 && scroll.scrollTop === 0) break;
      }
      done({ most, jump, moves, first: document.querySelector("#log .bubble").textContent, live: document.getElementById("log").ariaLive });
    })();"""


def play(relay):
    driver = browser()
    enter(driver, "Ada", "a very long room")
    until("the room is open", lambda: find(driver, "members").text.strip())
    found = driver.execute_script(ABSENCE)
    check("the page takes all messages", found["cursor"] == 5000 and found["last"] == "Message 4999", found)
    check("looks at the layout a few times for each list", found["looks"] <= 100, found)
    check("shows the newest", 200 <= found["items"] <= 400, found)
    check("and ends at the newest", found["atEnd"], found)
    found = driver.execute_async_script(CLIMB)
    check("a member can scroll to the first message", found["first"] == "Message 0" and found["moves"] > 10, found)
    check("with a part of the elements at any time", found["most"] <= 400, found)
    check("and no message jumps", found["jump"] < 2, found)
    driver.execute_script("document.getElementById('newest').click()")
    check("a press leads back to the newest", driver.execute_script("return nearEnd() && windowEnd === current.messages.length"))
    check("which are shown", texts(driver)[-1] == "Message 4999", texts(driver)[-1])
    quiet(driver, "a long room")
    return relay
