#!/usr/bin/env python3
"""A SQLite file moves into PostgreSQL and back, and each move is killed, stopped, and run again.

Usage: migrate.py PUSHCHAT FOLDER PUSHES
PostgreSQL is that of `make test-packages`. Prints a line for each thing that holds, and how long a move took; ends with status 1 at the
first that does not.
"""
import contextlib, glob, json, os, signal, sqlite3, subprocess, sys, time

from checks import check, until

PUSHCHAT, FOLDER, PUSHES = sys.argv[1], os.path.abspath(sys.argv[2]), int(sys.argv[3])
UNPACKED = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".build", "test-postgres"))
LIBRARIES = ":".join(glob.glob(UNPACKED + "/usr/lib/*-linux-gnu") + glob.glob(UNPACKED + "/lib/*-linux-gnu"))
PROGRAMS, = glob.glob(UNPACKED + "/usr/lib/postgresql/*/bin")
ENVIRONMENT = {**os.environ, "LD_LIBRARY_PATH": LIBRARIES}


def path(name):
    return os.path.join(FOLDER, name)


@contextlib.contextmanager
def server():
    """It refuses to run as root."""
    user = []
    os.makedirs(path("server"))
    if os.geteuid() == 0:
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        os.chown(path("server"), 65534, 65534)
        if subprocess.run([*user, "test", "-x", PROGRAMS + "/postgres", "-a", "-w", path("server")]).returncode:
            user = ["unshare", "--user"]
            os.chown(path("server"), 0, 0)
    subprocess.run(
        [*user, PROGRAMS + "/initdb", "-D", path("server/data"), "-U", "postgres", "--auth=trust", "--no-sync", "--locale=C",
         "--encoding=UTF8"], env=ENVIRONMENT, check=True, capture_output=True, cwd=path("server"))
    with open(path("postgres.log"), "w") as output:
        process = subprocess.Popen(
            [*user, PROGRAMS + "/postgres", "-D", path("server/data"), "-k", path("server"), "-c", "listen_addresses=",
             "-c", "jit=off"], env=ENVIRONMENT, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=path("server"))
    try:
        until("PostgreSQL runs", lambda: value("SELECT 1") == "1")
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def value(sql):
    return subprocess.run(
        [PROGRAMS + "/psql", "-h", path("server"), "-U", "postgres", "-AtX", "-c", sql], env=ENVIRONMENT, check=True,
        capture_output=True, text=True, timeout=300).stdout.strip()


class Move:
    """A `pushchat migrate` that runs."""

    def __init__(self, *arguments):
        self.begun = time.monotonic()
        self.output, self.errors = open(path("output"), "w+"), open(path("errors"), "w+")
        self.process = subprocess.Popen(
            [PUSHCHAT, "migrate", *arguments], stdout=self.output, stderr=self.errors, stdin=subprocess.DEVNULL)

    def ended(self):
        """Its status, what it printed, what it noted, seconds, and megabytes of memory."""
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        for file in (self.output, self.errors):
            file.seek(0)
        return (self.process.returncode, self.output.read(), self.errors.read(), time.monotonic() - self.begun,
                used.ru_maxrss / 1024)


def fill(file):
    """Pushes of all states, over some days, and a message for every ten."""
    subprocess.run([PUSHCHAT, "token", "list", "--database", file], check=True, capture_output=True)
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        db.execute("PRAGMA foreign_keys = ON")
        db.execute(
            """
            WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
            INSERT INTO active_users (udid, device_token, nickname, secret_code)
            SELECT printf('%040x', i), printf('%064x', i), 'name ' || i, 'room ' || (i % 7) FROM n
            """)
        db.execute(
            """
            WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
            INSERT INTO messages (secret_code, udid, nickname, text)
            SELECT 'room ' || (i % 7), printf('%040x', i % 100 + 1), 'name', 'message ' || i || char(9, 10, 92) || 'é' FROM n
            """, [max(1, PUSHES // 10)])
        db.execute(
            """
            WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?),
            rows AS (SELECT i, iif(i % 20 = 0, 'pending', iif(i % 7 = 0, 'failed', 'sent')) AS state,
                strftime('%Y-%m-%d %H:%M:%f', 1777000000 + i % 600000, 'unixepoch') AS time FROM n)
            INSERT INTO push_queue (device_token, payload, state, time_sent, time_settled, reason, chat_message, member)
            SELECT printf('%064x', i % 100 + 1), json_object('aps', json_object('alert', 'name: message number ' || i, 'sound', 'default')),
                state, iif(state = 'sent', time, NULL), iif(state = 'pending', NULL, time), iif(state = 'failed', 'BadTopic', NULL),
                1 + i / 10 % ?, i % 100 + 1 FROM rows
            """, [PUSHES, max(1, PUSHES // 10)])


def moved(what, *arguments):
    """Runs to its end."""
    status, output, errors, seconds, memory = Move("--json", *arguments).ended()
    check(what, status == 0, errors)
    print(f"{what}: {seconds:.1f} s, {memory:.0f} MB", flush=True)
    return json.loads(output)["tables"], errors


def main():
    file, back, url = path("pushchat.db"), path("back.db"), path("url")
    with open(url, "w") as text:
        text.write(f"postgresql:///postgres?host={path('server')}&user=postgres\n")
    fill(file)
    is_untouched = lambda: value("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace") == "0"
    is_copying = lambda: int(value("SELECT coalesce(max(tuples_processed), 0) FROM pg_stat_progress_copy")) > PUSHES // 4
    is_written = lambda: os.path.getsize(back + ".migrating") > PUSHES * 40

    for number, end in [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 1)]:
        move = Move(file, "@" + url)
        until(f"it is in the middle of the way there, {number.name}", is_copying)
        move.process.send_signal(number)
        status, _, errors, *_ = move.ended()
        check("it has ended", status == end and (end < 0 or "it was stopped; nothing was kept" in errors), f"{status} {errors}")
        until("nothing of it is there", is_untouched)
    there, _ = moved("the way there", file, "@" + url)
    check("all rows", {table["table"]: table["rows"] for table in there}["push_queue"] == PUSHES, str(there))
    status, _, errors, *_ = Move(file, "@" + url).ended()
    check("not a second time", status == 1 and "is not empty" in errors, errors)

    for number, end in [(signal.SIGINT, 1), (signal.SIGKILL, -signal.SIGKILL)]:
        move = Move("@" + url, back)
        until(f"it is in the middle of the way back, {number.name}", is_written)
        move.process.send_signal(number)
        status, _, errors, *_ = move.ended()
        check("it has ended", status == end and (end < 0 or "it was stopped; nothing was kept" in errors), f"{status} {errors}")
        check("there is no database", not os.path.exists(back) or os.path.getsize(back) == 0)
    again, errors = moved("the way back", "@" + url, back)
    check("it says that one was ended", "was ended in the middle: it begins anew" in errors, errors)
    check("every table has the same hash there and back", again == there, f"{again} {there}")
    with contextlib.closing(sqlite3.connect(back)) as db:
        check("the file is whole", db.execute("PRAGMA integrity_check").fetchall() == [("ok",)])
        db.execute("ATTACH ? AS first", [file])
        differences = db.execute(
            "SELECT count(*) FROM (SELECT * FROM push_queue EXCEPT SELECT * FROM first.push_queue)").fetchone()
        check("the rows are those of the first file", differences == (0,), str(differences))


os.makedirs(FOLDER, exist_ok=True)
with server():
    main()
