#!/usr/bin/env python3
"""Moves a SQLite file into PostgreSQL and back. Kills, stops and repeats each move.

Usage: migrate.py PUSHCHAT FOLDER PUSHES
Uses the PostgreSQL of `make setup`. Prints a line for each check that passed, and the time of a move. Ends with status 1 at
the first check that failed.
"""
import contextlib, json, os, signal, sqlite3, subprocess, sys, time

import postgres_server
from checks import check, until

PUSHCHAT, FOLDER, PUSHES = sys.argv[1], os.path.abspath(sys.argv[2]), int(sys.argv[3])


def path(name):
    return os.path.join(FOLDER, name)


class Move:
    """A running `pushchat migrate`."""

    def __init__(self, *arguments):
        self.begun = time.monotonic()
        self.output, self.errors = open(path("output"), "w+"), open(path("errors"), "w+")
        self.process = subprocess.Popen(
            [PUSHCHAT, "migrate", *arguments], stdout=self.output, stderr=self.errors, stdin=subprocess.DEVNULL)

    def ended(self):
        """Returns the status, standard output, standard error, seconds, and megabytes of memory."""
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        for file in (self.output, self.errors):
            file.seek(0)
        return (self.process.returncode, self.output.read(), self.errors.read(), time.monotonic() - self.begun,
                used.ru_maxrss / 1024)


def fill(file):
    """Inserts pushes of all states over some days, and a message for every ten."""
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
    """Runs a move to its end."""
    status, output, errors, seconds, memory = Move("--json", *arguments).ended()
    check(what, status == 0, errors)
    print(f"{what}: {seconds:.1f} s, {memory:.0f} MB", flush=True)
    return json.loads(output)["tables"], errors


def main(server):
    file, back, url = path("pushchat.db"), path("back.db"), path("url")
    with open(url, "w") as text:
        text.write(server.url() + "\n")
    fill(file)

    def value(sql):
        return int(server.rows(sql)[0])

    def is_untouched():
        return value("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace") == 0

    def is_copying():
        return value("SELECT coalesce(max(tuples_processed), 0) FROM pg_stat_progress_copy") > min(PUSHES // 4, 20_000)

    def end(move, number):
        """Ends a move by a signal, and waits until the server stops copying, which would look like the next move's copying."""
        move.process.send_signal(number)
        status, _, errors, *_ = move.ended()
        if number == signal.SIGKILL:
            check("it was killed", status == -number, f"{status} {errors}")
        else:
            check("it has ended and says so", status == 1 and "it was stopped; nothing was kept" in errors, f"{status} {errors}")
        until("the server copies no more", lambda: value("SELECT count(*) FROM pg_stat_progress_copy") == 0)

    for number in (signal.SIGKILL, signal.SIGINT):
        move = Move(file, "@" + url)
        until("it is in the middle of the way there", is_copying)
        end(move, number)
        until("no part of it is in the database", is_untouched)
    there, _ = moved("the way there", file, "@" + url)
    check("all rows", {table["table"]: table["rows"] for table in there}["push_queue"] == PUSHES, str(there))
    status, _, errors, *_ = Move(file, "@" + url).ended()
    check("not a second time", status == 1 and "is not empty" in errors, errors)

    for number in (signal.SIGINT, signal.SIGKILL):
        move = Move("@" + url, back)
        until("it is in the middle of the way back", is_copying)
        end(move, number)
        check("there is no database", not os.path.exists(back) or os.path.getsize(back) == 0)
    again, errors = moved("the way back", "@" + url, back)
    check("it says that one was ended", "was interrupted: starting again" in errors, errors)
    check("every table has the same hash there and back", again == there, f"{again} {there}")
    with contextlib.closing(sqlite3.connect(back)) as db:
        check("the file is whole", db.execute("PRAGMA integrity_check").fetchall() == [("ok",)])
        db.execute("ATTACH ? AS first", [file])
        differences = db.execute(
            "SELECT count(*) FROM (SELECT * FROM push_queue EXCEPT SELECT * FROM first.push_queue)").fetchone()
        check("the rows are those of the first file", differences == (0,), str(differences))
    pooled, _ = moved("the way back through PgBouncer", server.pool(), path("pooled.db"))
    check("the same through PgBouncer", pooled == there, f"{pooled} {there}")


os.makedirs(FOLDER, exist_ok=True)
server = postgres_server.Server(path("server"), "jit=off")
try:
    main(server)
finally:
    server.end()
