#!/usr/bin/env python3
"""Three relays on one PostgreSQL, one of them through PgBouncer: relays and server are killed while clients post and listen.

Usage: postgres_relays.py PUSHCHAT FOLDER ROUNDS SEED
A round kills the three relays and the server, one after another, and stops a relay for longer than the others wait. During that
time eight clients post, and repeat each message with its key until they get a response. Eight event streams reconnect to another
relay whenever they end. Two transactions are held open.

At the end every message is in its room once, every stream has received all messages of its room in order, and every push has
reached the sandbox. A push may arrive twice only for these reasons, once for each time that they applied: its relay was killed or
stopped while it had the push, the server was killed before the push was settled, or its connection to the sandbox ended without a
response.

The seed determines the victims and the posts. The responses that the clients get determine the duration of each step.
Prints a line for each check that passed. Ends with status 1 at the first that failed.
"""
import collections, http.client, json, os, random, re, signal, subprocess, sys, threading, time, urllib.error, urllib.parse, urllib.request

import postgres_server
from checks import check, free_port, until

PUSHCHAT, FOLDER, ROUNDS, SEED = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
ROOMS, MEMBERS, RELAYS, CLIENTS, STREAMS = 4, 4, 3, 8, 8
# Seconds without a sign of life after which the test records a relay's leases. Relays wait longer (docs/postgresql.md).
SILENCE = 5
# Seconds in which a relay writes several signs of life.
PROOF = 12
# Seconds after which a message counts as lost for a stream.
WHILE = 60
# The application name of the held transactions.
HELD = "held"
chance = random.Random(SEED)
processes = []


def path(name):
    return os.path.join(FOLDER, name)


def log(name):
    with open(path(name + ".log"), errors="replace") as file:
        return file.read()[-2000:]


def start(name, *command):
    with open(path(name + ".log"), "a") as output:
        processes.append(subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=FOLDER))
    return processes[-1]


def ask(method, url, body=None, headers={}, within=30):
    """Returns status and text. The status is 0 without a response."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method), timeout=within) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)


def member(room, number):
    return f"{room * 100 + number:040x}"


class Relay:
    def __init__(self, number, url, sandbox):
        self.name, self.port = f"relay{number}", free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self.configuration = path(self.name + ".yaml")
        with open(self.configuration, "w", opener=lambda file, flags: os.open(file, flags, 0o600)) as file:
            # JSON is YAML.
            json.dump({
                "http": {"host": "127.0.0.1", "port": self.port, "rate_per_address": "off", "rate_per_member": "off"},
                "database": {"url": url, "path": path(self.name + ".db")},
                "apps": {"default": {
                    "gateway": "http2", "host": "localhost", "port": sandbox["ports"]["http2"],
                    "certificate": sandbox["certificate"], "topic": sandbox["topic"], "trust": sandbox["authority"]}}}, file)
        self.start()

    def start(self):
        self.process = start(self.name, PUSHCHAT, "serve", "--config", self.configuration)

    def is_ready(self):
        return ask("GET", self.base + "/readyz")[0] == 200

    def kill(self):
        self.process.kill()
        self.process.wait()


class Client(threading.Thread):
    """Posts one message after another. Repeats each until a relay responds."""

    def __init__(self, number, relays, stop):
        super().__init__(daemon=True)
        self.number, self.relays, self.stop, self.chance = number, relays, stop, random.Random(f"{SEED} client {number}")
        self.answered, self.fault = [], None

    def run(self):
        number = 0
        while not self.stop.is_set() and not self.fault:
            room, number = self.chance.randrange(ROOMS), number + 1
            text = f"{self.number}:{number}"
            self.post(text, room, urllib.parse.urlencode({
                "cmd": "message", "udid": member(room, self.chance.randrange(MEMBERS)), "text": text}).encode())

    def post(self, text, room, body):
        for _ in range(200):
            status, said = ask("POST", self.chance.choice(self.relays).base + "/api.php", body, {"Idempotency-Key": text}, within=5)
            if status == 200:
                self.answered.append((room, text))
                return
            if status not in (0, 503):
                break
            self.stop.wait(0.1)
        self.fault = (text, status, said)


class Stream(threading.Thread):
    """Follows a member's events as a browser does, but at another relay each time. Only complete events count.

    Every second stream also disconnects by itself now and then.
    """

    def __init__(self, number, relays, stop):
        super().__init__(daemon=True)
        self.room, self.udid = number % ROOMS, member(number % ROOMS, number // ROOMS)
        self.relays, self.stop, self.chance = relays, stop, random.Random(f"{SEED} stream {number}")
        self.name = f"stream {number} of room {self.room}"
        self.leaves = number % 2 == 0
        # The received texts, the id for the next connection, the number of connections with events, and the error.
        self.seen, self.last, self.visits, self.fault = [], "0", 0, None

    def run(self):
        relay = self.chance.choice(self.relays)
        while not self.stop.is_set() and not self.fault:
            connection = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=25)
            try:
                self.follow(connection)
            except (OSError, http.client.HTTPException):
                pass
            finally:
                connection.close()
            relay = self.chance.choice([each for each in self.relays if each is not relay])
            self.stop.wait(0.1)

    def follow(self, connection):
        connection.request("GET", "/events", headers={"X-Udid": self.udid, "Last-Event-ID": self.last})
        answer = connection.getresponse()
        if answer.status != 200:
            if answer.status != 503:
                self.fault = (answer.status, answer.read())
            return
        event, left = {}, self.chance.randint(5, 25) if self.leaves else None
        before = len(self.seen)
        while not self.stop.is_set():
            line = answer.readline().decode()
            if not line.endswith("\n"):
                return
            name, _, value = line.rstrip("\n").partition(": ")
            if name:
                event[name] = value
                continue
            self.last = event.get("id", self.last)
            if event.get("event") == "left":
                self.fault = "left its room"
                return
            if event.get("event") == "message":
                if len(self.seen) == before:
                    self.visits += 1
                self.seen.append((int(event["id"]), json.loads(event["data"])["text"]))
                if left and len(self.seen) - before == left:
                    return
            event = {}


class Held:
    """Two transactions that stay open: one has a snapshot and an unused row, the other reads the queue as pg_dump does."""

    TABLES = "push_queue, push_queue_due, messages, active_users, devices, relay_starts"

    def __init__(self, server):
        self.server, self.sessions = server, []
        server.rows("CREATE TABLE nobody_needs (id int); INSERT INTO nobody_needs VALUES (1)")
        self.open()

    def open(self):
        self.end()
        self.sessions = [postgres_server.Session(self.server, name=HELD) for _ in range(2)]
        self.sessions[0].ask("BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT * FROM nobody_needs FOR UPDATE")
        self.sessions[1].ask(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", f"LOCK TABLE {self.TABLES} IN ACCESS SHARE MODE",
            "SELECT count(*) FROM push_queue")

    def are_open(self):
        return self.server.rows(
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND backend_xmin IS NOT NULL"
            f" AND application_name = '{HELD}'") == ["2"]

    def end(self):
        for session in self.sessions:
            session.end()


class Doubts(threading.Thread):
    """Pushes that may arrive twice, with the reasons: starts of relays that held it when they fell silent, kills of the server."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.reasons, self.stop, self.kills, self.looks = server, collections.defaultdict(set), threading.Event(), 0, 0

    def run(self):
        session = None
        while not self.stop.wait(1):
            try:
                session = session or postgres_server.Session(self.server)
                for line in session.ask(
                        "SELECT message_id, lease_start FROM push_queue_due JOIN relay_starts ON start_id = lease_start"
                        f" WHERE state = 'pending' AND time_seen < now() - interval '{SILENCE} s'"):
                    push, start = line.split("|")
                    self.reasons[push].add(f"start {start}")
                self.looks += 1
            except OSError:
                # The server is down.
                session.end()
                session = None

    def kill_server(self):
        """Kills the server. Every unsettled push may have been leased: the relay does not wait until a lease is on the disk."""
        self.server.kill()
        self.kills += 1
        for push in self.server.look_apart("SELECT message_id FROM push_queue_due WHERE state = 'pending'"):
            self.reasons[push].add(f"kill {self.kills}")
        self.server.start()


def schedule():
    """Returns the disturbances, and the numbers of responses to each client before and during each."""
    steps = []
    for _ in range(ROUNDS):
        first, second, third = chance.sample(range(RELAYS), RELAYS)
        for kind, victim in (("kill", first), ("server", None), ("kill", second), ("kill", third), ("stop", chance.randrange(RELAYS))):
            steps.append((kind, victim, chance.randint(4, 12), chance.randint(1, 4)))
    return steps


def disturb(relays, server, clients, doubts, held):
    def answered(what, count):
        """Waits until each client has got this number of responses."""
        before = [len(client.answered) for client in clients]
        until(f"each client gets responses {what}", lambda: all(
            client.fault or len(client.answered) >= answers + count for client, answers in zip(clients, before)),
            told=lambda: [len(client.answered) - answers for client, answers in zip(clients, before)])

    def start_of(relay):
        rows = server.rows(
            f"SELECT start_id FROM relay_starts WHERE host LIKE '% {relay.process.pid}' AND time_ended IS NULL")
        return rows[0] if rows else None

    for number, (kind, victim, calm, away) in enumerate(schedule()):
        relay = relays[victim] if victim is not None else None
        answered(f"before disturbance {number + 1}", calm)
        if kind == "server":
            doubts.kill_server()
            held.open()
            print("the server is killed, and runs again", flush=True)
        elif kind == "kill":
            relay.kill()
            answered(f"while {relay.name} is dead", away)
            relay.start()
        else:
            begun = until(f"{relay.name} has a start", lambda: start_of(relay), told=lambda: log(relay.name))
            relay.process.send_signal(signal.SIGSTOP)
            answered(f"while {relay.name} is stopped", away)
            until(f"others end the start of {relay.name}", lambda: server.rows(
                f"SELECT time_ended IS NOT NULL FROM relay_starts WHERE start_id = {begun}") == ["t"])
            relay.process.send_signal(signal.SIGCONT)
            until(f"{relay.name} has a new start", lambda: start_of(relay) not in (None, begun), told=lambda: log(relay.name))
    answered("after the last disturbance", 1)


def check_pooled(relay, pooled):
    """Checks that streams of a relay behind PgBouncer, which gets no notifications, receive others' messages after a second.

    This also holds after its signs of life, which may use the server connection that listens.
    """
    for number in range(2):
        joined = ask("POST", relay.base + "/api.php", urllib.parse.urlencode({
            "cmd": "join", "udid": member(ROOMS, number), "token": "0", "name": f"n{number}", "code": "pooled"}).encode())
        check(f"member {number} joins the room of the pooled stream", joined[0] == 200, joined)
    connection = http.client.HTTPConnection("127.0.0.1", pooled.port, timeout=WHILE)
    connection.request("GET", "/events", headers={"X-Udid": member(ROOMS, 1)})
    answer, slowest, end = connection.getresponse(), 0, time.time() + PROOF
    while time.time() < end:
        text, begun = f"pooled {time.time()}", time.time()
        posted = ask("POST", relay.base + "/api.php", urllib.parse.urlencode({
            "cmd": "message", "udid": member(ROOMS, 0), "text": text}).encode())
        check("a message for the pooled stream is accepted", posted[0] == 200, posted)
        try:
            while text not in answer.readline().decode():
                if time.time() > begun + WHILE:
                    raise TimeoutError("not among its lines")
        except OSError as error:
            check(f"the pooled stream has it within {WHILE} s", False, error)
        slowest = max(slowest, time.time() - begun)
    connection.close()
    print(f"a stream behind PgBouncer has another relay's messages after {slowest:.1f} s at the most", flush=True)


def arrived(control):
    """Returns how often the sandbox accepted each push. A push has the badge of its last attempt, so its message identifies it."""
    since, pushes = 0, collections.Counter()
    while True:
        page = json.loads(ask("GET", f"{control}/notifications?since={since}&limit=1000")[1])
        if not page["notifications"]:
            return pushes
        pushes.update((each["token"], json.loads(each["payload"])["message_id"]) for each in page["notifications"]
                      if each["answer"] == "accepted")
        since = page["next"]


def check_rooms(server, clients):
    answered = collections.defaultdict(list)
    for room, text in (each for client in clients for each in client.answered):
        answered[room].append(text)
    check("there were messages in every room", len(answered) == ROOMS)
    histories = []
    for room in range(ROOMS):
        rows = server.rows(f"SELECT message_id, text FROM messages WHERE secret_code = 'room{room}' ORDER BY message_id")
        histories.append([(int(message), text) for message, text in (row.split("|") for row in rows)])
        texts, wanted = collections.Counter(text for _, text in histories[-1]), collections.Counter(answered[room])
        check(f"room {room} has each message once", texts == wanted, [wanted - texts, texts - wanted])
    return histories


def check_streams(streams, histories):
    for stream in streams:
        history = histories[stream.room]

        def first_difference():
            pairs = enumerate(zip(stream.seen, history))
            return next((place, had, wanted) for place, (had, wanted) in pairs if had != wanted) \
                if stream.seen[:len(history)] != history[:len(stream.seen)] else (len(stream.seen), len(history))
        until(f"{stream.name} is at the end of its room", lambda: stream.fault or stream.last == str(history[-1][0]), within=60,
              told=lambda: (stream.last, history[-1], stream.visits))
        check(f"{stream.name} has had each message of it once, in order", not stream.fault and stream.seen == history,
              stream.fault or first_difference())
        check(f"{stream.name} has followed it at {stream.visits} relays, one after another",
              stream.visits > 1 or not stream.leaves, stream.visits)


def note_unanswered(relays, doubts):
    """Finds in the logs pushes whose connection to the gateway ended without a response, as when a machine stalls for seconds."""
    for relay in relays:
        with open(path(relay.name + ".log"), errors="replace") as file:
            for number, line in enumerate(file):
                entries = re.search(r" entr(?:y|ies)=(\d+)(?:-(\d+))?", line)
                if "connection ended without a response, retrying" in line and entries:
                    for push in range(int(entries[1]), int(entries[2] or entries[1]) + 1):
                        doubts.reasons[str(push)].add(f"{relay.name}, line {number + 1}")


def check_pushes(server, control, relays, doubts, count):
    """Returns the number of pushes that arrived more than once."""
    states = server.rows("SELECT state, count(*) FROM push_queue GROUP BY state")
    check("every push was sent", states == [f"sent|{count}"], states)
    pushes = arrived(control)
    check("and has arrived", len(pushes) == count, [len(pushes), count])
    twice = {push: times for push, times in pushes.items() if times > 1}
    note_unanswered(relays, doubts)
    reasons = {}
    if doubts.reasons:
        for row in server.rows(
                "SELECT message_id, device_token, payload FROM push_queue"
                f" WHERE message_id = ANY ('{{{','.join(doubts.reasons)}}}')"):
            push, token, payload = row.split("|", 2)
            reasons[token, json.loads(payload)["message_id"]] = doubts.reasons[push]
    groundless = [(push, times, reasons.get(push)) for push, times in twice.items() if times - 1 > len(reasons.get(push, ()))]
    check("more than once came only what a relay had when it was killed or stopped, was open when the server was, or went unanswered",
          not groundless, (len(groundless), groundless[:5]))
    check("the leases of the relays were recorded", doubts.is_alive() and doubts.looks > ROUNDS)
    return len(twice)


def main():
    server = postgres_server.Server(path("server"), "jit=off")
    stop = threading.Event()
    try:
        start("sandbox", PUSHCHAT, "sandbox", "--free-ports", "--ready-file", path("sandbox.json"), "--directory", path("credentials"),
              "--inbox-limit", "1000000")
        pooled = server.pool()
        until("the sandbox runs", lambda: os.path.exists(path("sandbox.json")), told=lambda: log("sandbox"))
        with open(path("sandbox.json")) as file:
            sandbox = json.load(file)
        relays = [Relay(number, url, sandbox) for number, url in enumerate((server.url(), server.url(), pooled))]
        for relay in relays:
            until(f"{relay.name} is ready", relay.is_ready, told=lambda: log(relay.name))
        for room in range(ROOMS):
            for number in range(MEMBERS):
                made = ask("POST", sandbox["control"] + "/devices", b"{}", {"Content-Type": "application/json"})
                joined = ask("POST", chance.choice(relays).base + "/api.php", urllib.parse.urlencode({
                    "cmd": "join", "udid": member(room, number), "token": json.loads(made[1])["token"], "name": f"n{number}",
                    "code": f"room{room}"}).encode())
                check(f"member {number} joins room {room}", joined[0] == 200, joined)

        check_pooled(relays[0], relays[2])
        held, doubts, posting = Held(server), Doubts(server), threading.Event()
        streams = [Stream(number, relays, stop) for number in range(STREAMS)]
        clients = [Client(number, relays, posting) for number in range(CLIENTS)]
        for thread in (doubts, *streams, *clients):
            thread.start()
        disturb(relays, server, clients, doubts, held)
        posting.set()
        for client in clients:
            client.join(120)
        faults = [client.fault or client.number for client in clients if client.fault or client.is_alive()]
        check("every message was answered in the end", not faults, faults)
        until("every push has come to its end", lambda: server.rows(
            "SELECT count(*) FROM push_queue WHERE state = 'pending'") == ["0"],
            told=lambda: server.rows("SELECT lease_start, attempts, reason, count(*) FROM push_queue_due GROUP BY 1, 2, 3"))
        check("all that while transactions were held open", held.are_open())
        histories = check_rooms(server, clients)
        check_streams(streams, histories)
        total = sum(map(len, histories))
        twice = check_pushes(server, sandbox["control"], relays, doubts, total * (MEMBERS - 1))
        print(f"{total} messages, {ROUNDS} rounds, {sum(stream.visits for stream in streams)} visits of {STREAMS} streams, "
              f"{twice} of {total * (MEMBERS - 1)} pushes more than once, of {len(doubts.reasons)} that might", flush=True)
    finally:
        stop.set()
        for each in reversed(processes):
            if each.poll() is None:
                each.send_signal(signal.SIGCONT)
                each.kill()
                each.wait()
        server.end()


signal.signal(signal.SIGTERM, lambda *_: sys.exit("FAILED: ended"))
main()
