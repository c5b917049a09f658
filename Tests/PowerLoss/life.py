"""Lives of a relay in a recorded folder, with the sandbox as its gateway."""
import atexit, collections, concurrent.futures, copy, datetime, fcntl, glob, json, os, re, sqlite3, subprocess, sys, time, urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../Clients"))
from checks import until
from disk import Disk, events
from relay import Relay

SCHEMA = os.path.join(HERE, "../TestStores/Schemas/schema-3.sql")
# Rooms with their numbers of members. The pushes of a large room follow after the response.
ROOMS = {"pair": 2, "small": 4, "large": 14}
POSTERS = 6
# The sandbox's times are whole milliseconds.
PRECISION = 2_000_000


def udid(room, number):
    return f"{list(ROOMS).index(room) * 100 + number + 1:040x}"


def is_whole(path):
    """Whether a file is replaced as a whole. A database is not. A draft does not count, nor does a lock."""
    name = os.path.basename(path)
    return not re.search(r"^\.|\.lock$|^pushchat\.db(\.replaced-\d+)?(-wal|-journal)?$|\.(part|restoring|migrating)(-\w+)?$", name)


def started(relay):
    relay.start()
    # It does not outlive this script.
    atexit.register(lambda process=relay.process: process.poll() is None and process.kill())
    return relay


def ended(process, within=60):
    process.terminate()
    if status := process.wait(within):
        raise SystemExit(f"FAILED the relay ends with status {status}")


class Gateway:
    """A sandbox, recorded as well."""

    def __init__(self, life):
        ready = f"{life.folder}/ready.json"
        with open(f"{life.folder}/sandbox.log", "w") as log:
            # The sandbox creates the folder.
            self.process = subprocess.Popen(
                [*life.recorded, "sandbox", "--free-ports", "--ready-file", ready, "--end-with-parent",
                 "--directory", f"{life.data}/new/sandbox"],
                stdout=log, stderr=log)
        until("the sandbox listens", lambda: os.path.exists(ready))
        with open(ready) as file:
            self.ready = json.load(file)
        for name in ("authority", "certificate", "key", "service_account"):
            life.confirm("file", self.ready[name])
        self.next = 0

    def arrivals(self):
        """Returns the new accepted pushes, as a device's token and a message's id, with the times of their arrivals."""
        found, wall = collections.defaultdict(list), time.time_ns() - time.monotonic_ns()
        while True:
            page = f"{self.ready['control']}/notifications?since={self.next}&limit=1000"
            with urllib.request.urlopen(page, timeout=60) as answer:
                page = json.load(answer)
            if not page["notifications"]:
                return found
            for each in page["notifications"]:
                if each["answer"] == "accepted":
                    at = datetime.datetime.fromisoformat(each["received_at"].replace("Z", "+00:00"))
                    push = each["token"], json.loads(each["payload"])["message_id"]
                    found[push].append(int(at.timestamp() * 1000) * 1_000_000 - wall)
            self.next = page["next"]

    def configuration(self, folder, token):
        """Writes the configuration of a relay. JSON is YAML."""
        file = f"{folder}/relay.yaml"
        with open(file, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as output:
            json.dump({
                "http": {"host": "127.0.0.1", "rate_per_address": "off", "rate_per_member": "off"},
                "admin": {"token_file": token} if token else {},
                "apps": {"default": {
                    "gateway": "http2", "host": "localhost", "port": self.ready["ports"]["http2"],
                    "certificate": self.ready["certificate"], "topic": self.ready["topic"], "trust": self.ready["authority"]}},
            }, output)
        return file


class Life:
    """A folder whose files are recorded. `facts` are the confirmed facts, with the times of their confirmations."""

    def __init__(self, pushchat, recorder, folder, leave_out=""):
        self.folder, self.data, self.record = folder, f"{folder}/data", f"{folder}/record"
        os.makedirs(self.data)
        self.database, self.facts, self.arrivals = f"{self.data}/pushchat.db", [], {}
        self.has_relay = self.is_upgrade = False
        self.recorded = [
            "env", f"LD_PRELOAD={recorder}", f"POWERLOSS_FOLDER={self.data}", f"POWERLOSS_RECORD={self.record}",
            f"POWERLOSS_LEAVE_OUT={leave_out}", f"XDG_STATE_HOME={self.data}/state", pushchat]
        self.start()

    def start(self):
        self.first_disk = Disk(self.data, is_whole)

    def disk(self):
        """Returns the disk at the beginning."""
        return copy.deepcopy(self.first_disk)

    def confirm(self, kind, fact):
        self.facts.append((time.monotonic_ns(), kind, fact))

    def run(self, *command, text=None, files=()):
        """Runs a command whose success confirms the files, given by patterns."""
        result = subprocess.run([*self.recorded, *command], input=text, capture_output=True, text=True, timeout=120)
        if result.returncode:
            raise SystemExit(f"FAILED {command}: {result.stdout}{result.stderr}")
        end = time.monotonic_ns()
        found = [sorted(glob.glob(f"{self.data}/{pattern}"))[-1:] for pattern in files]
        if [] in found:
            raise SystemExit(f"FAILED {command} made no {files}")
        self.facts += [(end, "file", file) for [file] in found]

    def relay(self, configuration):
        self.has_relay = True
        relay = Relay([*self.recorded, "serve", "--config", configuration, "--database", self.database], log=f"{self.folder}/log")
        return started(relay)

    def has_arrived(self, push, moment):
        return any(time < moment + PRECISION for time in self.arrivals.get(push, ()))

    def kill(self, relay):
        # The recorder's lock, so that no thread dies between a change and its record.
        with open(self.record) as record:
            fcntl.flock(record, fcntl.LOCK_EX)
            relay.kill()
        self.compare()

    def compare(self):
        """Compares the files with the record, while no program changes them."""
        disk = self.disk()
        for event in events(self.record):
            disk.play(event)
        if found := disk.differences():
            raise SystemExit(f"FAILED changes escaped the record: {found}")

    # MARK: What a relay lives through

    def join(self, relay):
        for room, count in ROOMS.items():
            for number in range(count):
                member = udid(room, number)
                relay.chat("join", member, token=f"{int(member, 16):064x}", name=f"n{number}", code=room)
                self.confirm("member", member)

    def post(self, relay, poster, count, name):
        for number in range(count):
            room, text = list(ROOMS)[(poster + number) % len(ROOMS)], f"{name} {poster} {number}"
            relay.chat("message", udid(room, number % 2), text=text)
            self.confirm("message", text)

    def post_all(self, relay, count, name, meanwhile=lambda: None):
        with concurrent.futures.ThreadPoolExecutor(POSTERS) as pool:
            posts = [pool.submit(self.post, relay, poster, count, name) for poster in range(POSTERS)]
            meanwhile()
            for each in posts:
                each.result()

    def maintain(self, relay, configuration):
        """Commands that write files, while the relay serves."""
        options = "--config", configuration, "--database", self.database
        self.run("backup", *options, f"{self.data}/copy.db", files=["copy.db", "copy.db.sha256"])
        self.run("chat", "pair", "--name", "terminal", "--relay", relay.base, text="typed\n", files=["state/pushchat/*"])
        self.confirm("message", "typed")
        self.run("reload", *options)
        for _ in range(3):
            self.run("backup", *options, "--keep", "2", "--verify", f"{self.data}/copies", files=["copies/*.db", "copies/*.sha256"])
            time.sleep(1)

    def live(self, gateway, posts, is_brief=False):
        os.makedirs(f"{self.data}/copies")
        self.start()
        self.run(
            "init", f"{self.data}/pushchat.yaml", "--public-url", "https://chat.example.org", "--contact", "mailto:me@example.org",
            "--yes", files=["pushchat.yaml", "admin.token"])
        configuration = gateway.configuration(self.folder, f"{self.data}/admin.token")
        relay = self.relay(configuration)
        with open(f"{self.data}/admin.token") as file:
            relay.rights = {"Authorization": f"Bearer {file.read().strip()}"}
        self.join(relay)
        relay.token("program", "post")
        self.confirm("token", "program")
        relay.ask("GET", "/webpush/key")
        self.confirm("key", None)
        self.post_all(relay, posts, "first", lambda: None if is_brief else self.maintain(relay, configuration))
        settle(self.database)
        self.kill(relay)
        if not is_brief:
            started(relay)
            self.post_all(relay, posts // 4, "second")
            # The log of the database remains.
            self.kill(relay)
            self.run("restore", "--config", configuration, "--database", self.database, f"{self.data}/copy.db")
            self.confirm("restored", None)
            started(relay)
            self.post_all(relay, posts // 4, "third")
            settle(self.database)
            ended(relay.process)
            self.compare()
        self.arrivals = gateway.arrivals()

    def upgrade(self, gateway):
        """A relay upgrades the database of an early release."""
        self.is_upgrade = True
        with open(SCHEMA) as file, sqlite3.connect(self.database) as database:
            database.executescript(file.read())
            database.execute("INSERT INTO active_users (udid, nickname, secret_code, ip_address) VALUES (?, 'n', 'old', '::')", ["0" * 40])
            for number in range(50):
                database.execute(
                    "INSERT INTO messages (secret_code, udid, nickname, text) VALUES ('old', ?, 'n', ?)", ["0" * 40, f"old {number}"])
                self.facts.append((0, "message", f"old {number}"))
            database.executescript("PRAGMA application_id = 0x50436874; PRAGMA user_version = 3")
        database.close()
        self.start()
        relay = self.relay(gateway.configuration(self.folder, None))
        self.join(relay)
        self.post_all(relay, 4, "new")
        ended(relay.process)
        self.compare()
        self.arrivals = gateway.arrivals()


def settle(file):
    """Waits until each push in a database has its outcome."""
    database, end = sqlite3.connect(f"file:{file}?mode=ro", uri=True), time.time() + 120
    while database.execute("""
            SELECT EXISTS (SELECT * FROM push_queue WHERE state = 'pending')
                OR EXISTS (SELECT * FROM messages WHERE fanout_after IS NOT NULL)""").fetchone()[0]:
        if time.time() > end:
            raise SystemExit(f"FAILED some pushes in {file} get no outcome")
        time.sleep(0.05)
    database.close()
