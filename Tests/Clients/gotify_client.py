#!/usr/bin/env python3
"""python-gotify, unmodified: it posts, reads, listens and deletes as the Gotify client of a phone. The relay is killed under it.

Usage: gotify_client.py RELAY-COMMAND…
Prints a line for each check that passed. Ends with status 1 at the first that failed.
"""
import asyncio, contextlib, json, sys, warnings

warnings.simplefilter("ignore", DeprecationWarning)  # It uses the older interface of websockets.

from gotify import AsyncGotify, GotifyError
from httpx import HTTPError
from websockets.exceptions import WebSocketException

from checks import check, reached
from relay import administered

relay = administered(sys.argv[1:])


async def refused(what, status, call):
    try:
        await call
    except GotifyError as error:
        check(what, (error.response.status_code, error.error.get("errorCode")) == (status, status)
              and set(error.error) == {"error", "errorCode", "errorDescription"}, error.error)
    else:
        check(what, False, "no error")


def texts(page):
    return [message["message"] for message in page["messages"]]


class Phone:
    """Listens. After each new connection it fetches the messages after the last id that it knows, page by page."""

    def __init__(self, gotify, last=0):
        self.gotify, self.last, self.got, self.live, self.connections = gotify, last, [], 0, 0
        self.task = asyncio.create_task(self.run())

    async def run(self):
        while True:
            arrived = asyncio.Queue()
            listening = asyncio.create_task(self.listen(arrived))
            try:
                while not listening.done() and not await asyncio.to_thread(relay.streams):
                    await asyncio.sleep(0.02)
                await self.fetch()
                self.connections += 1
                while not listening.done() or not arrived.empty():
                    with contextlib.suppress(TimeoutError):
                        self.take(await asyncio.wait_for(arrived.get(), 0.05))
                        self.live += 1
            except (OSError, HTTPError):
                await asyncio.sleep(0.05)
            finally:
                listening.cancel()

    async def listen(self, arrived):
        with contextlib.suppress(OSError, WebSocketException):
            async for message in self.gotify.stream():
                arrived.put_nowait(message)

    async def fetch(self):
        missed, since = [], 0
        while True:
            page = await self.gotify.get_messages(limit=5, since=since)
            missed += [message for message in page["messages"] if message["id"] > self.last]
            if len(missed) < 5 or "next" not in page["paging"] or page["messages"][-1]["id"] <= self.last:
                break
            since = page["paging"]["since"]
        for message in reversed(missed):
            self.take(message)

    def take(self, message):
        if message["id"] > self.last:
            self.last = message["id"]
            self.got.append(message)

    @property
    def texts(self):
        return [message["message"] for message in self.got]


async def rest(server, phone, one):
    gotify, single = AsyncGotify(server, client_token=phone), AsyncGotify(server, app_token=one, client_token=one)
    check("the version", (await gotify.get_version())["version"])
    health = await gotify.get_health()
    check("the health", health == {"health": "green", "database": "green"}, health)
    user = await gotify.get_current_user()
    check("the user", isinstance(user["id"], int) and user["name"] and user["admin"] is False, user)
    sent = [await single.create_message("größer", title="First", priority=7, extras={
        "client::notification": {"click": {"url": "https://example.org/x"}}})]
    sent += [await single.create_message(f"m{number}") for number in range(2, 8)]
    check("it posts", (sent[0]["message"], sent[0]["title"], sent[0]["priority"]) == ("größer", "First", 7), sent[0])
    relay.post("hall", "in the hall")

    apps = {app["name"]: app for app in await gotify.get_applications()}
    check("each room is an application", {"kitchen", "hall"} <= set(apps), apps)
    check("with all fields", all({"id", "token", "name", "description", "internal", "image", "defaultPriority"} <= set(app)
          for app in apps.values()), apps)
    kitchen, hall = apps["kitchen"]["id"], apps["hall"]["id"]
    check("a post names its application", {message["appid"] for message in sent} == {kitchen}, sent)
    mine = await single.get_applications()
    check("a token of one room has one application", [app["id"] for app in mine] == [kitchen], mine)

    page = await gotify.get_messages()
    check("all messages, the newest first", texts(page) == ["in the hall", *[f"m{n}" for n in range(7, 1, -1)], "größer"], page)
    check("the last page has no next one", page["paging"]["since"] == 0 and not page["paging"].get("next"), page["paging"])
    got = page["messages"][-1]
    check("as they were posted", [got[key] for key in ("id", "appid", "message")]
          == [sent[0][key] for key in ("id", "appid", "message")], (got, sent[0]))
    check("the title names the sender, too", got["title"] == "cron: First", got)
    check("with the link", got["extras"]["client::notification"]["click"]["url"] == "https://example.org/x", got)
    check("with title, priority and date", all(message["title"] and isinstance(message["priority"], int) and message["date"]
          for message in page["messages"]), page)
    seen, since, pages = [], 0, 0
    while True:
        page = await gotify.get_messages(app_id=kitchen, limit=3, since=since)
        seen, pages, since = seen + texts(page), pages + 1, page["paging"]["since"]
        if not page["paging"].get("next"):
            break
    check("one room, page by page", (seen, pages) == ([*[f"m{n}" for n in range(7, 1, -1)], "größer"], 3), (seen, pages))

    for what, status, call in (
            ("a wrong token", 401, AsyncGotify(server, client_token="pct_wrong").get_applications()),
            ("a wrong token that posts", 401, AsyncGotify(server, app_token="pct_wrong").create_message("x")),
            ("a foreign application", 404, single.get_messages(app_id=hall)),
            ("an unknown application", 404, single.get_messages(app_id=987654)),
            ("a message of a foreign room", 404, single.delete_message((await gotify.get_messages(limit=1))["messages"][0]["id"])),
            ("a limit that is too high", 400, gotify.get_messages(limit=201)),
            ("an unknown path", 404, gotify.get_plugins())):
        await refused(what, status, call)
    try:
        await anext(AsyncGotify(server, client_token="pct_wrong").stream())
        check("a stream with a wrong token", False, "no error")
    except WebSocketException as error:
        check("a stream with a wrong token", "401" in str(error), error)


async def clients(server, phone):
    gotify = AsyncGotify(server, client_token=phone)
    made = await gotify.create_client("Ann's phone")
    check("it makes a client", made["name"] == "Ann's phone" and made["token"].startswith("pc"), made)
    other = AsyncGotify(server, client_token=made["token"])
    check("which reads", len((await other.get_messages())["messages"]) == 8)
    check("and is listed", made["id"] in [client["id"] for client in await other.get_clients()])
    check("with its own token, by which the app finds itself",
          [client["id"] for client in await other.get_clients() if client.get("token") == made["token"]] == [made["id"]])

    first, second, *_ = (await other.get_messages())["messages"]
    await other.delete_message(first["id"])
    check("a deleted message is hidden", first["id"] not in [m["id"] for m in (await other.get_messages())["messages"]])
    check("only from this client", first["id"] in [m["id"] for m in (await gotify.get_messages())["messages"]])
    await refused("it cannot be deleted twice", 404, other.delete_message(first["id"]))
    await other.delete_messages(app_id=second["appid"])
    check("a room's messages are hidden", texts(await other.get_messages(app_id=second["appid"])) == [])
    await other.delete_messages()
    check("all messages are hidden", texts(await other.get_messages()) == [])
    check("but the room keeps them", len((await gotify.get_messages())["messages"]) == 8)
    relay.post("hall", "after the deletes")
    check("later ones are there", texts(await other.get_messages()) == ["after the deletes"])
    await other.delete_client(made["id"])
    await refused("a deleted client is out", 401, other.get_messages())


async def member(server):
    """A member's own credential reads the member's room, and writes as the member."""
    ann, bob = relay.member(1, "Ann", "tea & biscuits"), relay.member(2, "Bob", "tea & biscuits")
    secret = relay.credential(ann, "Ann's phone")["credential"]
    gotify = AsyncGotify(server, client_token=secret, app_token=secret)
    rooms = await gotify.get_applications()
    check("a member has one application", len(rooms) == 1, rooms)
    await gotify.create_message("hello Bob")
    relay.chat("message", bob, text="hello Ann")
    history = json.loads(relay.chat("messages", bob))["messages"]
    check("it posts as the member", [(m["name"], m["text"]) for m in history] == [("Ann", "hello Bob"), ("Bob", "hello Ann")], history)
    check("it reads the room", texts(await gotify.get_messages(app_id=rooms[0]["id"])) == ["hello Ann", "hello Bob"])
    relay.chat("leave", ann)
    await refused("it ends when the member leaves", 401, gotify.get_messages())


async def live(server, phone, one):
    gotify, last = AsyncGotify(server, client_token=phone), (await AsyncGotify(server, client_token=phone).get_messages(limit=1))["messages"][0]["id"]
    phones = [Phone(gotify, last)]
    await reached("it listens", lambda: phones[0].connections)
    posted = await AsyncGotify(server, app_token=one).create_message("live", title="Now", priority=4)
    relay.post("hall", "live in the hall")
    await reached("it gets messages of two rooms", lambda: phones[0].texts == ["live", "live in the hall"], told=lambda: phones[0].got)
    check("live ones, as they were posted", phones[0].live == 2 and [phones[0].got[0][key] for key in ("id", "appid", "message")]
          == [posted[key] for key in ("id", "appid", "message")], phones[0].got)
    for round in (1, 2):
        connections = phones[0].connections
        await asyncio.to_thread(relay.restart, meanwhile=lambda other: [
            other.post(("kitchen", "hall")[number % 2], f"outage {round}.{number}") for number in range(12)])
        await reached(f"it is back after kill {round}", lambda: phones[0].connections > connections)
        relay.post("kitchen", f"after kill {round}")
        await reached(f"after kill {round}", lambda: phones[0].texts[-1:] == [f"after kill {round}"], told=lambda: phones[0].texts[-3:])
    wanted = ["live", "live in the hall"]
    for round in (1, 2):
        wanted += [*[f"outage {round}.{number}" for number in range(12)], f"after kill {round}"]
    check("it missed and doubled nothing over two kills", phones[0].texts == wanted, phones[0].texts)
    phones[0].task.cancel()


async def main():
    phone, one = relay.token("phone", "read", "post"), relay.token("cron", "read", "post", room="kitchen")
    server = relay.base + "/gotify"
    await rest(server, phone, one)
    await clients(server, phone)
    await member(server)
    await live(server, phone, one)
    await refused_at_root(phone)
    relay.kill()
    relay.start("--set", "http.gotify_at_root=on")
    gotify = AsyncGotify(relay.base, client_token=phone, app_token=one)
    check("the version at the root", (await gotify.get_version())["version"])
    listener = Phone(gotify, (await gotify.get_messages(limit=1))["messages"][0]["id"])
    await reached("it listens at the root", lambda: listener.connections)
    await gotify.create_message("at the root")
    await reached("and gets what it posts there", lambda: listener.texts == ["at the root"], told=lambda: listener.got)
    check("the relay's own paths stay", relay.ask("GET", "/healthz")[0] == 200 and relay.admin("GET", "/v1/stats"))
    listener.task.cancel()


async def refused_at_root(phone):
    check("at the root is no Gotify without the setting", relay.ask("GET", "/application", headers={"X-Gotify-Key": phone})[0] == 404)


relay.start()
try:
    asyncio.run(main())
finally:
    relay.kill()
