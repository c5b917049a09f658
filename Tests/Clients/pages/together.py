"""Two terminals, a browser and a posting script in one room; the relay is killed in the middle."""
import json, os, shutil, signal, subprocess, tempfile, threading, time, urllib.request

from checks import check, until
from pages.helper import COMMAND, RELAY, browser, enter, say, start_again, texts


def play(relay):
    """Two terminals, a browser and a posting script in one room; the relay is killed in the middle."""
    room, count = "workshop", 24
    state = tempfile.mkdtemp()
    driver = browser()
    enter(driver, "Cleo", room)
    terminals, printed = [], []
    for name in ("Ada", "Ben"):
        lines = open(os.path.join(state, name), "w+")
        terminals.append(subprocess.Popen(
            [COMMAND[0], "chat", room, "--name", name, "--json", "--follow", "--relay", RELAY], stdin=subprocess.PIPE, text=True,
            stdout=lines, stderr=subprocess.DEVNULL, env={**os.environ, "XDG_STATE_HOME": state}))
        printed.append(lambda path=lines.name: [
            line["text"] for line in map(json.loads, open(path).read().splitlines()) if "text" in line])
        until(f"{name} is in the room", lambda: '"event":"room"' in open(lines.name).read())

    def script():
        for number in range(count):
            post = urllib.request.Request(
                RELAY + "/v1/messages?room=" + room, f"post {number}".encode(), {"Idempotency-Key": f"post-{number}"})
            while True:
                try:
                    urllib.request.urlopen(post, timeout=10).close()
                    break
                except OSError:  # The relay does not listen, or does not respond any more.
                    time.sleep(0.05)

    posting = threading.Thread(target=script)
    posting.start()
    until("the posts come", lambda: "post 3" in texts(driver))
    for number in range(8):
        for each, name in zip(terminals, "ab"):
            each.stdin.write(f"{name} {number}\n")
            each.stdin.flush()
        if number == 3:
            relay.send_signal(signal.SIGKILL)
            relay.wait()
            relay = start_again()
    posting.join()
    say(driver, "the last")
    every = {f"post {number}" for number in range(count)} | {f"{name} {number}" for name in "ab" for number in range(8)}
    for told in (*printed, lambda: texts(driver)):
        until("all members have all messages", lambda: every | {"the last"} <= set(told()), told=told)
    check("once, and in one order", printed[0]() == printed[1]() == texts(driver) and len(printed[0]()) == len(every) + 1,
          [each() for each in printed] + [texts(driver)])
    for each in terminals:
        each.send_signal(signal.SIGTERM)
        check("a terminal ends in order", each.wait(20) == 0)
    shutil.rmtree(state)
    return relay
