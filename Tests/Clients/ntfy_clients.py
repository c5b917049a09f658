#!/usr/bin/env python3
"""Unmodified ntfy clients publish, listen and poll: ntfpy, python-ntfy, Apprise and curl. The relay is killed under them.

Usage: ntfy_clients.py RELAY-COMMAND…
Prints a line for each check that passed. Ends with status 1 at the first that failed.
"""
import asyncio, atexit, collections, itertools, json, logging, os, re, subprocess, sys, threading, time

from http.client import HTTPException

import ntfpy
import requests
from python_ntfy import NtfyClient
from python_ntfy._exceptions import MessageReceiveError

from checks import check, until
from relay import administered

relay = administered(sys.argv[1:])
over = threading.Event()
children = []


@atexit.register
def end():
    over.set()
    for child in [*children, relay.process]:
        if child and child.poll() is None:
            child.kill()


def texts(messages):
    return [message["message"] for message in messages]


# ----- The clients

class Opened(logging.Handler):
    """Receives the events that ntfpy only logs: `open` and `keepalive`."""

    def __init__(self):
        super().__init__()
        self.topics = collections.Counter()
        logger = logging.getLogger("ntfpy.raw_subscribe")
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(self)

    def emit(self, record):
        if record.msg["event"] == "open":
            self.topics[record.msg["topic"]] += 1


class Ntfpy:
    """ntfpy in a thread. It subscribes again whenever its stream ends, as a script that uses it must."""

    opened = Opened()

    def __init__(self, server, topic, secret):
        self.server, self.topic, self.secret, self.messages = server, topic, secret, []
        before = self.opened.topics[topic]
        threading.Thread(target=self.run, daemon=True).start()
        until(f"ntfpy listens to {topic}", lambda: self.opened.topics[topic] > before)

    def run(self):
        while not over.is_set():
            try:
                asyncio.run(ntfpy.raw_subscribe(self.server, self.topic, "phone:" + self.secret, self.messages.append))
            except requests.exceptions.RequestException:
                over.wait(0.05)


class Curl:
    """curl in a thread. It subscribes again whenever its stream ends, after the last id that it has seen."""

    def __init__(self, server, topics, form, secret, query=""):
        self.url, self.form, self.secret, self.query = f"{server}/{topics}/{form}", form, secret, query
        self.events, self.lines, self.opened, self.ends = [], [], 0, 0
        threading.Thread(target=self.run, daemon=True).start()
        until(f"curl listens to {topics} as {form}", lambda: self.opened)

    def run(self):
        since = "none"
        while not over.is_set():
            child = subprocess.Popen(
                ["curl", "-sN", "--max-time", "100", "-u", "phone:" + self.secret, f"{self.url}?since={since}{self.query}"],
                stdout=subprocess.PIPE, text=True)
            children.append(child)
            for line in child.stdout:
                line = line.rstrip("\n")
                self.lines.append(line)
                if "event" not in line and self.form == "json":
                    continue  # The error of a refused request.
                if self.form == "raw":
                    self.opened += line == ""
                    continue
                if line.startswith("data: ") or self.form == "json":
                    event = json.loads(line.removeprefix("data: "))
                    self.opened += event["event"] == "open"
                    if event["event"] == "message":
                        self.events.append(event)
                        since = event["id"]
            child.wait()
            self.ends += 1
            over.wait(0.05)

    @property
    def messages(self):
        return texts(self.events)


def curl(path, *arguments):
    """Returns the status, the content type, and the body."""
    done = subprocess.run(
        ["curl", "-s", "--max-time", "60", "-w", "\n%{http_code} %{content_type}", *arguments, relay.base + path],
        capture_output=True, text=True)
    body, _, end = done.stdout.rpartition("\n")
    status, _, kind = end.partition(" ")
    return int(status), kind, body


def client(secret, topic="kitchen", prefix="/ntfy"):
    return NtfyClient(topic, server=relay.base + prefix, auth=secret)


def refusal(secret, topic):
    """Returns what python-ntfy says when the relay refuses a poll."""
    try:
        return client(secret, topic).get_cached_messages()
    except MessageReceiveError as error:
        return str(error)


# ----- Publish and poll

def poll(phone):
    sent = client(phone).send("one", title="First", priority=NtfyClient.MessagePriority.HIGH, tags=["tada"])
    check("python-ntfy publishes", (sent["event"], sent["topic"], sent["message"], sent["title"], sent["priority"])
          == ("message", "kitchen", "one", "First", 4), sent)
    check("the id has 12 characters and is no number", re.fullmatch("[A-Za-z][A-Za-z0-9]{11}", sent["id"]), sent)
    [got] = client(phone).get_cached_messages()
    check("python-ntfy polls the same message",
          {key: got.get(key) for key in ("id", "time", "event", "topic", "message", "title")}
          == {key: sent[key] for key in ("id", "time", "event", "topic", "message", "title")}, (sent, got))
    client(phone).send("two")
    client(phone, "hall").send("three")
    for since, wanted in (("all", ["one", "two"]), (sent["id"], ["two"]), ("10m", ["one", "two"]), ("none", []),
                          (str(sent["time"]), ["one", "two"]), (str(sent["time"] + 3600), []), ("latest", ["two"])):
        got = sorted(client(phone).get_cached_messages(since=since), key=lambda message: message["id"])
        check(f"python-ntfy polls since={since if len(since) < 10 else 'an id or a time'}: {wanted}", texts(got) == wanted, got)
    got = client(phone, "kitchen,hall").get_cached_messages(since=sent["id"], scheduled=True)
    check("it polls two topics after one id", sorted((m["topic"], m["message"]) for m in got)
          == [("hall", "three"), ("kitchen", "two")], got)
    named = NtfyClient("kitchen", server=relay.base + "/ntfy", auth=("ann", phone)).get_cached_messages(since=sent["id"])
    check("any user name does", texts(named) == ["two"], named)


def refusals(one):
    """`one` is a secret that reads the room kitchen."""
    check("python-ntfy reads with a token of one room", texts(client(one).get_cached_messages(since="latest")) == ["two"])
    check("a wrong token is an error", "401" in refusal("pct_wrong", "kitchen"), refusal("pct_wrong", "kitchen"))
    for topic in ("hall", "nowhere", "kitchen,hall", "kitchen,nowhere"):
        check(f"a token of one room does not read {topic}", "403" in refusal(one, topic), refusal(one, topic))
    foreign, unknown = (curl(f"/ntfy/{topic}/auth", "-u", ":" + one) for topic in ("hall", "nowhere"))
    check("a foreign topic looks like an unknown one", foreign == unknown, (foreign, unknown))
    for path, arguments, status, code in (
            ("/kitchen/auth", [], 403, 40301), ("/kitchen/auth", ["-u", ":pct_wrong"], 401, 40101),
            ("/hall/auth", ["-u", ":" + one], 403, 40301), ("/hall/json?poll=1", ["-u", ":" + one], 403, 40301),
            ("/hall/sse", ["-u", ":" + one], 403, 40301), ("/kitchen/json?since=soon", ["-u", ":" + one], 400, 40008),
            ("/kitchen/json?priority=9", ["-u", ":" + one], 400, 40007), ("/kitchen/ws", ["-u", ":" + one], 400, 40016),
            ("/kit%20chen/json", ["-u", ":" + one], 404, 40401)):
        got, kind, body = curl("/ntfy" + path, *arguments)
        body = json.loads(body or "{}")
        check(f"{path}: {code}", (got, body.get("code"), body.get("http")) == (status, code, status)
              and kind.startswith("application/json") and set(body) <= {"code", "http", "error", "link"}, (got, kind, body))
    got = curl("/ntfy/kitchen/auth", "-u", "x:" + one)
    check("/auth accepts Basic", got[0] == 200 and json.loads(got[2]) == {"success": True}, got)
    got = curl("/ntfy/kitchen/auth", "-H", "Authorization: Bearer " + one)
    check("/auth accepts Bearer", got[0] == 200 and json.loads(got[2]) == {"success": True}, got)
    try:
        asyncio.run(ntfpy.raw_subscribe(relay.base + "/ntfy", "kitchen", "x:pct_wrong", print))
        check("ntfpy with a wrong token", False, "no error")
    except KeyError as error:  # It reads the error as an event.
        check("ntfpy with a wrong token gets an error that ends", str(error) == "'event'", error)


# ----- Listen

def live(phone):
    server = relay.base + "/ntfy"
    both, other = Ntfpy(server, "kitchen,hall", phone), Ntfpy(server, "hall", phone)
    streams = {form: Curl(server, "kitchen,hall", form, phone) for form in ("json", "sse", "raw")}
    high = Curl(server, "kitchen,hall", "json", phone, "&priority=high,urgent")
    ntfpy.raw_send(server, "kitchen", "to the kitchen\nin two lines", auth="x:" + phone, title="Größe", priority=4,
                   click="https://example.org/x")
    ntfpy.raw_send(server, "hall", "to the hall", auth="x:" + phone)
    wanted = ["to the kitchen\nin two lines", "to the hall"]
    until("ntfpy gets messages of two topics", lambda: [m.message for m in both.messages] == wanted, told=lambda: both.messages)
    first = both.messages[0]
    check("with title and link", (first.title, first.click, first.topic) == ("Größe", "https://example.org/x", "kitchen"), vars(first))
    until("ntfpy gets messages of one topic", lambda: [m.message for m in other.messages] == wanted[1:], told=lambda: other.messages)
    for form in ("json", "sse"):
        until(f"curl gets them as {form}", lambda: streams[form].messages == wanted, told=lambda: streams[form].lines)
    until("curl gets them as raw text", lambda: [line for line in streams["raw"].lines if line]
          == ["to the kitchen in two lines", "to the hall"], told=lambda: streams["raw"].lines)
    check("the first event is open, with the topics as requested",
          (json.loads(streams["json"].lines[0])["event"], json.loads(streams["json"].lines[0])["topic"]) == ("open", "kitchen,hall"))
    check("only SSE's other events have a name", streams["sse"].lines[0] == "event: open"
          and sum(line.startswith("event:") for line in streams["sse"].lines) == 1, streams["sse"].lines)
    until("a filter leaves others out", lambda: high.messages == wanted[:1], told=lambda: high.lines)
    for form, kind in (("json", "application/x-ndjson; charset=utf-8"), ("sse", "text/event-stream; charset=utf-8"),
                       ("raw", "text/plain; charset=utf-8")):
        got = curl(f"/ntfy/kitchen/{form}?poll=1", "-u", ":" + phone)
        check(f"{form} has its content type", got[1] == kind, got)
    return both, streams


# ----- A member's own credential

def member():
    """A member of a room whose code no topic can carry uses the app with a personal credential."""
    ann, bob = relay.member(1, "Ann", "tea & biscuits"), relay.member(2, "Bob", "tea & biscuits")
    made = relay.credential(ann, "Ann's phone")
    secret, topic = made["credential"], made["topic"]
    check("the topic is one", re.fullmatch("[-_A-Za-z0-9]{1,64}", topic), made)
    server = relay.base + "/ntfy"
    listener, stream = Ntfpy(server, topic, secret), Curl(server, topic, "json", secret)
    relay.chat("message", bob, text="hello Ann")
    until("ntfpy gets a member's message", lambda: [m.message for m in listener.messages] == ["hello Ann"], told=lambda: listener.messages)
    check("with the topic as requested", listener.messages[0].topic == topic, vars(listener.messages[0]))
    check("python-ntfy polls it", texts(client(secret, topic).get_cached_messages()) == ["hello Ann"])
    client(secret, topic).send("hello Bob")
    history = json.loads(relay.chat("messages", bob))["messages"]
    check("what it publishes is the member's", [(m["name"], m["text"]) for m in history] == [("Bob", "hello Ann"), ("Ann", "hello Bob")], history)
    for foreign in ("kitchen", f"{topic},kitchen", "A" * 22):
        check("it reads no other room", "403" in refusal(secret, foreign), refusal(secret, foreign))
    until("its stream has both", lambda: stream.messages == ["hello Ann", "hello Bob"], told=lambda: stream.lines)
    relay.chat("leave", ann)
    check("it ends when the member leaves", "401" in refusal(secret, topic), refusal(secret, topic))
    until("its streams end", lambda: stream.ends, told=lambda: stream.lines)
    relay.chat("message", bob, text="Ann has left")
    ends = stream.ends
    until("they try again", lambda: stream.ends > ends)
    check("and get no later message", stream.messages == ["hello Ann", "hello Bob"] and stream.opened == 1, stream.lines)


# ----- Kills

class Poster:
    """Posts in both rooms without a pause, and repeats each post until it is answered. Its key makes that safe."""

    def __init__(self):
        self.texts, self.stopped = [], threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        for number in itertools.count():
            if self.stopped.is_set():
                return
            text = f"post {number}"
            while not over.is_set():
                try:
                    relay.post(("kitchen", "hall")[number % 2], text, key=text)
                    break
                except (OSError, HTTPException):
                    over.wait(0.02)
            self.texts.append(text)

    def stop(self):
        self.stopped.set()
        self.thread.join()


def kills(phone, both, streams):
    before, opened = streams["json"].events[-1]["id"], 0
    poster = Poster()
    for round in (1, 2):
        reached = len(poster.texts) + 10
        until(f"posts arrive before kill {round}", lambda: len(poster.texts) >= reached)
        until("ntfpy listens", lambda: round == 1 or Ntfpy.opened.topics["kitchen,hall"] > opened)
        opened = Ntfpy.opened.topics["kitchen,hall"]
        relay.restart(meanwhile=lambda other: other.post("kitchen", f"in outage {round}") and other.post("hall", f"also {round}"))
    reached = len(poster.texts) + 10
    until("posts arrive after the kills", lambda: len(poster.texts) >= reached)
    poster.stop()
    until("ntfpy listens again", lambda: Ntfpy.opened.topics["kitchen,hall"] > opened)
    relay.post("kitchen", "last")
    wanted = sorted([*poster.texts, "in outage 1", "also 1", "in outage 2", "also 2", "last"])
    for form in ("json", "sse"):
        stream = streams[form]
        until(f"curl has the last message as {form}", lambda: stream.messages[-1:] == ["last"], told=lambda: stream.messages[-3:])
        got = stream.messages[2:]
        counts = collections.Counter(got)
        check(f"curl missed and doubled nothing over two kills, as {form}", sorted(got) == wanted,
              ([text for text in wanted if text not in counts], [text for text in counts if counts[text] > 1]))
        ids = [event["id"] for event in stream.events]
        check(f"it got them in order, as {form}", ids == sorted(ids), ids)
    until("ntfpy has the last message", lambda: both.messages and both.messages[-1].message == "last")
    heard = [message.id for message in both.messages]
    check("ntfpy got nothing twice", len(heard) == len(set(heard)), heard)
    missed = client(phone, "kitchen,hall").get_cached_messages(since=before)
    check("python-ntfy polls all of it after the last id", sorted(texts(missed)) == wanted, len(missed))


# ----- Root

def root(phone):
    check("at the root are no topics without the setting", curl("/kitchen/json?poll=1", "-u", ":" + phone)[0] == 404)
    relay.kill()
    relay.start("--set", "http.ntfy_at_root=on")
    listener = Ntfpy(relay.base, "hall,kitchen", phone)
    client(phone, "hall", prefix="").send("by python-ntfy at the root")
    done = subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "apprise"), "-b", "by Apprise at the root",
         f"ntfy://127.0.0.1:{relay.port}/kitchen?auth=token&token={phone}"], capture_output=True, text=True)
    check("Apprise publishes at the root", done.returncode == 0, done.stdout + done.stderr)
    wanted = ["by python-ntfy at the root", "by Apprise at the root"]
    until("ntfpy listens at the root", lambda: [m.message for m in listener.messages] == wanted, told=lambda: listener.messages)
    latest = texts(client(phone, prefix="").get_cached_messages(since="latest"))
    check("python-ntfy polls at the root", latest == wanted[1:], latest)
    got = curl("/v1/health")
    check("/v1/health answers as ntfy's", got[0] == 200 and json.loads(got[2]) == {"healthy": True}, got)
    check("the relay's own paths stay", relay.admin("GET", "/v1/stats") and curl("/healthz")[0] == 200)
    check("and those below /ntfy", texts(client(phone).get_cached_messages(since="latest")) == wanted[1:])


relay.start()
phone, one = relay.token("phone", "read", "post"), relay.token("kitchen", "read", room="kitchen")
poll(phone)
refusals(one)
member()
kills(phone, *live(phone))
root(phone)
