#!/usr/bin/env python3
"""aiontfy, the ntfy client of Home Assistant, unmodified: it publishes and listens. Then the calls of Home Assistant itself.

Usage: aiontfy_client.py RELAY-COMMAND…
Prints a line for each check that passed. Ends with status 1 at the first that failed.
"""
import asyncio, contextlib, sys

from aiontfy import Event, Message, Ntfy
from aiontfy import exceptions as errors
from yarl import URL

from checks import check, reached
from relay import administered

relay = administered(sys.argv[1:])


async def refused(what, error, call):
    try:
        await call
    except errors.NtfyException as got:
        check(what, type(got) is error, repr(got))
    else:
        check(what, False, "no error")


class Listener:
    """A subscription. `repeats` subscribes again whenever it ends, as Home Assistant does."""

    def __init__(self, ntfy, topics, repeats=False, **filters):
        self.events, self.repeats = [], repeats
        self.task = asyncio.create_task(self.run(ntfy, topics, filters))

    async def run(self, ntfy, topics, filters):
        while True:
            try:
                await ntfy.subscribe(topics, self.events.append, **filters)
            except (errors.NtfyConnectionError, errors.NtfyTimeoutError):
                pass
            if not self.repeats:
                return
            await asyncio.sleep(0.05)

    def opened(self):
        return sum(event.event is Event.OPEN for event in self.events)

    @property
    def messages(self):
        return [event for event in self.events if event.event is Event.MESSAGE]

    @property
    def texts(self):
        return [event.message for event in self.messages]


@contextlib.asynccontextmanager
async def listening(ntfy, topics, **options):
    listener = Listener(ntfy, topics, **options)
    try:
        await reached(f"it listens to {','.join(topics)}", listener.opened)
        yield listener
    finally:
        listener.task.cancel()


async def library(server, phone, one):
    async with Ntfy(server, token=phone) as ntfy, Ntfy(server, token=one) as single, Ntfy(server) as anonymous, \
            Ntfy(server, token="pct_wrong") as wrong, Ntfy(server, username="ann", password=phone) as named:
        check("it may subscribe to two topics", await ntfy.can_subscribe(["kitchen", "hall"]))
        check("with user and password, too", await named.can_subscribe(["kitchen"]))
        check("and to the topic of a token with one room", await single.can_subscribe(["kitchen"]))
        for topic in ("hall", "nowhere"):
            await refused(f"a token of one room is refused for {topic}", errors.NtfyForbiddenAccessError, single.can_subscribe([topic]))
        await refused("one topic without permission refuses all", errors.NtfyForbiddenAccessError,
                      single.subscribe(["kitchen", "hall"], print))
        await refused("nobody reads without a token", errors.NtfyForbiddenAccessError, anonymous.can_subscribe(["kitchen"]))
        await refused("a wrong token", errors.NtfyUnauthorizedAuthenticationError, wrong.can_subscribe(["kitchen"]))
        await refused("a wrong priority", errors.NtfyBadRequestPriorityInvalidError, ntfy._request(
            "GET", ntfy.url / "kitchen/json", params={"poll": "1", "priority": "9"}))
        await refused("an unknown path", errors.NtfyNotFoundPageError, ntfy.version())

        async with listening(ntfy, ["kitchen", "hall"]) as both, listening(single, ["kitchen"], title="Only this") as titled, \
                listening(ntfy, ["kitchen"], priority=[4, 5]) as urgent, listening(ntfy, ["hall"], message="the hall") as exact:
            sent = await ntfy.publish(Message(
                topic="kitchen", message="größer\nals alles", title="Only this", priority=5, tags=["tada"],
                click=URL("https://example.org/x")))
            check("it publishes", (sent.event, sent.topic, sent.message, sent.title) ==
                  (Event.MESSAGE, "kitchen", "größer\nals alles", "Only this"), sent)
            await ntfy.publish(Message(topic="hall", message="the hall"))
            await ntfy.publish(Message(topic="kitchen", message="plain"))
            wanted = ["größer\nals alles", "the hall", "plain"]
            await reached("it gets messages of two topics", lambda: both.texts == wanted, told=lambda: both.events)
            got = both.messages[0]
            check("as they were published", (got.id, got.time, got.topic, got.title, got.click) ==
                  (sent.id, sent.time, "kitchen", "Only this", URL("https://example.org/x")), got)
            check("the first event is open, with the topics as requested",
                  (both.events[0].event, both.events[0].topic) == (Event.OPEN, "kitchen,hall"), both.events[0])
            await reached("a filter for a title", lambda: titled.texts == wanted[:1], told=lambda: titled.events)
            await reached("a filter for a text", lambda: exact.texts == wanted[1:2], told=lambda: exact.events)
            await reached("a filter for priorities", lambda: urgent.texts == wanted[:1], told=lambda: urgent.events)


async def kills(server, phone):
    async with Ntfy(server, token=phone) as ntfy, listening(ntfy, ["kitchen", "hall"], repeats=True) as both:
        for round in (1, 2):
            relay.post("kitchen", f"before kill {round}")
            await reached(f"before kill {round}", lambda: both.texts[-1:] == [f"before kill {round}"])
            opened = both.opened()
            await asyncio.to_thread(relay.restart)
            await reached(f"it listens again after kill {round}", lambda: both.opened() > opened, told=lambda: both.events)
            relay.post("hall", f"after kill {round}")
            await reached(f"after kill {round}", lambda: both.texts[-1:] == [f"after kill {round}"], told=lambda: both.events)
        wanted = [f"{when} kill {round}" for round in (1, 2) for when in ("before", "after")]
        check("it got each message once", both.texts == wanted, both.texts)


async def home_assistant(server, secret):
    """The calls of Home Assistant's integration in order: its form, then its entities (homeassistant/components/ntfy)."""
    async with Ntfy(server) as form:
        check("the form without a user: the account is anonymous", (await form.account()).username == "*")
    async with Ntfy(server, username="ann", password="wrong") as form:
        await refused("the form with a wrong password", errors.NtfyUnauthorizedAuthenticationError, form.account())
    async with Ntfy(server, username="ann", password=secret) as form:
        account = await form.account()
        check("the form: the account has the user's name", account.username == "ann", account)
        check("the account has numbers for the sensors", account.stats.messages >= 0 and account.stats.messages_remaining > 0, account.stats)
        token = (await form.generate_token("Home Assistant")).token
    async with Ntfy(server, token=token) as entry:
        check("the made token has an account, too", (await entry.account()).username not in ("", "*"))
        listener = Listener(entry, ["kitchen"], repeats=True)
        await reached("the event entity listens", listener.opened)
        await entry.publish(Message(topic="kitchen", title="Home", message="the door is open", priority=4, tags=["door"]))
        await reached("the event entity gets what the notify entity sends", lambda: listener.texts == ["the door is open"],
                      told=lambda: listener.events)
        check("its topic is the one of the form", listener.messages[0].topic == "kitchen")
        opened = listener.opened()
        await asyncio.to_thread(relay.restart)
        await reached("the coordinator subscribes again after a kill", lambda: listener.opened() > opened)
        relay.post("kitchen", "the door is shut")
        await reached("and gets what follows", lambda: listener.texts == ["the door is open", "the door is shut"])
        listener.task.cancel()
    async with Ntfy(server, username="ann", password=secret) as again:
        check("a new log-in finds the same user", (await again.account()).username == "ann")
        check("and makes another token", (await again.generate_token("Home Assistant")).token.startswith("pc"))


async def main():
    phone, one = relay.token("phone", "read", "post"), relay.token("kitchen", "read", room="kitchen")
    server = relay.base + "/ntfy"
    await library(server, phone, one)
    await kills(server, phone)
    await home_assistant(server, phone)
    relay.kill()
    relay.start("--set", "http.ntfy_at_root=on")
    async with Ntfy(relay.base, token=phone) as ntfy, listening(ntfy, ["kitchen", "hall"]) as both:
        await ntfy.publish(Message(topic="hall", message="at the root"))
        await reached("it listens and publishes at the root", lambda: both.texts == ["at the root"], told=lambda: both.events)
    await home_assistant(relay.base, phone)


relay.start()
try:
    asyncio.run(main())
finally:
    relay.kill()
