#!/usr/bin/env python3
"""Three relays on one PostgreSQL, one of them through PgBouncer: relays and server are killed while clients post.

Usage: postgres_relays.py PUSHCHAT FOLDER SECONDS SEED
PostgreSQL and PgBouncer are those of `make test-packages`. Each message is repeated with its key until it is answered. At the end every
one stands in its room once, and every push has reached the sandbox. With 60 seconds or more, relays are stopped and woken again, too.
Prints a line for each thing that holds; ends with status 1 at the first that does not.
"""
import collections, glob, http.client, json, os, random, signal, subprocess, sys, threading, time, urllib.error, urllib.parse, urllib.request

from checks import check, free_port, until

PUSHCHAT, FOLDER, SECONDS, SEED = sys.argv[1], os.path.abspath(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
UNPACKED = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".build", "test-postgres"))
LIBRARIES = ":".join(glob.glob(UNPACKED + "/usr/lib/*-linux-gnu") + glob.glob(UNPACKED + "/lib/*-linux-gnu"))
ROOMS, MEMBERS, CLIENTS = 4, 4, 6
# Longer than a relay may be silent (docs/postgresql.md).
SILENCE = 20
chance = random.Random(SEED)
processes = []


def path(name):
    return os.path.join(FOLDER, name)


def write(name, text):
    with open(path(name), "w") as file:
        file.write(text)
    return path(name)


def log(name):
    with open(path(name + ".log"), errors="replace") as file:
        return file.read()[-2000:]


def start(name, *command, **more):
    with open(path(name + ".log"), "a") as output:
        processes.append(subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=FOLDER, **more))
    return processes[-1]


def ask(method, url, body=None, headers={}):
    """Status and text; 0 where there is no answer."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)


class Server:
    """PostgreSQL, and PgBouncer before it. Both refuse to run as root."""

    def __init__(self):
        self.programs, = glob.glob(UNPACKED + "/usr/lib/postgresql/*/bin")
        self.process = None
        self.environment = {**os.environ, "LD_LIBRARY_PATH": LIBRARIES}
        self.user = []
        if os.geteuid() == 0:
            self.user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            os.makedirs(path("server"))
            os.chown(path("server"), 65534, 65534)
            if subprocess.run([*self.user, "test", "-x", self.programs + "/postgres", "-a", "-w", path("server")]).returncode:
                self.user = ["unshare", "--user"]
                os.chown(path("server"), 0, 0)
        os.makedirs(path("server"), exist_ok=True)
        self.run("initdb", "-D", path("server/data"), "-U", "postgres", "--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8")
        self.start()
        self.port = free_port()
        configuration = write("pgbouncer.ini", f"""
[databases]
postgres = host={path("server")} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
""")
        os.chmod(configuration, 0o644)
        start("pgbouncer", *self.user, UNPACKED + "/usr/sbin/pgbouncer", configuration, env=self.environment)
        until("PgBouncer listens", lambda: "process up" in log("pgbouncer"), told=lambda: log("pgbouncer"))

    def run(self, program, *arguments):
        ran = subprocess.run(
            [*self.user, os.path.join(self.programs, program), *arguments], env=self.environment, capture_output=True, text=True,
            timeout=120, cwd=path("server"))
        if ran.returncode:
            raise SystemExit(f"FAILED {program}: {ran.stdout[-1000:]} {ran.stderr[-1000:]}")
        return ran.stdout

    def start(self):
        """What a killed server has left may take a moment to go."""
        def runs():
            if not self.process or self.process.poll() is not None:
                self.process = start(
                    "postgres", *self.user, self.programs + "/postgres", "-D", path("server/data"), "-k", path("server"),
                    "-c", "listen_addresses=", "-c", "jit=off", "-c", "max_connections=100", env=self.environment)
            return subprocess.run(
                [self.programs + "/psql", "-h", path("server"), "-U", "postgres", "-c", "SELECT 1"], env=self.environment,
                capture_output=True, timeout=30).returncode == 0
        until("PostgreSQL runs", runs, told=lambda: log("postgres"))

    def kill(self):
        self.process.kill()
        self.process.wait()

    def rows(self, sql):
        return [line for line in self.run("psql", "-h", path("server"), "-U", "postgres", "-AtX", "-c", sql).split("\n") if line]


class Relay:
    def __init__(self, number, url, sandbox):
        self.name, self.port = f"relay{number}", free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        # JSON is YAML.
        self.configuration = write(self.name + ".yaml", json.dumps({
            "http": {"host": "127.0.0.1", "port": self.port, "rate_per_address": "off", "rate_per_member": "off"},
            "database": {"url": url, "path": path(self.name + ".db")},
            "apps": {"default": {
                "gateway": "http2", "host": "localhost", "port": sandbox["ports"]["http2"], "certificate": sandbox["certificate"],
                "topic": sandbox["topic"], "trust": sandbox["authority"]}}}))
        os.chmod(self.configuration, 0o600)
        self.start()

    def start(self):
        self.process = start(self.name, PUSHCHAT, "serve", "--config", self.configuration)

    def is_ready(self):
        return ask("GET", self.base + "/readyz")[0] == 200

    def kill(self):
        self.process.kill()
        self.process.wait()


def member(room, number):
    return f"{room * 100 + number:040x}"


def post(relays, client, stop, answered, refused):
    """Messages, each repeated until some relay has answered it."""
    chance, number = random.Random(SEED + client), 0
    while not stop.is_set():
        room, number = chance.randrange(ROOMS), number + 1
        text = f"{client}:{number}"
        body = urllib.parse.urlencode({
            "cmd": "message", "udid": member(room, chance.randrange(MEMBERS)), "text": text}).encode()
        while True:
            status, said = ask("POST", chance.choice(relays).base + "/api.php", body, {"Idempotency-Key": text})
            if status == 200:
                answered[room].append(text)
                break
            if status not in (0, 503):
                refused.append((text, status, said))
                return
            time.sleep(0.1)


def disturb(relays, server):
    """One after another is killed and started again, for so long as is asked."""
    end, killed = time.monotonic() + SECONDS, collections.Counter()
    kinds = ["relay", "server", "relay"] + (["stop"] if SECONDS >= 60 else [])
    while time.monotonic() < end:
        for kind in kinds:
            time.sleep(chance.uniform(2, 4))
            victim = chance.choice(relays)
            killed[kind] += 1
            if kind == "server":
                server.kill()
                time.sleep(chance.uniform(0, 2))
                server.start()
            elif kind == "stop":
                victim.process.send_signal(signal.SIGSTOP)
                time.sleep(SILENCE)
                victim.process.send_signal(signal.SIGCONT)
            else:
                victim.kill()
                time.sleep(chance.uniform(0, 2))
                victim.start()
    return killed


def arrived(control):
    """How often the sandbox took each push."""
    since, pushes = 0, collections.Counter()
    while True:
        page = json.loads(ask("GET", f"{control}/notifications?since={since}&limit=1000")[1])
        if not page["notifications"]:
            return pushes
        pushes.update((each["token"], each["payload"]) for each in page["notifications"] if each["answer"] == "accepted")
        since = page["next"]


def main():
    server = Server()
    start("sandbox", PUSHCHAT, "sandbox", "--free-ports", "--ready-file", path("sandbox.json"), "--directory", path("credentials"))
    until("the sandbox runs", lambda: os.path.exists(path("sandbox.json")), told=lambda: log("sandbox"))
    with open(path("sandbox.json")) as file:
        sandbox = json.load(file)
    direct = "postgres:///postgres?user=postgres&host=" + urllib.parse.quote(path("server"), safe="")
    pooled = f"postgres://postgres@127.0.0.1:{server.port}/postgres"
    relays = [Relay(number, url, sandbox) for number, url in enumerate((direct, direct, pooled))]
    for relay in relays:
        until(f"{relay.name} is ready", relay.is_ready, told=lambda: log(relay.name))
    for room in range(ROOMS):
        for number in range(MEMBERS):
            token = json.loads(ask("POST", sandbox["control"] + "/devices", b"{}", {"Content-Type": "application/json"})[1])["token"]
            joined = ask("POST", chance.choice(relays).base + "/api.php", urllib.parse.urlencode({
                "cmd": "join", "udid": member(room, number), "token": token, "name": f"n{number}", "code": f"room{room}"}).encode())
            check(f"member {number} joins room {room}", joined[0] == 200, joined)

    stop, answered, refused = threading.Event(), collections.defaultdict(list), []
    clients = [threading.Thread(target=post, args=(relays, number, stop, answered, refused)) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    killed = disturb(relays, server)
    stop.set()
    for client in clients:
        client.join(120)
    check("every message was answered in the end", not any(client.is_alive() for client in clients) and not refused, refused)
    total = sum(map(len, answered.values()))
    check("there were messages in every room", len(answered) == ROOMS and total > CLIENTS)
    until("every push has come to its end", lambda: server.rows(
        "SELECT count(*) FROM push_queue WHERE state = 'pending'") == ["0"], within=300,
        told=lambda: server.rows("SELECT lease_start, attempts, reason, count(*) FROM push_queue_due GROUP BY 1, 2, 3"))
    for room in range(ROOMS):
        texts = server.rows(f"SELECT text FROM messages WHERE secret_code = 'room{room}'")
        check(f"room {room} has each message once", sorted(texts) == sorted(answered[room]),
              [collections.Counter(answered[room]) - collections.Counter(texts), collections.Counter(texts) - collections.Counter(answered[room])])
    states = server.rows("SELECT state, count(*) FROM push_queue GROUP BY state")
    check("every push was sent", states == [f"sent|{total * (MEMBERS - 1)}"], states)
    pushes = arrived(sandbox["control"])
    check("and has arrived", len(pushes) == total * (MEMBERS - 1), [len(pushes), total])
    print(f"{total} messages, {dict(killed)}, {sum(pushes.values()) - len(pushes)} of {len(pushes)} pushes more than once", flush=True)


signal.signal(signal.SIGTERM, lambda *_: sys.exit("FAILED: ended"))
try:
    main()
finally:
    for each in reversed(processes):
        if each.poll() is None:
            each.send_signal(signal.SIGCONT)
            each.kill()
            each.wait()
