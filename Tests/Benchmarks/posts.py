"""Messages accepted per second, durable, in rooms of two, of a thousand and of a hundred thousand."""
import os, re, sqlite3, subprocess, tempfile, time

import bench

SECONDS = 3
CONNECTIONS = 64


def wrk(url, script, may_be_refused=False):
    """Requests per second, and how many were answered."""
    text = subprocess.run(
        ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "-s", script, url], check=True, capture_output=True,
        text=True).stdout
    if "Non-2xx" in text and not may_be_refused:
        raise SystemExit(f"{url}: not every answer was 200:\n{text}")
    return float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1)), int(re.search(r"(\d+) requests in", text).group(1))


def script(folder, name, body):
    path = f"{folder}/{name}.lua"
    with open(path, "w") as file:
        file.write(
            'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/x-www-form-urlencoded"\nlocal n = 0\n'
            f"function request()\n  n = n + 1\n  return wrk.format(nil, \"/api.php\", nil, {body})\nend\n")
    return path


def members(database, count, size):
    """Members in rooms of a size, each with a device, as joining leaves them."""
    rows = bench.rows(database)
    rows.execute("BEGIN")
    rows.execute(
        """WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ? - 1)
           INSERT INTO devices (app, device_token) SELECT 'default', printf('%064x', i) FROM n""", (count,))
    rows.execute(
        """WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ? - 1)
           INSERT INTO active_users (udid, device_token, nickname, secret_code)
           SELECT printf('%040d', i), printf('%064x', i), 'name' || i, 'room' || (i / ?) FROM n""", (count, size))
    rows.execute("COMMIT")
    return rows


def measure_room(size):
    """Posts per second of 64 writers in rooms of a size. What is queued for the others stays in the queue."""
    with tempfile.TemporaryDirectory() as folder:
        relay, port, database = bench.start_configured(folder, None)
        url = f"http://127.0.0.1:{port}/api.php"
        try:
            rows = members(database, max(CONNECTIONS, size), size)
            form = script(folder, "form", '"cmd=message&text=message+number+" .. n')
            post = script(
                folder, "post",
                f'string.format("cmd=message&udid=%040d&text=message+number+%d", n % {CONNECTIONS}, n)')
            # Without a udid it is read like any other, and refused before anybody looks into the database.
            limit, _ = wrk(url, form, may_be_refused=True)
            posts, answered = wrk(url, post)
            stored = rows.execute("SELECT count(*) FROM messages").fetchone()[0]
            # Those under way when the time is over are stored, too.
            bench.oracle(
                answered <= stored <= answered + CONNECTIONS, f"{answered} posts were accepted, {stored} are stored")
            if size == 2:
                queued = rows.execute("SELECT count(*) FROM push_queue").fetchone()[0]
                bench.oracle(queued == stored, f"{stored} messages, {queued} pushes in rooms of two")
            return posts, limit
        finally:
            bench.kill(relay)


def sqlite_alone(rows_each):
    """Rows per second that SQLite takes by itself, from C as fast as Python hands them over; each commit on the disk."""
    with tempfile.TemporaryDirectory() as folder:
        database = sqlite3.connect(os.path.join(folder, "limit.db"), isolation_level=None)
        database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t (x TEXT)")
        count, begin = 0, time.time()
        while time.time() - begin < 1:
            database.execute("BEGIN")
            database.executemany("INSERT INTO t VALUES (?)", [("x" * 200,)] * rows_each)
            database.execute("COMMIT")
            count += rows_each
        return count / (time.time() - begin)


def sqlite_bulk_update(count=100_000):
    """Rows per second that SQLite changes by one statement with one commit; the changed column has an index."""
    with tempfile.TemporaryDirectory() as folder:
        database = sqlite3.connect(os.path.join(folder, "limit.db"), isolation_level=None)
        database.executescript(
            f"""PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;
               CREATE TABLE t (id INTEGER PRIMARY KEY, state INTEGER NOT NULL);
               WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
               INSERT INTO t SELECT i, 0 FROM n;
               CREATE INDEX t_state ON t (state)""")
        begin = time.time()
        changed = database.execute("UPDATE t SET state = 1").rowcount
        return changed / (time.time() - begin)


def measure():
    print("posts", flush=True)
    sizes = (2, 1_000, 100_000)
    found = {size: [] for size in sizes}
    for _ in range(bench.RUNS):
        for size in sizes:
            found[size].append(measure_room(size))
    small = [posts for posts, _ in found[2]]
    bench.row("messages accepted, rooms of 2", small, "/s", [limit for _, limit in found[2]], "forms read and refused", "0.6")
    for size in sizes[1:]:
        bench.row(f"messages accepted, a room of {size:,}", [posts for posts, _ in found[size]], "/s", small, "rooms of 2", "0.8")
    for each in (1, 1_000):
        bench.row(f"for comparison: SQLite alone, {each:,} rows a commit", [sqlite_alone(each) for _ in range(bench.RUNS)], "/s")
    bench.row("for comparison: SQLite alone, bulk update", [sqlite_bulk_update() for _ in range(bench.RUNS)], "/s")
