#!/usr/bin/env python3
"""aiontfy, unmodified, publishes messages that change, messages for later, and clears and deletes them. Another aiontfy hears
each change. The relay is killed in the middle.

Usage: aiontfy_updates.py RELAY-COMMAND…
Prints a line for each check that passed. Ends with status 1 at the first that failed.
"""
import asyncio, contextlib, datetime, json, sys, time

from aiontfy import Event, Message, Ntfy
from aiontfy import exceptions as errors
from yarl import URL

from checks import check, reached
from relay import administered

relay = administered(sys.argv[1:])


class Listener:
    """A subscription that begins again whenever it ends, as Home Assistant's does. aiontfy asks for no earlier messages."""

    def __init__(self, ntfy):
        self.events, self.opened = [], 0
        self.task = asyncio.create_task(self.run(ntfy))

    async def run(self, ntfy):
        while True:
            try:
                await ntfy.subscribe(["kitchen"], self.hear)
            except (errors.NtfyConnectionError, errors.NtfyTimeoutError):
                pass
            await asyncio.sleep(0.05)

    def hear(self, event):
        if event.event is Event.OPEN:
            self.opened += 1
        else:
            self.events.append(event)

    async def hears(self, what, sent, kind=Event.MESSAGE, text=None, sequence=None):
        """Waits for the event that a call returned, and compares both."""
        await reached(f"another aiontfy hears {what}", lambda: any(event.id == sent.id for event in self.events),
                      told=lambda: (sent, self.events[-3:]))
        [event] = [event for event in self.events if event.id == sent.id]
        check(f"{what}: as the call returned it", (event.event, event.message, event.sequence_id, event.time)
              == (kind, text, sequence, sent.time) and (sent.event, sent.sequence_id) == (kind, sequence), (sent, event))
        return event


def poll(secret, query="", agent="curl"):
    """Returns the room's stored events."""
    status, text, _ = relay.ask("GET", f"/ntfy/kitchen/json?poll=1{query}", headers={
        "Authorization": f"Bearer {secret}", "User-Agent": agent})
    check("a poll is answered", status == 200, text)
    return [json.loads(line) for line in text.splitlines()]


async def sequence(nas, other, listener, phone):
    """One message from its first text to its end."""
    first = await nas.publish(Message(topic="kitchen", message="Backup runs", title="NAS", tags=["floppy_disk", "a b"],
                                      markdown=True, icon=URL("https://example.org/i.png"), sequence_id="backup"))
    heard = await listener.hears("a message with a sequence id", first, text="Backup runs", sequence="backup")
    check("with its tags, its icon and its format", (heard.tags, heard.icon, heard.content_type, heard.title) == (
        ["floppy_disk", "a b"], URL("https://example.org/i.png"), "text/markdown", "NAS"), heard)
    update = await nas.publish(Message(topic="kitchen", message="Backup: 40 %", sequence_id="backup"))
    await listener.hears("its update", update, text="Backup: 40 %", sequence="backup")
    check("which is later", update.id > first.id and update.time > first.time, (first, update))
    foreign = await other.publish(Message(topic="kitchen", message="Backup of mine", sequence_id="backup"))
    await listener.hears("another sender's message of that name, which stays apart", foreign, text="Backup of mine")
    opened = listener.opened
    await asyncio.to_thread(relay.restart)
    await reached("it listens again after a kill", lambda: listener.opened > opened)
    done = await nas.publish(Message(topic="kitchen", message="Backup done", sequence_id="backup"))
    await listener.hears("an update after the kill", done, text="Backup done", sequence="backup")
    mine = await other.publish(Message(topic="kitchen", message="Mine done", sequence_id="backup"))
    await listener.hears("the other sender's update", mine, text="Mine done", sequence=foreign.id)
    rows = poll(phone)
    check("a poll has the newest of each, and nothing that was replaced",
          [(row["id"], row["message"], row.get("sequence_id")) for row in rows]
          == [(done.id, "Backup done", "backup"), (mine.id, "Mine done", foreign.id)], rows)
    check("a poll after the update has what came later", [row["id"] for row in poll(phone, f"&since={update.id}")]
          == [done.id, mine.id])
    cleared = await nas.clear("kitchen", "backup")
    await listener.hears("a clear", cleared, Event.MESSAGE_CLEAR, sequence="backup")
    rows = poll(phone)
    check("a poll has the message, and then its clear", [(row["event"], row.get("message"), row["sequence_id"]) for row in rows]
          == [("message", "Backup done", "backup"), ("message", "Mine done", foreign.id), ("message_clear", None, "backup")], rows)
    deleted = await nas.delete("kitchen", "backup")
    await listener.hears("a deletion", deleted, Event.MESSAGE_DELETE, sequence="backup")
    check("a deleted message is only its deletion", [(row["event"], row.get("message")) for row in poll(phone)]
          == [("message", "Mine done"), ("message_delete", None)])
    check("ntfy's app for iPhones gets no deletion", [row["event"] for row in poll(
        phone, agent="ntfy/1.8.0 (build 1; iOS 18.5)")] == ["message"])
    reborn = await nas.publish(Message(topic="kitchen", message="Backup runs again", sequence_id="backup"))
    await listener.hears("a new message of that name, which the other sender now had first", reborn, text="Backup runs again")
    gone = await nas.delete("kitchen", "never-posted")
    check("the deletion of an unknown name is answered", (gone.event, gone.sequence_id) == (Event.MESSAGE_DELETE, "never-posted"), gone)
    check("and changes nothing", [row["event"] for row in poll(phone)] == ["message", "message_delete", "message"])


async def names(nas, listener):
    """The other names of a message, and the other spellings."""
    plain = await nas.publish(Message(topic="kitchen", message="plain"))
    await listener.hears("a message without a name", plain, text="plain")
    changed = await nas.publish(Message(topic="kitchen", message="changed", sequence_id=plain.id))
    await listener.hears("its update by its id", changed, text="changed", sequence=plain.id)
    number = await nas.publish(Message(topic="kitchen", message="problem", sequence_id="4711"))
    await listener.hears("a message whose name is a number", number, text="problem", sequence="4711")
    solved = await nas.publish(Message(topic="kitchen", message="solved", sequence_id="4711"))
    await listener.hears("its update", solved, text="solved", sequence="4711")
    image = await nas.publish(Message(topic="kitchen", message="with a file", filename="a.jpg", sequence_id="4711"), b"\xff\xd8")
    await listener.hears("an update that has a file", image, text="with a file", sequence="4711")
    for error, call in ((errors.NtfyBadRequestError, nas.publish(Message(topic="kitchen", message="x", sequence_id="a b"))),
                        (errors.NtfyNotFoundPageError, nas.delete("kitchen", "a b"))):
        try:
            await call
        except errors.NtfyException as got:
            check(f"a wrong name: {error.__name__}", isinstance(got, error), repr(got))
        else:
            check("a wrong name", False, "no error")
    # A moderator deletes the message in the room.
    before = len(listener.events)
    room = relay.admin("GET", "/v1/messages?room=kitchen&text=true")["messages"]
    [found] = [each for each in room if each["text"] == "with a file"]
    relay.admin("DELETE", f"/v1/messages/{found['id']}")
    await reached("a moderator's deletion reaches ntfy's clients", lambda: [
        (event.event, event.sequence_id) for event in listener.events[before:]] == [(Event.MESSAGE_DELETE, "4711")],
        told=lambda: listener.events[before:])


async def later(nas, listener, phone):
    """Messages for later: a dead man's switch, and some that are due while the relay is killed again and again."""
    for _ in range(3):
        alive = await nas.publish(Message(topic="kitchen", message="no sign of life", delay="1h", sequence_id="alive"))
        check("a message for later has the time at which it is due", alive.sequence_id == "alive" and 3500 < (
            alive.time - datetime.datetime.now(datetime.UTC)).total_seconds() <= 3600, alive)
    check("a poll for scheduled messages has it once", [row["id"] for row in poll(phone, "&sched=1")
                                                        if row.get("sequence_id") == "alive"] == [alive.id])
    gone = await nas.delete("kitchen", "alive")
    check("it can be cancelled", (gone.event, gone.sequence_id, gone.id) == (Event.MESSAGE_DELETE, "alive", alive.id), gone)
    for delay in ("tomorrow, 10am", "5s", "31d"):
        try:
            await nas.publish(Message(topic="kitchen", message="x", delay=delay))
        except errors.NtfyException as got:
            check(f"a delay of {delay} is refused", isinstance(got, errors.NtfyBadRequestError), repr(got))
        else:
            check(f"a delay of {delay} is refused", False, "no error")

    given = [await nas.publish(Message(topic="kitchen", message=f"due {number}", delay=f"{10 + number}s")) for number in range(4)]
    named = await nas.publish(Message(topic="kitchen", message="due with a name", delay="12s", sequence_id="soon"))

    def due():
        return [row for row in poll(phone) if row.get("message", "").startswith("due")]

    end = time.time() + 120
    while len(due()) < len(given) + 1:
        check("messages for later are posted although the relay is killed", time.time() < end, due())
        await asyncio.to_thread(relay.restart)
    rows = {row["message"]: row for row in due()}
    check("each once", len(due()) == len(rows) == len(given) + 1, due())
    check("none is early", all(rows[message.message]["time"] >= message.time.timestamp() for message in (*given, named)), (rows, given))
    check("nothing is left", [row for row in poll(phone, "&sched=1") if row["time"] > time.time() + 60] == [])
    last = await nas.publish(Message(topic="kitchen", message="changed", sequence_id=given[0].id))
    check("the id from the first response names the message", [row["sequence_id"] for row in poll(phone) if row["id"] == last.id]
          == [rows["due 0"]["id"]], last)

    opened = listener.opened
    await asyncio.to_thread(relay.restart)
    await reached("it listens again", lambda: listener.opened > opened)
    soon = await nas.publish(Message(topic="kitchen", message="heard", delay="10s", sequence_id="soon"))
    await reached("a message that is due is heard, as a change of the open one of its name", lambda: [
        event.message for event in listener.events if event.sequence_id == "soon"][-1:] == ["heard"], told=lambda: listener.events[-3:])
    check("not early", listener.events[-1].time >= soon.time and listener.events[-1].id > soon.id, (soon, listener.events[-1]))


async def storm(nas, listener, phone):
    """Updates without a pause while the relay is killed. Each is repeated until it is answered: the same name makes that safe."""
    over = asyncio.Event()

    async def update(name):
        number = 0
        while not over.is_set():
            try:
                await nas.publish(Message(topic="kitchen", message=f"{name} {number}", sequence_id=name))
                number += 1
            except (errors.NtfyConnectionError, errors.NtfyTimeoutError):
                await asyncio.sleep(0.05)
        return name, f"{name} {number - 1}"

    tasks = [asyncio.create_task(update(f"job-{job}")) for job in range(4)]
    for round in ("first", "second"):
        heard = len(listener.events)
        await reached(f"updates are heard before the {round} kill", lambda: len(listener.events) >= heard + 10,
                      told=lambda: listener.events[-1:])
        await asyncio.to_thread(relay.restart)
    over.set()
    wanted = sorted(await asyncio.gather(*tasks))
    rows = [row for row in poll(phone) if row.get("sequence_id", "").startswith("job-")]
    check("after two kills each name has one message, with its last text",
          sorted((row["sequence_id"], row["message"]) for row in rows) == wanted, (rows, wanted))
    for name in sorted({row["sequence_id"] for row in rows}):
        ours = [event for event in listener.events if event.sequence_id == name]
        check(f"{name}: ids and times rise", all(
            before.id < after.id and before.time < after.time for before, after in zip(ours, ours[1:])), ours)


async def main():
    phone = relay.token("phone", "read")
    secrets = [relay.token(name, "post", room="kitchen") for name in ("nas", "other")]
    for base in (relay.base + "/ntfy", relay.base):
        async with contextlib.AsyncExitStack() as stack:
            nas, other, reader = [await stack.enter_async_context(Ntfy(base, token=secret)) for secret in (*secrets, phone)]
            listener = Listener(reader)
            await reached("aiontfy listens", lambda: listener.opened)
            if base == relay.base:
                at_root = await nas.publish(Message(topic="kitchen", message="at the root", sequence_id="root"))
                await listener.hears("a message at the root", at_root, text="at the root", sequence="root")
                await listener.hears("a clear there", await nas.clear("kitchen", "root"), Event.MESSAGE_CLEAR, sequence="root")
                await listener.hears("a deletion there", await nas.delete("kitchen", "root"), Event.MESSAGE_DELETE, sequence="root")
            else:
                await sequence(nas, other, listener, phone)
                await names(nas, listener)
                await later(nas, listener, phone)
                await storm(nas, listener, phone)
            listener.task.cancel()


relay.start("--set", "http.ntfy_at_root=on", "--set", "http.rate_per_member=off")
try:
    asyncio.run(main())
finally:
    relay.kill()
