#!/usr/bin/env python3
"""Replays the requests of ntfy's and Gotify's apps, byte for byte and in their order, against a relay that it kills and restarts.

Usage: phone_apps.py AUTHORITY.pem DOUBLES LOG RELAY…
RELAY is the command that starts the relay with TLS; its log is appended to LOG. DOUBLES is yes if a stream of several topics may
repeat messages after a reconnect. Prints a line for each check that passed. Ends with status 1 at the first that failed.
"""
import atexit, base64, hashlib, json, os, re, signal, sys, threading, time, urllib.parse

from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, HTTPServer

from checks import check, until
from relay import Relay
from wire import CLOSE, PING, PONG, TEXT, Ended, Lines, WebSocket, Wire

AUTHORITY, DOUBLES, LOG = sys.argv[1], sys.argv[2] == "yes", sys.argv[3]
ADMIN = "the-token-of-this-test"
BASE_URL = "https://chat.example.org"
relay = Relay(sys.argv[4:], AUTHORITY, ADMIN, LOG)
HOST = f"127.0.0.1:{relay.port}"
ID = re.compile(r"^m\d{11}$")
# The members that a message of ntfy may have, and those that it must have.
FIELDS = {"id", "time", "event", "topic", "message", "expires", "title", "click", "priority", "tags", "content_type", "encoding"}
ALWAYS = {"id", "time", "event", "topic", "message"}
secrets = [ADMIN]
atexit.register(lambda: relay.kill())


def say(udid, text):
    """Posts as a member, and returns the text."""
    relay.chat("message", udid, text=text)
    return text


# The apps

def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class OkHttp:
    """Android's HTTP client: requests over one connection that stays open, and one connection for each stream."""

    def __init__(self, agent=None):
        self.agent, self.wire, self.streams = agent, None, []

    def headers(self, own, connection="Keep-Alive"):
        given = [("User-Agent", self.agent)] if self.agent else []
        length = [header for header in own if header[0].startswith("Content-")]
        own = [header for header in own if header not in length]
        rest = [] if self.agent else [("User-Agent", "okhttp/4.12.0")]
        return [*given, *own, *length, ("Host", HOST), *([("Connection", connection)] if connection else []),
                ("Accept-Encoding", "gzip"), *rest]

    def request(self, method, target, own=(), body=None, kind=None):
        if self.wire is None:
            self.wire = Wire(relay.port, AUTHORITY, ("h2", "http/1.1"))
            check("ALPN chooses http/1.1", self.wire.protocol == "http/1.1", self.wire.protocol)
        if body is not None:
            own = [*own, *([("Content-Type", kind)] if kind else []), ("Content-Length", str(len(body)))]
        answer = self.wire.request(method, target, self.headers(own), body)
        if answer.headers.get("connection") == "close":
            raise SystemExit(f"FAILED {method} {target} ended a connection that OkHttp keeps: {answer}")
        return answer

    def lines(self, target, own=()):
        return self.opened(Lines(Wire(relay.port, AUTHORITY, ("h2", "http/1.1")), target, self.headers(own)))

    def socket(self, target, own=(), extra=b""):
        own = [*own, ("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Key", "KEY"),
               ("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Extensions", "permessage-deflate")]
        return self.opened(WebSocket(Wire(relay.port, AUTHORITY), target, self.headers(own, None), extra))

    def opened(self, stream):
        self.streams.append(stream)
        return stream

    def end(self):
        """Ends the app: the system closes all its connections."""
        for wire in [self.wire, *(stream.wire for stream in self.streams)]:
            if wire:
                wire.close()


class NtfyAndroid(OkHttp):
    """ntfy's Android app 1.25.0, with one server, one credential, and one connection for all topics."""

    def __init__(self, base, secret, way):
        super().__init__("ntfy/1.25.0 (play; Android 15; SDK 35)")
        self.base, self.way, self.topics, self.last = base, way, [], None
        self.login = [("Authorization", basic("phone", secret))]
        self.stream = None

    def add(self, topic, wrong=None):
        """Adds a topic. Without a stored user the app asks without a log-in first, and again with the one that the user types."""
        if not self.topics:
            answer = self.request("GET", f"{self.base}/{topic}/auth")
            check(f"nobody may not read {topic}: the app shows its log-in page", (answer.status, answer.json["code"]) == (403, 40301)
                  and set(answer.json) <= {"code", "http", "error", "link"} and answer.json["http"] == 403, answer)
            if wrong:
                answer = self.request("GET", f"{self.base}/{topic}/auth", [("Authorization", basic("phone", wrong))])
                check("a wrong password is refused", (answer.status, answer.json["code"]) == (401, 40101)
                      and "www-authenticate" not in answer.headers and set(answer.json) <= {"code", "http", "error", "link"}, answer)
        answer = self.request("GET", f"{self.base}/{topic}/auth", self.login)
        check(f"the right one may read {topic}", (answer.status, answer.json) == (200, {"success": True})
              and answer.headers.get("access-control-allow-origin") == "*", answer)
        stored = self.poll(topic, "all")
        self.topics.append(topic)
        return stored

    def poll(self, topic, since):
        answer = self.request("GET", f"{self.base}/{topic}/json?poll=1&since={since}", self.login)
        check(f"{topic} is polled since {since[:4]}…", answer.status == 200
              and answer.headers["content-type"] == "application/x-ndjson; charset=utf-8", answer)
        last = self.last or ""
        for message in answer.lines:
            self.seen(message, topic)
        self.last = max(last, self.last or "")
        return answer.lines

    def seen(self, message, topic):
        good = message["event"] == "message" and message["topic"] == topic and ID.match(message["id"]) \
            and ALWAYS <= set(message) <= FIELDS and isinstance(message["time"], int) and isinstance(message["message"], str)
        if not good:
            raise SystemExit(f"FAILED a message in {topic}: {message}")
        self.last = message["id"]

    def connect(self):
        """Opens the stream of all topics, as the service does whenever a topic was added or the connection was lost."""
        names = ",".join(self.topics)
        target = f"{self.base}/{names}/{self.way}?since={self.last or 'none'}"
        self.stream = (self.lines if self.way == "json" else self.socket)(target, self.login)
        good = self.stream.answer.status == (200 if self.way == "json" else 101)
        if self.way == "json":
            good = good and self.stream.answer.headers["content-type"] == "application/x-ndjson; charset=utf-8" \
                and "content-encoding" not in self.stream.answer.headers
        first = self.stream.next() if good else {}
        check(f"/{self.way} opens for {len(self.topics)} topics", good and first["event"] == "open" and first["topic"] == names
              and len(first["id"]) == 12 and not first["id"].isdigit() and isinstance(first["time"], int), (self.stream.answer, first))

    def next(self):
        while (message := self.stream.next())["event"] == "keepalive":
            pass
        self.seen(message, message["topic"])
        if message["topic"] not in self.topics:
            raise SystemExit(f"FAILED the topic is not one of {self.topics}: {message}")
        return message

    def lose(self):
        """The network is gone. The relay may not notice."""
        self.stream.wire.socket.settimeout(0.5)
        self.stream.wire.close()

    def publish(self, topic, text, query):
        answer = self.request("PUT", f"{self.base}/{topic}?{query}", self.login, text.encode())
        check("the message bar publishes", answer.status == 200 and ID.match(answer.json["id"]) and answer.json["topic"] == topic
              and answer.json["event"] == "message", answer)
        return answer.json


def ntfy_android(base, way, secret, wrong):
    """Adds two topics, receives, loses the network, publishes, polls, and adds a third topic."""
    kitchen = say(BO, f"Before {way}")
    phone = NtfyAndroid(base, secret, way)
    stored = phone.add("kitchen", wrong)
    check("the app stores the history, oldest first", stored[-1]["message"] == kitchen
          and [message["id"] for message in stored] == sorted(message["id"] for message in stored), stored)
    phone.connect()
    phone.add("garden")
    phone.lose()
    phone.connect()
    live = [say(BO, f"Live in the kitchen by {way}"), say(CY, f"Live in the garden by {way}")]
    got = sorted((phone.next() for _ in live), key=lambda message: message["id"])
    check("both topics arrive live", [(m["topic"], m["message"]) for m in got] == list(zip(["kitchen", "garden"], live)), got)
    phone.lose()
    missed = [say(CY, "Missed 1"), say(BO, "Missed 2"), say(CY, "Missed 3")]
    phone.connect()
    got = [phone.next()["message"] for _ in missed]
    check("a new connection brings what was missed, once", sorted(got) == missed, got)
    sent = phone.publish("kitchen", "größer from the phone", "priority=4&title=The+title&tags=warning%2Cskull")
    got = phone.next()
    check("what the phone publishes comes back under the same id",
          got["id"] == sent["id"] and "größer from the phone" in got["message"], got)
    check("an hour later a poll brings nothing new", phone.poll("kitchen", phone.last) == [])
    check("the connection is still quiet and open", is_quiet(phone.stream.wire))
    check("a poll of the whole history has what was sent", phone.poll("kitchen", "all")[-1]["id"] == sent["id"])
    if way == "ws":
        check("a ping is answered", phone.stream.ping(b""))
    phone.end()


def is_quiet(wire, seconds=0.3):
    """Whether nothing arrives and the connection stays open."""
    wire.socket.settimeout(seconds)
    try:
        wire.receive()
        return False
    except TimeoutError:
        return True
    except Ended:
        return False
    finally:
        wire.socket.settimeout(20)


class NtfyIPhone:
    """ntfy's iPhone app 1.8.0. URLSession keeps the connection open."""

    def __init__(self, base, secret):
        self.base, self.login = base, [("Authorization", basic("phone", secret))]
        self.wire = Wire(relay.port, AUTHORITY, ("h2", "http/1.1"))

    def request(self, method, path, login, more=(), body=None):
        length = [] if body is None else [("Content-Length", str(len(body))), ("Content-Type", "application/x-www-form-urlencoded")]
        return self.wire.request(method, f"{self.base}{path}", [
            ("Host", HOST), *length, ("Connection", "keep-alive"), ("Accept", "*/*"),
            ("User-Agent", "ntfy/1.8.0 (build 31; iOS 18.5)"), *login, ("Accept-Language", "en-GB,en;q=0.9"), *more,
            ("Accept-Encoding", "gzip, deflate, br")], body)


def ntfy_iphone(base, secret):
    phone = NtfyIPhone(base, secret)
    answer = phone.request("GET", "/kitchen/auth", [])
    check("the iPhone asks as nobody", (answer.status, answer.json["code"]) == (403, 40301), answer)
    answer = phone.request("GET", "/kitchen/auth", phone.login)
    check("and with its log-in", (answer.status, answer.json.get("success")) == (200, True), answer)
    # The iPhone's app takes each of these as the end of a line.
    text = say(BO, "For the iPhone:\u2028another line\u2029and\r\na third")
    answer = phone.request("GET", "/kitchen/json?poll=1&since=all", phone.login)
    last = answer.lines[-1]
    check("every line of its first poll is a message, the last the newest", answer.status == 200 and last["message"] == text
          and all(line["event"] == "message" and ALWAYS <= set(line) for line in answer.lines), answer)
    answer = phone.request("GET", f"/kitchen/json?poll=1&since={last['id']}", phone.login)
    check("nothing came since", (answer.status, answer.body) == (200, b""), answer)
    text = say(BO, "After a push")
    for _ in range(2):  # The notification service and the app ask on their own.
        answer = phone.request("GET", f"/kitchen/json?poll=1&since={last['id']}", phone.login)
        check("then one message", [line["message"] for line in answer.lines] == [text], answer)
    new = answer.lines[0]["id"]
    answer = phone.request("GET", f"/kitchen/json?poll=1&id={new}", phone.login)
    check("a push leads to this one message", answer.status == 200 and answer.json["id"] == new and answer.json["message"] == text, answer)
    answer = phone.request("POST", "/kitchen", phone.login, [("Title", "From iOS"), ("Priority", "3"), ("Tags", "")], b"Hello=1&x")
    check("the iPhone publishes", answer.status == 200 and "Hello=1&x" in answer.json["message"], answer)
    phone.wire.close()


class Upstream(HTTPServer):
    """The server of ntfy's maker, which can wake its app on iPhones. It keeps what the relay asks for."""

    def __init__(self):
        requests, server = [], self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                requests.append((self.path, self.headers["X-Poll-ID"], dict(self.headers)))
                self.send_response(503 if server.is_refusing else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.requests, self.is_refusing = requests, False
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def asked(self, message):
        return [path for path, poll, _ in self.requests if poll == message]


def woken_iphone(upstream):
    """The upstream server wakes the iPhone's app for a room that the app has polled by its alias."""
    own = relay.credential(BO, "iPhone")
    secrets.append(own["credential"])
    topic = f"/{hashlib.sha256((BASE_URL + '/' + own['topic']).encode()).hexdigest()}"
    check("polls by the room's code and by others wake no app", upstream.requests == [], upstream.requests)
    phone = NtfyIPhone("/ntfy", own["credential"])

    def poll(query):
        return phone.request("GET", f"/{own['topic']}/json?poll=1&{query}", phone.login)

    check("the iPhone polls the alias", poll("since=all").status == 200)

    def newest():
        return poll("since=latest").lines[-1]["id"]

    text = say(CY_IN_KITCHEN, "Wake up")
    new = newest()
    until("the upstream server gets a request", lambda: upstream.asked(new))
    check("for the topic that the app computes, once", upstream.asked(new) == [topic], upstream.requests)
    check("without the text, the code or the credential",
          not any(secret in str(upstream.requests) for secret in (text, "kitchen", own["topic"], own["credential"])))
    check("and the woken app gets the message", poll(f"id={new}").json["message"] == text)
    upstream.is_refusing = True
    say(CY_IN_KITCHEN, "Again")
    new = newest()
    until("a request is refused", lambda: upstream.asked(new))
    phone.wire.close()
    relay.restart()
    upstream.is_refusing = False
    count = len(upstream.asked(new))
    until("a killed relay asks again", lambda: len(upstream.asked(new)) > count)


class GotifyAndroid(OkHttp):
    """Gotify's Android app, whose REST client names its credential in a header, and its stream in the address."""

    def __init__(self):
        super().__init__()
        self.token, self.last = None, 0

    def get(self, path, status=200, own=None):
        answer = self.request("GET", f"/gotify/{path}", [("X-Gotify-Key", self.token)] if own is None else own)
        check(f"GET {path.split('?')[0]}: {status}", answer.status == status
              and answer.headers["content-type"].startswith("application/json"), answer)
        return answer.json

    def post(self, path, value, own):
        return self.request("POST", f"/gotify/{path}", own, json.dumps(value, separators=(",", ":")).encode(),
                            "application/json; charset=UTF-8")

    def log_in(self, secret, wrong):
        login = [("Authorization", basic("phone", secret))]
        answer = self.request("GET", "/gotify/current/user", [("Authorization", basic("phone", wrong))])
        check("a wrong password is refused", (answer.status, answer.json["errorCode"], answer.json["error"]) == (401, 401, "Unauthorized")
              and "errorDescription" in answer.json, answer)
        user = self.get("current/user", own=login)
        check("the user is found by Basic", isinstance(user["id"], int) and user["name"] and user["admin"] is False, user)
        answer = self.post("client", {"name": "Pixel 8"}, login)
        check("the app makes its client", answer.status == 200 and answer.json["name"] == "Pixel 8"
              and isinstance(answer.json["id"], int) and answer.json["token"], answer)
        self.token, self.client = answer.json["token"], answer.json["id"]
        secrets.append(self.token)
        user = self.get("current/user")
        check("and finds the user with it", user["name"] and isinstance(user["id"], int), user)

    def connect(self):
        self.stream = self.socket(f"/gotify/stream?token={self.token}")
        check("the stream opens", self.stream.answer.status == 101, self.stream.answer)

    def begin(self):
        """Does what the service and the list of messages do when the app starts."""
        page = self.get("message?limit=1&since=0")
        self.seen(page["messages"])
        self.get("version")
        self.applications()
        self.connect()
        self.applications()
        page = self.get("message?limit=100&since=0")
        self.seen(page["messages"])
        return page

    def applications(self):
        apps = self.get("application")
        for app in apps:
            good = isinstance(app["id"], int) and app["name"] and isinstance(app["description"], str) \
                and isinstance(app["image"], str) and app["internal"] in (True, False)
            check(f"the application {app.get('name')} is complete", good, app)
            if app["image"]:  # Android loads images without a credential.
                image = self.request("GET", f"/gotify/{app['image']}")
                check("and has an image", image.status == 200 and image.headers["content-type"].startswith("image/"), image.headers)
        self.apps = {app["name"]: app["id"] for app in apps}
        return apps

    def seen(self, messages):
        for message in messages:
            good = isinstance(message["id"], int) and message["appid"] in self.apps.values() if hasattr(self, "apps") else True
            good = good and isinstance(message["title"], str) and isinstance(message["priority"], int) and message["message"] \
                and re.match(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$", message["date"]) \
                and isinstance(message.get("extras", {}), dict)
            if not good:
                raise SystemExit(f"FAILED a message: {message}")
            self.last = max(self.last, message["id"])

    def missed(self):
        """Reads the pages of messages back to the last one that is known."""
        known, since, found = self.last, None, []
        while True:
            page = self.get(f"message?limit=10{'' if since is None else f'&since={since}'}")
            self.seen(page["messages"])
            new = [message for message in page["messages"] if message["id"] > known]
            found += new
            if len(new) < len(page["messages"]) or page["paging"].get("next") is None:
                return found
            since = page["paging"]["since"]

    def next(self):
        message = self.stream.next()
        self.seen([message])
        return message


def gotify_android(secret, wrong):
    """Version 2.9.0: log-in, messages, deletes, a lost network, and the log-out."""
    phone = GotifyAndroid()
    version = phone.get("version", own=[])
    check("the server tells its version", set(version) == {"version", "commit", "buildDate"}, version)
    phone.log_in(secret, wrong)
    check("the newest message is the first", phone.begin()["messages"][0]["id"] == phone.last)
    check("rooms are applications", {"kitchen", "garden"} <= set(phone.apps), phone.apps)
    text = say(BO, "Live for Gotify")
    got = phone.next()
    check("a message arrives live", text in got["message"] and got["appid"] == phone.apps["kitchen"], got)
    page = phone.get(f"application/{phone.apps['kitchen']}/message?limit=2&since=0")
    check("the application's page begins with it, and has a next", page["messages"][0] == got and len(page["messages"]) == 2
          and page["paging"]["next"] and page["paging"]["since"] == page["messages"][-1]["id"] and page["paging"]["size"] == 2
          and page["paging"]["limit"] == 2, page)
    more = phone.get(f"application/{phone.apps['kitchen']}/message?limit=2&since={page['paging']['since']}")
    check("which continues below it", more["messages"][0]["id"] < page["messages"][-1]["id"], more)
    phone.stream.wire.close()
    texts = [say(CY, f"Missed by Gotify {number}") for number in range(12)]
    phone.connect()
    found = phone.missed()
    check("what was missed is found over two pages", [m["message"] for m in found][::-1] == texts, found)

    def delete(path, status=200):
        answer = phone.request("DELETE", f"/gotify/{path}", [("X-Gotify-Key", phone.token)])
        check(f"DELETE {path.split('/')[0]}: {status}", answer.status == status and (status != 200 or answer.body == b""), answer)

    delete(f"message/{found[0]['id']}")
    delete(f"message/{found[0]['id']}", 404)
    newest = phone.get("message?limit=1&since=0")["messages"][0]
    check("a deleted message is gone for this client", newest["id"] == found[1]["id"], newest)
    check("and not for the room", found[0]["message"] in relay.chat("messages", CY))
    delete(f"application/{phone.apps['garden']}/message")
    page = phone.get(f"application/{phone.apps['garden']}/message?limit=100&since=0")
    check("a cleared application is empty", page["messages"] == [] and page["paging"].get("next") is None, page)
    delete("message")
    check("and then everything", phone.get("message?limit=100&since=0")["messages"] == [])
    text = say(BO, "After the clearing")
    check("new messages arrive nevertheless", text in phone.next()["message"])
    check("and are listed", [m["message"] for m in phone.get("message?limit=100&since=0")["messages"]] == [text])
    clients = phone.get("client")
    own = [client for client in clients if client.get("token") == phone.token]
    check("the app finds its own client by its token, and no other's token", [client["id"] for client in own] == [phone.client]
          and not any(client.get("token") for client in clients if client not in own), clients)
    delete(f"client/{phone.client}")
    phone.get("current/user", 401)
    try:
        phone.stream.wire.socket.settimeout(15)
        while True:
            opcode, _ = phone.stream.frame()
            check("no Close frame", opcode != CLOSE)
    except Ended:
        check("the stream of a revoked client ends without a Close frame", True)
    phone.end()


def gotify_android_210(secret, wrong):
    """Version 2.10 asks what the server is, and posts with the client's token."""
    phone = GotifyAndroid()
    about = phone.get("gotifyinfo", own=[])
    check("the server is one without registration and OpenID", about["version"] and about["register"] is False and about["oidc"] is False, about)
    phone.log_in(secret, wrong)
    phone.begin()
    answer = phone.post("message", {"appid": phone.apps["garden"], "message": "Posted by the app", "title": "Title", "priority": 5},
                        [("X-Gotify-Key", phone.token)])
    check("the app posts to an application", answer.status == 200 and answer.json["appid"] == phone.apps["garden"], answer)
    got = phone.next()
    check("and receives it", got["id"] == answer.json["id"] and got["appid"] == phone.apps["garden"], got)
    answer = phone.post("message", {"appid": 999_999, "message": "x"}, [("X-Gotify-Key", phone.token)])
    check("an unknown application is refused", answer.status in (400, 403, 404) and answer.json["errorCode"] == answer.status, answer)
    phone.end()


# Connections

def frames(secret):
    """The frames that a client may send, and those that it may not."""
    phone = OkHttp("ntfy/1.25.0 (play; Android 15; SDK 35)")
    login = [("Authorization", basic("phone", secret))]

    def opened(extra=b""):
        # The relay may still be closing the streams of earlier checks, which count towards the limit of a token.
        def admitted():
            stream = phone.socket("/ntfy/kitchen/ws", login, extra)
            return stream if stream.answer.status != 429 else None

        stream = until("a WebSocket is admitted", admitted, within=10)
        check("a WebSocket opens", stream.answer.status == 101 and stream.next()["event"] == "open", stream.answer)
        return stream

    def ends(what, stream, within=10):
        """The relay closes the connection, perhaps after a Close frame."""
        stream.wire.socket.settimeout(within)
        try:
            while True:
                stream.wire.receive()
        except Ended:
            check(what, True)

    stream = opened()
    check("pings with 0 and with 125 bytes are answered", stream.ping(b"") and stream.ping(bytes(range(125))))
    for number in range(200):
        stream.send(PING, b"%d" % number)
    pongs = [stream.frame() for _ in range(1)]
    until("a flood of pings gets its last pong", lambda: pongs.append(stream.frame()) or pongs[-1] == (PONG, b"199"), 20)
    stream.send(TEXT, b"text from a client")
    stream.send(2, bytes(1000))
    stream.send(TEXT, b"frag", first=0x01)
    stream.send(PING, b"between")
    stream.send(0, b"ment")
    check("messages, also in fragments, are ignored", stream.frame() == (PONG, b"between") and stream.ping(b"after"))
    stream.send(PONG, b"unsolicited")
    text = say(BO, "Still open")
    check("and the stream goes on", stream.next()["message"] == text)
    stream.send(CLOSE, b"\x03\xe8")
    opcode, payload = stream.frame()
    check("a Close frame is answered", opcode == CLOSE and payload[:2] == b"\x03\xe8", payload)
    ends("and the connection ends", stream)

    for what, frame in {
        "an unmasked frame": lambda stream: stream.send(TEXT, b"x", mask=False),
        "a control frame of 126 bytes": lambda stream: stream.send(PING, bytes(126)),
        "a fragmented ping": lambda stream: stream.send(PING, b"x", first=0x09),
        "a reserved bit": lambda stream: stream.send(TEXT, b"x", first=0xC1),
        "a reserved opcode": lambda stream: stream.send(TEXT, b"x", first=0x83),
        "a frame that is said to be huge": lambda stream: stream.send(TEXT, bytes(100), length=1 << 40),
        "a length with the highest bit": lambda stream: stream.send(TEXT, bytes(100), length=(1 << 63) + 5),
    }.items():
        stream = opened()
        frame(stream)
        ends(f"{what} ends the connection", stream)
    stream = opened()
    stream.wire.half_close()
    ends("a client that closes its side is gone", stream)
    lines = phone.lines("/ntfy/kitchen/json", login)
    check("a JSON stream opens", lines.next()["event"] == "open")
    lines.wire.half_close()
    ends("and ends when its client closes its side", lines)

    # A ping that came with the handshake, which no client sends.
    stream = phone.socket("/ntfy/kitchen/ws", login, b"\x89\x80abcd")
    try:
        check("a frame before the response is no request", stream.frame()[0] in (TEXT, PONG))
    except Ended:
        check("a frame before the response ends the connection", True)
    text = say(BO, "one\r\nmessage\nis one\rline")
    answer = phone.request("GET", "/ntfy/kitchen/raw?poll=1&since=latest", login)
    check("the raw form has one line for a message", answer.body == b"one message is one line\n", answer)
    for what, target, own, status, code in [
        ("without a log-in", "/ntfy/kitchen/ws", [], 403, 40301),
        ("with a wrong log-in", "/ntfy/kitchen/ws", [("Authorization", basic("phone", "wrong"))], 401, 40101),
        ("for a topic that cannot be", "/ntfy/kit%20chen/ws", login, 404, 40401),
        ("with a wrong since", "/ntfy/kitchen/ws?since=nonsense", login, 400, 40008),
        ("with a wrong priority", "/ntfy/kitchen/ws?priority=9", login, 400, 40007),
    ]:
        stream = phone.socket(target, own)
        check(f"a handshake {what} is refused", stream.answer.status == status, (stream.answer, stream.answer.body))
        answer = phone.request("GET", target.replace("/ws", "/json"), own)
        check("and the same as JSON", (answer.status, answer.json["code"]) == (status, code)
              and set(answer.json) <= {"code", "http", "error", "link"}, answer)
    answer = phone.request("GET", "/ntfy/kitchen/ws", login)
    check("/ws without an upgrade is refused", (answer.status, answer.json["code"]) == (400, 40016), answer)
    phone.end()


def keeps_open(secret):
    """Connections whose clients do nothing, and the end of the relay."""
    app = OkHttp("ntfy/1.25.0 (play; Android 15; SDK 35)")
    login = [("Authorization", basic("phone", secret))]
    lines, sockets = app.lines("/ntfy/kitchen/json", login), app.socket("/ntfy/kitchen/ws", login)
    check("two streams open", lines.next()["event"] == sockets.next()["event"] == "open")
    relay.process.send_signal(signal.SIGTERM)
    for stream in (lines, sockets):
        try:
            while True:
                stream.next()
        except Ended:
            pass
    check("a relay that stops drops the JSON stream without its last chunk", not lines.has_last_chunk)
    check("and the WebSocket without a Close frame", True)  # `next` refuses one.
    check("the relay ends in order", relay.process.wait(timeout=20) == 0)
    app.end()
    relay.start()


# Kills

class Follower(threading.Thread):
    """A phone that reconnects whenever its connection is lost, and records what it receives."""

    def __init__(self, phone, name):
        super().__init__(daemon=True)
        self.phone, self.name, self.received, self.fault, self.is_over = phone, name, {}, None, False
        # The messages from streams, and the number of those that came twice. Pages may overlap with a stream.
        self.streamed, self.repeated = set(), 0

    def run(self):
        while not self.is_over:
            try:
                self.phone.wire = None
                self.phone.connect()
                if isinstance(self.phone, GotifyAndroid):
                    for message in self.phone.missed():
                        self.received[message["id"]] = message["message"]
                while True:
                    self.record(self.phone.next())
            except (Ended, OSError):
                time.sleep(0.1)
            except SystemExit as fault:
                self.fault = self.fault or str(fault)
                return

    def record(self, message):
        self.repeated += message["id"] in self.streamed
        self.streamed.add(message["id"])
        self.received[message["id"]] = message["message"]


def killed(secret, gotify_secret, wrong):
    """Two writers post while the relay is killed twice. No phone misses a message, or gets one twice."""
    phones = []
    for way, topics in (("json", ["kitchen"]), ("ws", ["garden"]), ("json", ["kitchen", "garden"]), ("ws", ["kitchen", "garden"])):
        phone = NtfyAndroid("/ntfy", secret, way)
        for topic in topics:
            phone.topics.append(topic)
            phone.poll(topic, "all")
        phones.append(Follower(phone, f"{way} of {' and '.join(topics)}"))
    gotify = GotifyAndroid()
    gotify.log_in(gotify_secret, wrong)
    gotify.applications()
    gotify.missed()
    phones.append(Follower(gotify, "Gotify"))
    for phone in phones:
        phone.start()
    accepted, is_over = {"kitchen": [], "garden": []}, False

    def write(udid, room):
        number = 0
        while not is_over:
            text = f"{room} {number}"
            body = urllib.parse.urlencode({"cmd": "message", "udid": udid, "text": text}).encode()
            try:
                status = relay.ask("POST", "/api.php", body, {"Idempotency-Key": text})[0]
            except (OSError, HTTPException):
                status = 0
            if status == 200:
                accepted[room].append(text)
                number += 1
            else:
                time.sleep(0.05)

    writers = [threading.Thread(target=write, args=each, daemon=True) for each in ((BO, "kitchen"), (CY, "garden"))]
    for writer in writers:
        writer.start()
    for _ in range(2):
        before = [len(each) for each in accepted.values()]
        until("both rooms get messages", lambda: all(
            len(each) >= count + 15 for each, count in zip(accepted.values(), before)))
        relay.restart()
    before = [len(each) for each in accepted.values()]
    until("both rooms get messages", lambda: all(len(each) >= count + 5 for each, count in zip(accepted.values(), before)))
    is_over = True
    for writer in writers:
        writer.join()
    for phone in phones:
        rooms = phone.phone.topics if isinstance(phone.phone, NtfyAndroid) else ["kitchen", "garden"]
        wanted = sorted(text for room in rooms for text in accepted[room])
        until(f"{phone.name} has all messages", lambda: phone.fault or sorted(phone.received.values()) == wanted,
              told=lambda: (len(wanted), len(phone.received), sorted(set(wanted) - set(phone.received.values()))))
        check(f"{phone.name} without a fault", phone.fault is None, phone.fault)
        check(f"{phone.name} once each", phone.repeated == 0 or DOUBLES and len(rooms) > 1, phone.repeated)
    for phone in phones:
        phone.is_over = True
    for phone in phones:
        phone.phone.end()


# UnifiedPush

# Encrypted content: not UTF-8, with a line break at its end.
ENCRYPTED = bytes(range(256)) + b"\n"


def app_server(target, body, own=(), method="POST"):
    """Sends what the server of another app sends: no credential of the relay, and a connection of its own."""
    wire = Wire(relay.port, AUTHORITY)
    try:
        return wire.request(method, target, [("Host", HOST), ("Content-Length", str(len(body))), *own], body)
    finally:
        wire.close()


def unified_push(secret, others):
    """ntfy's Android app as the distributor of two other apps. It has no call to register: it streams a topic that it invents."""
    phone = NtfyAndroid("", secret, "ws")
    topics = ["upAbCdEf012345", "up987654zyxwvu"]
    encrypted = [("Content-Encoding", "aes128gcm"), ("TTL", "86400"), ("Urgency", "high"),
                 ("Authorization", "vapid t=eyJ0eXAiOiJKV1QifQ.e30.AAAA, k=BAAA")]
    answer = app_server(f"/{topics[0]}?up=1", b"too early", encrypted)
    check("a push to a topic of nobody gets a status that servers retry", (answer.status, answer.json["code"]) == (507, 50701)
          and set(answer.json) <= {"code", "http", "error", "link"}, answer)
    wire = Wire(relay.port, AUTHORITY)
    answer = wire.request("GET", f"/{topics[0]}?up=1", [("Host", HOST)])
    check("the app finds UnifiedPush", answer.json == {"unifiedpush": {"version": 1}}, answer)
    answer = wire.request("GET", "/_matrix/push/v1/notify", [("Host", HOST)])
    check("and the gateway of Matrix", answer.json == {"unifiedpush": {"gateway": "matrix"}}, answer)
    wire.close()
    phone.topics = [topics[0]]
    phone.connect()
    answer = app_server(f"/{topics[0]}?up=1", ENCRYPTED, encrypted)
    check("an encrypted push is accepted from anybody", answer.status == 200 and answer.json["topic"] == topics[0], answer)
    got = phone.next()
    check("and arrives live, unchanged", got["id"] == answer.json["id"] and got["encoding"] == "base64"
          and base64.b64decode(got["message"]) == ENCRYPTED, got)
    phone.lose()
    phone.topics = [*topics, "kitchen"]
    phone.connect()
    answer = app_server(f"/{topics[1]}?up=1", " plain, und größer\n".encode(), method="PUT")
    got = phone.next()
    check("a second app gets text as text", answer.status == 200 and got["message"] == " plain, und größer\n"
          and "encoding" not in got and got["topic"] == topics[1], got)
    live = say(BO, "Chat beside pushes")
    check("chat arrives over the same connection", phone.next()["message"] == live)
    phone.lose()
    endpoint = f"{BASE_URL}/{topics[0]}?up=1"
    body = json.dumps({"notification": {"event_id": "$1", "devices": [{"app_id": "im.vector.app", "pushkey": endpoint}]}}).encode()
    answer = app_server("/_matrix/push/v1/notify", body, [("Content-Type", "application/json")])
    check("a server of Matrix pushes", answer.json == {"rejected": []}, answer)
    relay.restart()
    phone.wire = None
    phone.connect()
    got = phone.next()
    check("a push that came while the phone was away survives a killed relay", got["topic"] == topics[0]
          and json.loads(got["message"]) == json.loads(body), got)
    check("and nothing comes twice", is_quiet(phone.stream.wire))
    phone.lose()
    phone.connect()
    check("what the phone has does not come again", is_quiet(phone.stream.wire))
    thief = OkHttp()
    answer = thief.request("GET", f"/{topics[0]}/json?poll=1&since=all", [("Authorization", basic("x", others))])
    check("another token may not read the topic", (answer.status, answer.json["code"]) == (403, 40301), answer)
    answer = app_server(f"/{topics[0]}?up=1", bytes(4097), encrypted)
    check("4,097 bytes are too many", (answer.status, answer.json["code"]) == (413, 41301), answer)
    answer = app_server(f"/{topics[0]}?up=1", b"\xff" * 4096, encrypted)
    check("4,096 are not", answer.status == 200 and len(base64.b64decode(phone.next()["message"])) == 4096, answer)
    thief.end()
    phone.end()


def main():
    global BO, CY, CY_IN_KITCHEN
    upstream = Upstream()
    os.environ["PUSHCHAT_NTFY_UPSTREAM"] = f"http://127.0.0.1:{upstream.server_port}"
    relay.start()
    relay.member(1, "Ann", "kitchen")
    BO, CY = relay.member(2, "Bo", "kitchen"), relay.member(3, "Cy", "garden")
    CY_IN_KITCHEN = relay.member(4, "Cy", "kitchen")
    for number in range(3):
        say(CY, f"Early {number}")
    both = relay.token("phone", "post", "read")
    secrets.append(both)
    wrong = both[:-1] + ("A" if both[-1] != "A" else "B")
    secrets.append(wrong)
    for base, way in (("/ntfy", "json"), ("", "ws")):
        ntfy_android(base, way, both, wrong)
    ntfy_iphone("/ntfy", both)
    woken_iphone(upstream)
    gotify_android(both, wrong)
    gotify_android_210(both, wrong)
    others = relay.token("other", "read")
    secrets.append(others)
    unified_push(both, others)
    frames(both)
    killed(both, both, wrong)
    keeps_open(both)
    relay.process.send_signal(signal.SIGTERM)
    relay.process.wait(timeout=20)
    with open(LOG) as log:
        text = log.read()
    found = [secret for secret in [*secrets, *(basic("phone", secret) for secret in secrets)] if secret in text]
    check("no secret is in the log", len(text) > 1000 and not found, found)


main()
