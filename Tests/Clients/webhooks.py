"""Receivers of webhooks that fail in every way, and relays that are killed. Arguments: the number of relays, the log of the first
relay, and the command of a relay."""
import http.client, http.server, json, subprocess, sys, threading, time, urllib.parse

from checks import check, until
from relay import Relay
from standardwebhooks import Webhook

KILLS = 3
SECRET_PATH = "a-password-in-a-path"
TOKEN = "the-token-of-the-administrator"


class Receiver(http.server.BaseHTTPRequestHandler):
    """A receiver whose path says how it behaves. It verifies each signature with the library that receivers use."""
    secrets, got, lock = {}, {}, threading.Lock()
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        name = self.path.split("/")[1]
        headers = {key.lower(): value for key, value in self.headers.items()}
        event = Webhook(self.secrets[name]).verify(body, headers)
        with self.lock:
            all = self.got.setdefault(name, [])
            all.append((headers["webhook-id"], event))
            count = len(all)
        if name == "hang":
            time.sleep(60)
        elif name == "close":
            self.close_connection = True
            self.connection.close()
        elif name == "slow":
            for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok":
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.02)
            self.close_connection = True
        elif name == "redirect":
            self.answer(302, headers={"Location": "/ok/"})
        elif name == "gone":
            self.answer(410)
        elif name == "fail":
            self.answer(500 if count == 1 else 200, b"broken" if count == 1 else b"mended")
        elif name.startswith("bot"):
            text = json.dumps({"text": f"{name} heard {event['data']['message']['text'][:20]}"}).encode()
            self.answer(200, text, {"Content-Type": "application/json"})
        else:
            time.sleep(0.02)
            self.answer(200, b"ok", {"Content-Type": "text/html"})

    def answer(self, status, body=b"", headers={}):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, address):
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, address)


server = Server(("127.0.0.1", 0), Receiver)
threading.Thread(target=server.serve_forever, daemon=True).start()
address = f"http://127.0.0.1:{server.server_port}"

count, log, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
# Relays of one PostgreSQL keep their own files next to different paths.
relays = [Relay([*command, "--set", "admin.token=" + TOKEN, *(["--set", f"database.path={log}.{number}.db"] if count > 1 else [])],
    token=TOKEN, log=log) for number in range(count)]
for relay in relays:
    relay.start()
relay = relays[0]


def webhook(name, room, **fields):
    made = relay.admin("POST", "/v1/webhooks", {"url": f"{address}/{name}/{SECRET_PATH}", "room": room, **fields})
    Receiver.secrets[name] = made["secret"]
    return made["id"]


def got(name):
    with Receiver.lock:
        return list(Receiver.got.get(name, []))


def messages(name):
    return [event["data"]["message_id"] for _, event in got(name) if event["type"] == "message.posted"]


def delivery(id):
    return relay.admin("GET", f"/v1/webhooks/{id}/deliveries?limit=1")["deliveries"][0]


# Receivers that fail.
names = ["ok", "hang", "close", "slow", "redirect", "gone", "fail"]
ids = {name: webhook(name, "kitchen", events=["message.posted"]) for name in names}
posted = [relay.post("kitchen", f"message {number}") for number in range(20)]
until("receivers that hang and fail delay no other", lambda: len(messages("ok")) == 20, within=30)
check("events arrive once and in their order", messages("ok") == posted, messages("ok"))
until("a receiver that answers byte by byte gets all", lambda: messages("slow") == posted, within=60)
until("a failed event is sent again", lambda: messages("fail") == [posted[0], *posted], within=60)
check("a retry has the same id", got("fail")[0][0] == got("fail")[1][0])
check("410 ends the webhook", relay.admin("GET", f"/v1/webhooks/{ids['gone']}")["state"] == "ended")
check("and nothing more is sent there", messages("gone") == posted[:1])
redirected = relay.admin("GET", f"/v1/webhooks/{ids['redirect']}/deliveries?state=waiting")["deliveries"][-1]
check("a redirection is a failure and not followed", redirected["status"] == 302, redirected)
until("the hanging receiver's event ends with the time limit", lambda: any(
    item["error"] == "no response in time"
    for item in relay.admin("GET", f"/v1/webhooks/{ids['hang']}/deliveries?limit=500")["deliveries"]), within=60)
closed = relay.admin("GET", f"/v1/webhooks/{ids['close']}/deliveries?limit=500")["deliveries"][-1]
check("a closed connection is a failure", closed["status"] is None and closed["attempts"] > 0, closed)
for name in names[1:]:
    relay.admin("DELETE", f"/v1/webhooks/{ids[name]}")

# The body of each kind of event.
relay.admin("PATCH", f"/v1/webhooks/{ids['ok']}", {"events": ["message.edited", "message.deleted", "member.joined", "member.left"]})
udid = relay.member(1, "Ann", "kitchen")
key = relay.admin("POST", "/v1/messages", {"room": "kitchen", "text": "down", "key": "disk"})["id"]
relay.admin("PUT", f"/v1/messages/{key}", {"text": "up"})
relay.admin("DELETE", f"/v1/messages/{key}")
relay.chat("leave", udid)
wanted = ["member.joined", "message.edited", "message.deleted", "member.left"]
until("changes are events", lambda: [event["type"] for _, event in got("ok")[20:]] == wanted, told=lambda: got("ok")[20:])
edited, deleted = (event["data"] for _, event in got("ok")[21:23])
check("a change of a deleted message has no text", "message" not in deleted, deleted)
check("a member's name is in its events", got("ok")[20][1]["data"]["name"] == "Ann")
relay.admin("DELETE", f"/v1/webhooks/{ids['ok']}")

# Relays that are killed while they send.
busy = webhook("busy", "hall", events=["message.posted"])
sent, stop = [], threading.Event()


def write():
    while not stop.is_set():
        # Each event waits for the one before it, and over PostgreSQL a kill holds them back for the time of a lease.
        if len(sent) > len(got("busy")) + 100:
            time.sleep(0.05)
            continue
        for relay in relays:
            try:
                status, text, _ = relay.ask("POST", "/v1/messages", json.dumps({"room": "hall", "text": "x"}).encode(), {
                    **relay.rights, "Content-Type": "application/json"})
            except (OSError, http.client.HTTPException):
                continue
            if status < 300:
                sent.append(json.loads(text)["id"])


writer = threading.Thread(target=write)
writer.start()
for number in range(KILLS):
    before = len(got("busy"))
    until(f"events arrive and wait before kill {number + 1}", lambda: len(sent) > len(got("busy")) + 30 and len(
        got("busy")) > before + 5, within=120)
    victim = relays[number % count]
    victim.kill()
    victim.start()
stop.set()
writer.join()
until("each message of the killed relays arrives", lambda: set(sent) <= set(messages("busy")), within=180, told=lambda: len(
    set(sent) - set(messages("busy"))))
doubles = len(messages("busy")) - len(set(messages("busy")))
check(f"{len(sent)} messages arrived, {doubles} of them twice after {KILLS} kills", doubles <= KILLS)
first = list(dict.fromkeys(messages("busy")))
check("they arrived in their order", first == sorted(first), first)
relay.admin("DELETE", f"/v1/webhooks/{busy}")

# Bots.
bots = [webhook("bot1", "lounge", bot="One"), webhook("bot2", "lounge", bot="Two", only_mentions=True)]
relay.post("lounge", "hello @two")


def history(room):
    return relay.admin("GET", f"/v1/messages?room={urllib.parse.quote(room)}&limit=200")["messages"]


until("both bots answer", lambda: {item["name"] for item in history("lounge")} >= {"One", "Two"})
until("bots that hear each other end", lambda: not any(
    relay.admin("GET", f"/v1/webhooks/{id}")["waiting"] for id in bots), within=60)
names = [item["name"] for item in history("lounge")]
check("a room gets at most 20 messages of bots in a minute", names.count("One") + names.count("Two") <= 21, names)
answered = [event["data"]["message_id"] for _, event in got("bot1")]
own = {item["id"] for item in history("lounge") if item["name"] == "One"}
check("a bot does not hear itself", not own & set(answered), own)
check("a bot hears only its mentions", all("@two" in event["data"]["message"]["text"].lower() for _, event in got("bot2")))

# A bot and a webhook for another program in the same room: nobody hears the other twice.
hook = relay.admin("POST", "/v1/tokens", {"name": "alarm", "scopes": ["post"], "room": "yard", "hook": {"format": "text"}})["token"]
yard = webhook("bot3", "yard", bot="Three")
status, text, _ = relay.ask("POST", f"/hooks/{hook}/text", b"the gate is open", {"Content-Type": "text/plain"})
check("the other program posts", status == 200, text)
until("the bot answers it", lambda: [item["name"] for item in history("yard")].count("Three") == 1)
until("and nothing follows", lambda: not relay.admin("GET", f"/v1/webhooks/{yard}")["waiting"])
check("there are two messages", len(history("yard")) == 2, history("yard"))

# The rules for addresses, in each place that takes one.
port = command.index("serve")
options = [] if count > 1 else command[port + 1:]
valid = f"/v1/webhooks/{webhook('valid', 'yard')}"
before = relay.admin("GET", valid)["url"]
for url, rule in {
    "http://example.org/": "must begin with https://", "https://10.0.0.1/": "must have a host name",
    "https://user@example.org/": "plain host name", "https://example.org:8443/": "port 443", "ftp://example.org/": "https://",
    "https://[::ffff:10.0.0.1]/": "must have a host name", "https://2130706433/": "must have a host name",
    "https://0x7f.1/": "must have a host name", "https://0177.0.0.1/": "must have a host name", "https://0/": "must have a host name",
    "https://169.254.169.254/latest/meta-data/": "must have a host name", "https://[fd00:ec2::254]/": "must have a host name",
    "https://[64:ff9b::a9fe:a9fe]/": "must have a host name", "https://[fe80::1%25eth0]/": "plain host name",
    "https://example.org\\@10.0.0.1/": "printable ASCII", "https://example.org/#@10.0.0.1": "printable ASCII",
    "https://ex\u0430mple.org/": "printable ASCII", "https://127%2e0.0.1/": "plain host name", "https://10.0.0.1./": "must have a host name",
    "https://example.org:22/": "port 443", "http://10.0.0.1/": "webhooks.hosts must name 10.0.0.1:80", "https://a.b/" + "x" * 1000: "at most",
    "gopher://10.0.0.1/": "https://", "//10.0.0.1/": "https://", "https://[::1/": "must name a host", "": "https://",
}.items():
    rights = {**relay.rights, "Content-Type": "application/json"}
    for method, path in (("POST", "/v1/webhooks"), ("PATCH", valid)):
        status, text, _ = relay.ask(method, path, json.dumps({"url": url}).encode(), rights)
        check(f"{method} with {url[:40]!r} is rejected", status == 400 and rule in text, text)
    if url.startswith(("https://10.", "https://[fd", "http://e", "https://ex\u0430")):
        for arguments in (["create", url], ["change", valid.split("/")[-1], "--url", url]):
            played = subprocess.run([*command[:port], "webhooks", *arguments, *options], capture_output=True, text=True, timeout=60)
            check(f"`webhooks {arguments[0]}` with {url[:40]!r} is rejected", played.returncode != 0 and rule in played.stderr, played.stderr)
check("and nothing has changed", relay.admin("GET", valid)["url"] == before)
check("the log has no path of a receiver", SECRET_PATH not in open(log).read())
for relay in relays:
    relay.kill()
print(f"webhooks: {len(sent)} messages, {doubles} doubles")
