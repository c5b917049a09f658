"""The rates at which the relay accepts and delivers messages in rooms of several sizes, and the latency at half the load."""
import contextlib, dataclasses, http.client, os, sqlite3, statistics, subprocess, tempfile, time

import bench, drain, gateways

SECONDS = bench.scaled(3, 1)
SIZES = (2, 10, 100, 1_000)
# Larger rooms have fewer runs, because their pushes take long.
LARGE, LARGE_RUNS = 100, min(bench.RUNS, 3)
# Limits the length of a run. The pushes of three seconds of posts to a room of 1,000 would take minutes.
MOST_PUSHES = bench.scaled(1_000_000, 100_000)
CONNECTIONS = 64
# More forms than any server can process in the time.
MOST_FORMS = 1_000_000
# The folder in which the bare handler is built. `make clean` removes it.
SCRATCH = os.path.join(bench.ROOT, ".build-release", "limit")


@dataclasses.dataclass
class Load:
    """The result of the poster."""
    answered: int
    accepted: int
    seconds: float  # from the first post to the last response
    begun: dict  # the time of each post in nanoseconds, by the message's number
    latencies: list  # milliseconds from each post to its response, sorted

    @property
    def rate(self):
        return self.answered / self.seconds


@dataclasses.dataclass
class Delivery:
    """The result of one run in rooms of one size."""
    messages: int
    pushes: int
    accepted: float  # messages per second, until the last response
    delivered: float  # messages per second, until the gateway has the last push and the relay has recorded its outcome
    pushed: float  # pushes per second, until the same moment
    cpu: float  # the relay's CPU seconds
    twice: int
    answers: list  # milliseconds from each post to its response, sorted
    arrivals: list  # milliseconds from each post to the first arrival of a push at the gateway, sorted


@dataclasses.dataclass
class Limit:
    """The result of a server that stores nothing."""
    rate: float  # forms per second
    cpu: float  # CPU microseconds per form


def post(folder, port, members, seconds=SECONDS, most=MOST_FORMS, rate=0):
    """Posts over all connections. The members take turns. With `members` 0, the forms have no udid.

    `rate` is in posts per second. With 0, each connection posts again as soon as it has its response.
    """
    poster = bench.compile_c(folder, "Tests/Benchmarks/poster.c")
    path = folder + "/posts"
    printed = subprocess.run(
        [poster, *map(str, (port, members, seconds, most, rate, path))], check=True, capture_output=True, text=True).stdout
    answered, accepted, took = printed.split()
    with open(path) as file:
        times = {number: (begun, end) for number, begun, end in (map(int, line.split()) for line in file)}
    return Load(
        int(answered), int(accepted), float(took), {number: begun for number, (begun, _) in times.items()},
        sorted((end - begun) / 1e6 for begun, end in times.values()))


def post_one(port, text, member=0):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(
        "POST", "/api.php", f"cmd=message&udid={member:040d}&text={text}",
        {"Content-Type": "application/x-www-form-urlencoded"})
    answer = connection.getresponse()
    bench.oracle(answer.status == 200, answer.read())


def members(database, count, size):
    """Adds members with devices to rooms of `size`, as `join` would."""
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


def deliver(folder, credentials, sink, size, rate=0):
    """Posts to rooms of `size` and waits until every push is at the gateway and recorded as sent."""
    with tempfile.TemporaryDirectory() as own:
        database, _ = bench.make_database(own)
        rooms = -(-CONNECTIONS // size)
        rows = members(database, rooms * size, size)
        relay, port, _ = bench.start_configured(own, gateways.configuration(own, credentials, "http2", sink.port))
        try:
            # Warms up: opens the connection to the gateway and uses all code once.
            sink.tell("expect 0")
            post_one(port, "warm")
            sink.wait_for(size - 1)
            drain.wait_until_settled(rows)

            sink.tell(f"expect 0 {size}")
            cpu, begin = bench.cpu(relay), time.time()
            load = post(folder, port, rooms * size, most=max(1, MOST_PUSHES // (size - 1)), rate=rate)
            pushes = load.accepted * (size - 1)
            sink.wait_for(pushes)
            seconds, cpu = drain.wait_until_settled(rows) - begin, bench.cpu(relay) - cpu

            times = {}
            for number, arrived in sink.times(own + "/times").items():
                times[number // size] = min(arrived, times.get(number // size, arrived))
            stored = rows.execute("SELECT count(*) FROM messages").fetchone()[0] - 1
        finally:
            bench.stop(relay)
        bench.oracle(load.accepted == load.answered, f"{load.accepted} of {load.answered} posts were accepted")
        bench.oracle(stored == load.accepted, f"{load.accepted} posts were accepted, {stored} are stored")
        drain.check_queue(rows, pushes + size - 1)
        # Counts after the relay has stopped, because a duplicate can arrive after the last push.
        different, twice = sink.counted()
        bench.oracle(different == pushes, f"{different} of {pushes} pushes arrived")
        return Delivery(
            load.accepted, pushes, load.rate, load.accepted / seconds, pushes / seconds, cpu, twice, load.latencies,
            sorted((times[number] - begun) / 1e6 for number, begun in load.begun.items()))


def build_handler():
    """Builds the bare Hummingbird handler."""
    print("building the bare handler for the comparison (the first build takes minutes)", flush=True)
    subprocess.run(
        ["swift", "build", "--quiet", "-c", "release", "--static-swift-stdlib", "--package-path",
         os.path.join(bench.ROOT, "Tests", "Benchmarks", "limit"), "--scratch-path", SCRATCH], check=True)


@contextlib.contextmanager
def bare_handler():
    process = subprocess.Popen([SCRATCH + "/release/limit"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process, int(process.stdout.readline())
    finally:
        bench.kill(process)


def answer_forms(folder):
    with bare_handler() as (process, port):
        cpu, load = bench.cpu(process), post(folder, port, CONNECTIONS)
        bench.oracle(load.accepted == load.answered, "the bare handler did not return 200 to every form")
        return Limit(load.rate, (bench.cpu(process) - cpu) / load.answered * 1e6)


def refuse_forms(folder):
    with tempfile.TemporaryDirectory() as own:
        relay, port, _ = bench.start_configured(own, None)
        try:
            # The relay reads a form without a udid like any other, and rejects it before it uses the database.
            cpu, load = bench.cpu(relay), post(folder, port, 0)
            bench.oracle(load.accepted == 0, f"{load.accepted} forms without a udid were accepted")
            return Limit(load.rate, (bench.cpu(relay) - cpu) / load.answered * 1e6)
        finally:
            bench.kill(relay)


def sqlite_alone(rows_each):
    """Rows per second that SQLite alone writes, as fast as Python provides them. Each commit waits for the disk."""
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
    """Rows per second that SQLite changes with one statement and one commit. The changed column has an index."""
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


def percentiles(values):
    return statistics.median(values), values[int(len(values) * 0.99)]


def row_of_rooms(size, found, small):
    accepted = [run.accepted for run in small]
    bench.row(f"messages accepted, rooms of {size:,}", [run.accepted for run in found], "/s", accepted, "rooms of 2", "0.8")
    bench.row(f"messages delivered, rooms of {size:,}", [run.delivered for run in found], "/s")
    bench.row(
        f"pushes delivered, rooms of {size:,}", [run.pushed for run in found], "/s", [run.pushed for run in small], "rooms of 2")
    bench.row(f"CPU of a message, rooms of {size:,}", [run.cpu / run.messages * 1e6 for run in found], "us")
    bench.row(f"CPU of a push, rooms of {size:,}", [run.cpu / run.pushes * 1e6 for run in found], "us", form="{:,.1f}")


def measure():
    found = {size: [] for size in SIZES}
    bare, refused, half = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        credentials = bench.make_credentials(folder)
        sink = gateways.Sink(folder, credentials)
        for number in range(bench.RUNS):
            bare.append(answer_forms(folder))
            refused.append(refuse_forms(folder))
            for size in SIZES:
                if size < LARGE or number < LARGE_RUNS:
                    found[size].append(deliver(folder, credentials, sink, size))
            half.append(deliver(folder, credentials, sink, 2, rate=found[2][-1].delivered / 2))
        sink.end()

    small = found[2]
    delivered = [run.delivered for run in small]
    bench.row("messages delivered, rooms of 2", delivered, "/s", [run.rate for run in bare], "a bare Hummingbird form handler")
    bench.row("the same", delivered, "/s", [run.rate for run in refused], "forms read and rejected", "0.5")
    bench.row("messages accepted, rooms of 2", [run.accepted for run in small], "/s")
    cpu = [run.cpu / run.messages * 1e6 for run in small]
    bench.row(
        "CPU of a message and its push, rooms of 2", cpu, "us", [run.cpu for run in bare], "a form, the bare handler",
        inverse=True)
    bench.row("the same", cpu, "us", [run.cpu for run in refused], "a form rejected", inverse=True)
    for size in SIZES[1:]:
        row_of_rooms(size, found[size], small[:len(found[size])])
    for what, latencies in (("response", [run.answers for run in half]), ("arrival", [run.arrivals for run in half])):
        for name, values in zip(("p50", "p99"), zip(*map(percentiles, latencies))):
            bench.row(f"post to {what} at half of the load, rooms of 2, {name}", values, "ms", form="{:,.2f}")
    runs = [run for size in SIZES for run in found[size]] + half
    drain.row_of_losses("posted", [(0, run.twice) for run in runs], sum(run.pushes for run in runs))
    for each in (1, 1_000):
        bench.row(f"for comparison: SQLite alone, {each:,} rows per commit", [sqlite_alone(each) for _ in range(bench.RUNS)], "/s")
    bench.row("for comparison: SQLite alone, bulk update", [sqlite_bulk_update() for _ in range(bench.RUNS)], "/s")
