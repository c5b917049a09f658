#!/usr/bin/env python3
"""Tries to read, write and delete in foreign rooms with the calls of ntfy's and Gotify's clients.

Usage: client_attacks.py LOG RELAY…
RELAY is the command that starts the relay with both servers' paths at the root. Its log is appended to LOG.
Prints a line for each check that passed. Ends with status 1 at the first that failed.
"""
import atexit, base64, json, re, sys, urllib.parse

from checks import check, until
from relay import Relay
from wire import Answer, Ended, WebSocket, Wire

ADMIN = "the-token-of-this-test"
relay = Relay(sys.argv[2:], token=ADMIN, log=sys.argv[1])
atexit.register(lambda: relay.kill())
# The connection that stays open, if there is one.
wires = []
# The text of all messages in the foreign room.
FOREIGN = "Foreign message"
# The statuses of a log-in that fails. The script makes more calls without a valid secret than an address may.
REFUSED = (401, 403, 429)
UPGRADE = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Key", "KEY"), ("Sec-WebSocket-Version", "13")]


def basic(secret):
    return [("Authorization", "Basic " + base64.b64encode(f"me:{secret}".encode()).decode())] if secret else []


def bearer(secret):
    return [("Authorization", f"Bearer {secret}")]


def ask(method, target, own=(), body=None):
    """Sends a request, and refuses any answer with a foreign message or an internal error."""
    wire = wires.pop() if wires else Wire(relay.port, within=10)
    length = [] if body is None else [("Content-Length", str(len(body)))]
    answer = wire.request(method, target, [("Host", "localhost"), *own, *length], body)
    if answer.headers.get("connection") == "close":
        wire.close()
    else:
        wires.append(wire)
    if FOREIGN in answer.body.decode(errors="replace") or answer.status >= 500:
        raise SystemExit(f"FAILED {method} {target}: {answer}")
    return answer


def call(method, path, secret, value=None):
    body = None if value is None else json.dumps(value).encode()
    return ask(method, f"/gotify/{path}", [("X-Gotify-Key", secret), ("Content-Type", "application/json")], body)


def opened(target, own):
    """Opens a WebSocket. Returns it and its status."""
    stream = WebSocket(Wire(relay.port, within=10), target, [("Host", "localhost"), *own, *UPGRADE])
    return stream, stream.answer.status


def seen(answer):
    """The part of an answer that tells a client something."""
    return answer.status, answer.body, {
        name: value for name, value in answer.headers.items() if name not in ("date", "x-request-id")}


def texts(answer):
    return [line["message"] for line in answer.lines]


relay.start()
ANN, BOB, CY = relay.member(1, "Ann", "kitchen"), relay.member(2, "Bob", "kitchen"), relay.member(3, "Cy", "garden")
for number in range(3):
    relay.chat("message", ANN, text=f"Early {number}")
    relay.chat("message", CY, text=f"{FOREIGN} {number}")
# Dan joins later, so the earlier messages are not for him.
DAN = relay.member(4, "Dan", "kitchen")
relay.chat("message", ANN, text="Late")
BOBS, DANS, CYS = (relay.credential(udid, "app") for udid in (BOB, DAN, CY))
ALIAS, FOREIGN_ALIAS = BOBS["topic"], CYS["topic"]
BOBS, DANS, CYS = (each["credential"] for each in (BOBS, DANS, CYS))
ONE = relay.token("one", "post", "read", room="kitchen")
WRITER = relay.token("writer", "post", room="kitchen")
ALL = relay.token("all", "post", "read")


def numbers(room):
    """The ids of the room's messages, the oldest first."""
    return [each["id"] for each in relay.admin("GET", f"/v1/messages?room={room}")["messages"]]


OWN, OTHERS = sorted(numbers("kitchen")), sorted(numbers("garden"))


def topics():
    foreign = ["garden", FOREIGN_ALIAS, "nowhere", "A" * 22]
    names = foreign + [f"{first},{second}" for other in foreign for first, second in (("kitchen", other), (other, ALIAS))] + [
        "kitchen%2Cgarden", "kitchen%2fgarden", "kitchen%00,garden", "kitchen,", ",kitchen", "kitchen,,garden",
        "..%2fgarden", "kitchen/../garden", "kitchen%0d%0aX:y", "g%61rden", "kitchen+garden", "kitchen;garden", "%ff%fe", "v1"]
    for name, secret in (("a member", BOBS), ("a token", ONE), ("a token that only posts", WRITER), ("nobody", None)):
        # First, because an address may make 100 calls without a valid secret. Any more get 429 at times, whatever they ask for.
        for real, unreal in (("garden", "nowhere"), (FOREIGN_ALIAS, "A" * 22), ("kitchen,garden", "kitchen,nowhere")):
            for method, path in (("GET", "auth"), ("GET", "json?poll=1"), ("GET", "ws"), ("PUT", ""), ("GET", "publish?message=x")):
                first, second = (ask(method, f"/ntfy/{topic}/{path}".rstrip("/"), basic(secret), b"x" if method == "PUT" else None)
                                 for topic in (real, unreal))
                if seen(first) != seen(second):
                    raise SystemExit(f"FAILED {name}: {method} {path}: {first} for a foreign topic, {second} for none")
        for topic in names:
            paths = [("GET", f"{topic}/{path}") for path in ("auth", "json?poll=1", "raw?poll=1", "sse?poll=1", "ws?since=all")]
            for method, path in paths + [("PUT", topic), ("POST", topic), ("GET", f"{topic}/publish?message=x")]:
                for base in ("/ntfy/", "/") if secret == BOBS else ("/ntfy/",):
                    answer = ask(method, base + path, basic(secret), b"x" if method != "GET" else None)
                    if answer.status < 400:
                        raise SystemExit(f"FAILED {name}: {method} {base}{path}: {answer}")
        check(f"{name} reaches no foreign topic, and cannot tell it from none", True)
    check("no message came from there", numbers("garden") == OTHERS[::-1] or sorted(numbers("garden")) == OTHERS)
    check("a topic may come twice, under both names", ask("GET", f"/ntfy/kitchen,{ALIAS},kitchen/auth", basic(BOBS)).status == 200)
    for many in (",".join(f"t{number}" for number in range(1000)), "kitchen," * 1000 + "kitchen"):
        check("a thousand topics are refused", ask("GET", f"/ntfy/{many}/json?poll=1", basic(ALL)).status in (400, 404, 414, 431))
    before = len(relay.admin("GET", "/v1/rooms")["rooms"])
    applications = len(call("GET", "application", ALL).json)
    for number in range(20):
        ask("GET", f"/ntfy/made-up-{number}/json?poll=1", basic(ALL))
    check("asking for rooms makes none", len(relay.admin("GET", "/v1/rooms")["rooms"]) == before
          and len(call("GET", "application", ALL).json) == applications)


def alias_as_code():
    """A room whose code is another room's alias gives its members nothing."""
    eve = relay.member(5, "Eve", FOREIGN_ALIAS)
    secret = relay.credential(eve, "app")["credential"]
    relay.chat("message", eve, text="Eve's own")
    for path in ("auth", "json?poll=1", "ws"):
        check(f"/{path} of the alias is not Eve's", ask("GET", f"/ntfy/{FOREIGN_ALIAS}/{path}", basic(secret)).status == 403)
    ask("PUT", f"/ntfy/{FOREIGN_ALIAS}", basic(secret), b"x")
    check("and she posts nothing there", sorted(numbers("garden")) == OTHERS)
    page = call("GET", "message", secret).json["messages"]
    check("she reads her own room", "Eve's own" in [each["message"] for each in page], page)


def histories():
    ids = [f"m{number:011d}" for number in OWN]
    others = [f"m{number:011d}" for number in OTHERS]
    for since in [*others, *ids, "m00000000000", "m99999999999", "m99999999999999999999", "all", "latest", "none", "0", "1", "-1",
                  "9223372036854775807", "-9223372036854775808", "99999999999999999999", "1h", "-1h", "2562048h", "99999999999h",
                  "1ns", "%00", "%EF%BC%91", "1e9", "0x10", "NaN", "", "m-0000000001", "m%2B0000000001", "abcdefghijkl"]:
        for name in ("since", "si", "id"):
            answer = ask("GET", f"/ntfy/kitchen/json?poll=1&{name}={since}", basic(DANS))
            if answer.status not in (200, 400) or answer.status == 200 and set(texts(answer)) - {"Late"}:
                raise SystemExit(f"FAILED {name}={since}: {answer}")
    check("no id or time shows Dan what was before him", True)
    check("and he gets what came later", texts(ask("GET", f"/ntfy/{ALIAS}/json?poll=1&since=all", basic(DANS))) == ["Late"])
    for header in ("Since", "X-Since"):
        answer = ask("GET", "/ntfy/kitchen/json?poll=1", [*basic(DANS), (header, "1")])
        check(f"nor does the header {header}", texts(answer) == ["Late"], answer)
    stream, _ = opened("/ntfy/kitchen/ws?since=all", basic(DANS))
    check("nor a stream", [stream.next().get("message") for _ in range(2)] == [None, "Late"])
    stream.wire.close()
    app = call("GET", "application", DANS).json[0]["id"]
    for path in ("message", "message?since=999999", f"application/{app}/message?limit=200", f"message?since={OWN[-1]}"):
        found = {each["message"] for each in call("GET", path, DANS).json["messages"]}
        check(f"nor {path.split('?')[0]}", found <= {"Late"}, found)
    check("Dan deletes nothing that he cannot see", call("DELETE", f"message/{OWN[0]}", DANS).status == 404)


def applications():
    (own,) = [each["id"] for each in call("GET", "application", BOBS).json]
    (foreign,) = [each["id"] for each in call("GET", "application", CYS).json]
    for secret in (BOBS, ONE):
        for method, path in [("GET", "application/{}/message"), ("DELETE", "application/{}/message")]:
            first, second = (call(method, path.format(number), secret) for number in (foreign, 999_999))
            check(f"{method} of a foreign application is one of none", first.status == 404 and seen(first) == seen(second), (first, second))
        first, second = (call("DELETE", f"message/{number}", secret) for number in (OTHERS[0], 999_999))
        check("and so is a foreign message", first.status == 404 and seen(first) == seen(second), (first, second))
        for number in (foreign, 999_999, -1, 1 << 70, "1", 1.5, [own]):
            answer = call("POST", "message", secret, {"message": "x", "appid": number})
            check(f"no post to the application {number}", 400 <= answer.status < 500, answer)
        for number in ("0", "-1", "99999999999999999999", "1%2F..%2F2", "x"):
            check(f"no messages of the application {number}", call("GET", f"application/{number}/message", secret).status in (400, 404))
        for query in ("limit=0", "limit=201", "limit=x", "since=-1", "since=99999999999999999999"):
            check(f"no page with {query}", call("GET", f"message?{query}", secret).status == 400)
    check("the garden is as it was", sorted(numbers("garden")) == OTHERS)
    call("DELETE", f"message/{OWN[1]}", BOBS)
    call("DELETE", "message", ONE)
    check("what one client has deleted, others still see",
          len(call("GET", "message", DANS).json["messages"]) == 1 and sorted(numbers("kitchen")) == OWN)
    for method, path in [("PUT", "application/1"), ("POST", "application"), ("DELETE", f"application/{own}"), ("GET", "user"),
                         ("POST", "user"), ("GET", "plugin"), ("POST", "current/user/password"), ("PUT", "client/1"),
                         ("GET", "static/..%2f..%2fetc%2fpasswd"), ("GET", "static/chat.js"), ("HEAD", "stream")]:
        check(f"{method} {path} is nothing", 400 <= call(method, path, BOBS, {} if method in ("POST", "PUT") else None).status < 500)


def credentials():
    mine = call("POST", "client", BOBS, {"name": 'two","level":"error\n\u2028\u202e'})
    check("a client makes another one", mine.status == 200, mine)
    theirs = call("GET", "client", CYS).json[0]["id"]
    first, second = call("DELETE", f"client/{theirs}", BOBS), call("DELETE", "client/999999", BOBS)
    check("it revokes no foreign one", first.status == 404 and seen(first) == seen(second), first)
    check("which still works", call("GET", "current/user", CYS).status == 200)
    listed = call("GET", "client", BOBS).json
    check("and lists only its own, without foreign secrets", theirs not in [each["id"] for each in listed]
          and mine.json["token"] not in json.dumps(listed), listed)
    for number, path, value in ((6, "/gotify/client", {"name": "loop"}), (8, "/ntfy/v1/account/token", {"label": "loop"})):
        secret = relay.credential(relay.member(number, "Fay", "hall"), "app")["credential"]
        answers = [ask("POST", path, [*basic(secret), ("Content-Type", "application/json")], json.dumps(value).encode())
                   for _ in range(25)]
        check(f"{path} makes only some", 0 < sum(each.status == 200 for each in answers) < 20 and 400 <= answers[-1].status < 500)
    for body in (b"", b"[]", b"x", b'{"label":5}', b'{"label":"' + b"x" * 70_000 + b'"}', b"[" * 10_000, b"\xff"):
        ask("POST", "/ntfy/v1/account/token", basic(DANS), body)
        ask("POST", "/gotify/client", [("X-Gotify-Key", DANS), ("Content-Type", "application/json")], body)


def scopes():
    for method, path in [("GET", "/v1/rooms"), ("GET", "/v1/tokens"), ("POST", "/v1/tokens"), ("GET", "/v1/credentials"),
                         ("DELETE", "/v1/credentials/1"), ("GET", "/v1/messages?room=kitchen"), ("POST", "/v1/messages"),
                         ("POST", "/v1/notifications"), ("GET", "/v1/devices"), ("GET", "/v1/stats"), ("GET", "/metrics"),
                         ("POST", "/v1/probes"), ("POST", "/v1/bans")]:
        for base in ("", "/", "/ntfy/..", "/gotify/..", "/kitchen/.."):
            answer = ask(method, base + path, bearer(BOBS), b"{}" if method == "POST" else None)
            check(f"a credential gets nothing from {method} {base}{path}", answer.status in (400, 403, 404, 405), answer)
    for target in ("/events", "/events?room=kitchen"):
        check(f"nor from {target}", ask("GET", target, bearer(BOBS)).status in (400, 401, 403))
    check("nor with it as udid", ask("GET", f"/events?udid={BOBS}").status == 400)
    check("nor with a token that only posts", ask("GET", "/ntfy/kitchen/json?poll=1", basic(WRITER)).status == 403
          and call("GET", "message", WRITER).status == 403)


def root():
    for path in ("/api.php", "/events", "/metrics", "/admin", "/healthz", "/readyz", "/v1", "/ntfy", "/gotify", "/test", "/docs"):
        for end in ("json?poll=1", "auth", "raw?poll=1", "publish?message=x"):
            answer = ask("GET", f"{path}/{end}", basic(BOBS))
            check(f"{path}/{end.split('?')[0]} is no topic", answer.status >= 400, answer)
    for method, target in [("GET", "/kitchen//json?poll=1"), ("GET", "/kitchen%2fjson?poll=1"),
                           ("GET", "/kitchen/json/x"), ("TRACE", "/kitchen/json"), ("DELETE", "/kitchen"), ("GET", "/v1/account/x"),
                           ("PUT", "/v1"), ("PUT", "/metrics"), ("GET", "/garden/json?poll=1"), ("GET", "http://evil/v1/tokens"),
                           ("HEAD", "/kitchen/json"), ("HEAD", "/kitchen/ws"), ("GET", "*"), ("GET", "/%76%31/tokens")]:
        answer = ask(method, target, basic(BOBS), b"{}" if method == "PUT" else None)
        check(f"{method} {target} is nothing", answer.status >= 400, answer)
    check("the relay's own page stays", b"<html" in ask("GET", "/").body)


def logins():
    def encoded(text):
        return base64.urlsafe_b64encode(text).decode().rstrip("=")
    pair = b"Basic " + base64.b64encode(b"me:" + BOBS.encode())
    for auth, status in [
        (encoded(pair), 200), (encoded(b"Bearer " + BOBS.encode()), 200), ("", 403), ("%", 403), ("====", 403), ("%00", 403),
        ("%ff", 403), ("A" * 15_000, 403), (encoded(b"Bearer " + b"A" * 9_000), 401), (encoded(b"Basic \xff\xff"), 401),
        (encoded(b"Bearer x\r\nX: y"), 401), (encoded(b"Basic " + base64.b64encode(b"\xff:\xfe")), 401),
    ]:
        answer = ask("GET", f"/ntfy/kitchen/auth?auth={auth}")
        check(f"?auth={auth[:8]}… gets {status}", answer.status == status or status > 400 and answer.status in REFUSED, answer)
    check("?auth= wins over a header", ask("GET", f"/ntfy/kitchen/auth?auth={encoded(b'Bearer x')}", basic(BOBS)).status == 401)
    for headers in ([("Authorization", "Bearer x"), *basic(BOBS)], [("Authorization", "Basic")], [("Authorization", "Basic ====")]):
        check("no log-in by a broken header", ask("GET", "/ntfy/kitchen/auth", headers).status in REFUSED)
    statuses = [(ask("GET", "/ntfy/kitchen/auth", basic(f"pcc_{number}")).status, call("GET", "message", f"pcc_{number}").status)
                for number in range(30)]
    check("guesses of secrets are limited", statuses[0] == (401, 401) and 429 in statuses[-1], statuses)
    check("and right ones are not", ask("GET", "/ntfy/kitchen/auth", basic(BOBS)).status == 200)


def changes():
    """Messages of other authors and of other rooms, by their names and by their ids."""
    calls = [("PUT", "", b"x"), ("POST", "", b"x"), ("DELETE", "", None), ("PUT", "/clear", None), ("PUT", "/read", None)]
    writer, one = basic(WRITER), basic(ONE)
    start = len(numbers("kitchen"))
    check("a program names its message", ask("PUT", "/ntfy/kitchen/door", writer, b"The door is open").status == 200)
    door = max(numbers("kitchen"))
    for end in ("", "/clear", "/read"):
        check(f"another program's call {end} finds nothing of that name",
              ask("DELETE" if end == "" else "PUT", f"/ntfy/kitchen/door{end}", one).status == 200 and door in numbers("kitchen"))
    own = ask("PUT", "/ntfy/kitchen/door", one, b"Mine")
    check("and its own message stays apart", own.status == 200 and "sequence_id" not in own.json and len(numbers("kitchen")) == start + 2, own)
    ask("DELETE", "/ntfy/kitchen/door", one)
    before = {room: sorted(numbers(room)) for room in ("kitchen", "garden")}
    targets = [f"m{number:011d}" for number in (*OWN, *OTHERS, door)] + [str(door), "m99999999999", "m" + "9" * 40]
    for name, secret in (("a member", BOBS), ("a program of the room", ONE), ("a program without a room", ALL)):
        for target in targets:
            # The relay looks at an id that no message can have before it looks at the caller.
            for method, end, body in calls if secret != BOBS or len(target) < 20 else ():
                answer = ask(method, f"/ntfy/kitchen/{target}{end}", basic(secret), body)
                allowed = (200,) if body is None else (403, 404)
                if target.isdigit() and secret != BOBS:
                    allowed = (200,)
                if answer.status not in (allowed if secret != BOBS else (403,)):
                    raise SystemExit(f"FAILED {name}: {method} {target}{end}: {answer}")
        for real, unreal in (("garden", "nowhere"), (FOREIGN_ALIAS, "A" * 22)):
            for method, end, body in calls:
                first, second = (ask(method, f"/ntfy/{topic}/door{end}", basic(secret), body) for topic in (real, unreal))
                if secret != ALL and (first.status != 403 or seen(first) != seen(second)):
                    raise SystemExit(f"FAILED {name}: {method} {real}/door{end}: {first}, {second}")
        ask("DELETE", f"/ntfy/kitchen/{door}", basic(secret))
        check(f"{name} changes no message of others", True)
    check("all messages of others are as they were", set(before["kitchen"]) <= set(numbers("kitchen"))
          and set(before["garden"]) <= set(numbers("garden")))
    check("with their texts", "The door is open" in [each["message"] for each in call("GET", "message", ONE).json["messages"]])
    count = len(numbers("kitchen"))
    for target in ("a%20b", "%00", "a,b", "..%2fdoor", "%ff", "d%C3%B6r", "x" * 65, "x" * 5000, "door.", "door%0d%0aX:y", "json", "ws",
                   "publish", "auth"):
        for base in ("/ntfy/kitchen/", "/kitchen/"):
            for method, end, body in calls:
                answer = ask(method, base + target + end, writer, body)
                if answer.status < 400:
                    raise SystemExit(f"FAILED {method} {base}{target}{end}: {answer}")
    for value in ("a b", "x" * 65, "ä", "a,b", "../door", "door.", "%"):
        for header in ("Sequence-ID", "X-Sequence-ID", "SID"):
            answer = ask("PUT", "/ntfy/kitchen", [*writer, (header, value)], b"x")
            if answer.status != 400:
                raise SystemExit(f"FAILED {header}: {value}: {answer}")
    check("a wrong name posts nothing", len(numbers("kitchen")) == count)
    for target in ("metrics/x", "v1/messages", "v1/x", "admin/x", "events/x/clear", "api.php/x", "healthz/door"):
        for method in ("PUT", "DELETE"):
            answer = ask(method, f"/{target}", one, b"x")
            check(f"{method} /{target} is no message", answer.status >= 400, answer)


def ends():
    """The end of a membership ends its credentials and their streams, for good."""
    def works(secret):
        return [ask("GET", "/ntfy/kitchen/auth", basic(secret)).status, ask("GET", "/ntfy/kitchen/json?poll=1", basic(secret)).status,
                call("GET", "message", secret).status, ask("PUT", "/ntfy/kitchen", basic(secret), b"x").status]

    def ended(stream):
        try:
            while True:
                stream.next()
        except Ended:
            return True

    def is_gone(statuses):
        # The limit of guesses also counts the secrets that end here.
        return all(status in (401, 429) for status in statuses)

    for what, end in [
        ("who leaves", lambda udid: relay.chat("leave", udid)),
        ("who goes to another room", lambda udid: relay.chat("join", udid, token=0, name="Gil", code="attic")),
        ("who is banned", lambda udid: relay.admin("POST", "/v1/bans", {"room": "kitchen", "udid": udid})),
    ]:
        gil = relay.member(7, "Gil", "kitchen")
        secret = relay.credential(gil, "app")["credential"]
        check("a credential works", works(secret) == [200] * 4)
        streams = [opened("/ntfy/kitchen/ws", basic(secret))[0], opened(f"/gotify/stream?token={secret}", [])[0]]
        end(gil)
        relay.chat("message", ANN, text="Not for Gil")
        for stream in streams:
            stream.wire.socket.settimeout(20)
            check(f"the stream of a member {what} ends", ended(stream))
        check("and its credential does not work", is_gone(works(secret)), works(secret))
        if what == "who leaves":
            relay.member(7, "Gil", "kitchen")
            check("also when the member comes again", is_gone(works(secret)))


for attack in (topics, alias_as_code, histories, applications, credentials, scopes, root, logins, changes, ends):
    attack()
with open(sys.argv[1]) as log:
    # The relay still writes its last line.
    lines = log.read().rpartition("\n")[0]
check("no secret and no foreign text is in the log", not [
    each for each in (BOBS, DANS, CYS, ONE, ALL, ADMIN, FOREIGN, FOREIGN_ALIAS) if each in lines])
for line in lines.splitlines():
    json.loads(line)
check("every line of the log is one of the relay's", True)
