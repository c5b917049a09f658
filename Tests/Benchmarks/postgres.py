"""Relays on one PostgreSQL.

Measures the messages that one, two and three relays accept, and the pushes that they drain. Also measures the cost of a push
with many settled pushes in the table, and while another session holds a transaction open. The limit is pgbench with the
statements that the relays sent themselves.
"""
import collections, contextlib, json, os, re, statistics, subprocess, sys, tempfile, time

import bench, gateways, posts

sys.path.append(os.path.join(bench.ROOT, "Tests", "Clients"))
import postgres_server

RELAYS = (1, 2, 3)
RUNS = min(bench.RUNS, 3)
SECONDS = bench.scaled(5, 3)
# The members are in rooms of two, and consecutive posters are in different rooms. With this number of members, concurrent
# transactions seldom need the same room.
MEMBERS = 2_048
PUSHES = bench.scaled(100_000, 5_000)
# The pushes for pgbench with one transaction per push, and its connections, as many as the poster has.
SINGLE_PUSHES = bench.scaled(20_000, 1_000)
SINGLE_CONNECTIONS = posts.CONNECTIONS
FEW_SETTLED, MANY_SETTLED = 10_000, bench.scaled(1_000_000, 100_000)
# The seconds for which a transaction is held, and the number of pushes that are queued and drained repeatedly in that time.
HELD, HELD_PUSHES = bench.scaled(60, 5), bench.scaled(10_000, 1_000)
# The number of scripts. pgbench accepts at most 128.
MOST_SCRIPTS = 32
TOKEN = "lpad(to_hex(i), 64, '0')"


# MARK: The server and the relays

class Databases:
    """Creates databases on one server. Each has the tables and the members."""

    def __init__(self, folder):
        self.folder, self.server, self.count = folder, postgres_server.Server(folder + "/server"), 0
        self.server.rows("CREATE DATABASE filled")
        with relays(self.server.url("filled"), 1):
            pass
        self.server.rows(
            f"""SELECT push_queue_add_day((now() AT TIME ZONE 'UTC')::date + i) FROM generate_series(0, 1) i;
                INSERT INTO devices (app, device_token) SELECT 'default', {TOKEN} FROM generate_series(0, {MEMBERS - 1}) i;
                INSERT INTO active_users (udid, device_token, nickname, secret_code)
                SELECT lpad(i::text, 40, '0'), {TOKEN}, 'name' || i, 'room' || (i % {MEMBERS // 2}) FROM generate_series(0, {MEMBERS - 1}) i;
                ANALYZE""", "filled")

    def make(self):
        """Creates a database and returns its name."""
        self.count += 1
        self.server.rows(f"CREATE DATABASE measured{self.count} TEMPLATE filled")
        self.server.rows("CHECKPOINT")
        return f"measured{self.count}"

    def drop(self, name):
        self.server.rows(f"DROP DATABASE {name} WITH (FORCE)")

    def number(self, name, sql):
        return float(self.server.rows(sql, name)[0])


@contextlib.contextmanager
def relays(url, count, *app):
    """Starts `count` relays. Yields the processes with their ports.

    :param app: The app's configuration as lines. Without any, the relays queue pushes and send none.
    """
    started = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for number in range(count):
                own = f"{folder}/relay{number}"
                os.makedirs(own)
                with open(own + "/relay.yaml", "w") as file:
                    lines = [*app, "database:", f"  url: {json.dumps(url)}", f"  path: {own}/pushchat.db"]
                    file.write("\n".join(lines) + "\n")
                process, (port,) = bench.start(
                    own, "relay", ["serve", "--config", own + "/relay.yaml", "--port", "0"], [("listening", "port")])
                started.append((process, int(port)))
            yield started
            bench.stop(*(process for process, _ in started))
        finally:
            bench.kill(*(process for process, _ in started))


def processes_of(started):
    return [process for process, _ in started]


def ports_of(started):
    """The ports in the format of the poster's argument."""
    return ",".join(str(port) for _, port in started)


def gateway(folder, credentials, sink):
    with open(gateways.configuration(folder, credentials, "http2", sink.port)) as file:
        return file.read().splitlines()


def cpu(server, processes):
    """The CPU seconds of the server, of all processes that it has started, and of the relays."""
    ticks = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(name) == server.process.pid:
            ticks += sum(map(int, fields[11:15]))
        elif int(fields[1]) == server.process.pid:
            ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK") + sum(map(bench.cpu, processes))


# MARK: The relays

def accept(databases, count):
    """Messages per second that `count` relays accept. The push of each message stays in the queue."""
    name = databases.make()
    with relays(databases.server.url(name), count) as started:
        load = posts.post(databases.folder, ports_of(started), MEMBERS, seconds=SECONDS)
        bench.oracle(load.accepted == load.answered, f"{load.accepted} of {load.answered} posts were accepted")
        for table, what in (("messages", "stored"), ("push_queue", "queued")):
            found = databases.number(name, f"SELECT count(*) FROM {table}")
            bench.oracle(found == load.accepted, f"{load.accepted} posts were accepted, {found:.0f} are {what}")
    databases.drop(name)
    return load.rate


def fill(session, count):
    """Queues pushes as another program would, and wakes all relays. Returns the last push id before them, and the time."""
    before = int(session.ask("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM push_queue_message_id_seq")[0])
    session.ask(
        "BEGIN", f"""INSERT INTO push_queue (device_token, payload)
            SELECT {TOKEN}, format('{{"aps":{{"alert":"number %s","sound":"default"}}}}', i) FROM generate_series(1, {count}) i""",
        """NOTIFY pushchat_public, '{"from":"bench","apps":["default"]}'""", "COMMIT")
    return before, float(session.ask("SELECT extract(epoch FROM clock_timestamp())")[0])


def wait_until_settled(session, filled, count):
    """Returns the seconds from the moment when all pushes were queued to the last recorded outcome."""
    before, begun = filled
    deadline = time.time() + 600
    # Makes the server use the primary key and no compiled plans, whatever size it assumes for the table. Otherwise these queries
    # would cost more than the pushes.
    session.ask("SET enable_seqscan = off", "SET jit = off")
    of_these = f"FROM push_queue WHERE message_id > {before} AND settled_on IS NOT NULL"
    # Counts all pushes only after the last one is settled, because counting them repeatedly would slow down the relays.
    while session.ask(f"SELECT count(*) FROM push_queue_due WHERE message_id = {before + count}") == ["1"]:
        bench.oracle(time.time() < deadline, "the last push was not settled within ten minutes")
        time.sleep(0.01)
    while (settled := int(session.ask(f"SELECT count(*) {of_these}")[0])) < count:
        bench.oracle(time.time() < deadline, f"{settled} of {count} pushes were settled within ten minutes")
        time.sleep(0.05)
    sent, seconds = session.ask(
        f"SELECT count(*) FILTER (WHERE state = 'sent' AND attempts = 1),"
        f" extract(epoch FROM max(time_settled)) - {begun} {of_these}")[0].split("|")
    bench.oracle(int(sent) == count, f"{sent} of {count} pushes were sent exactly once")
    return float(seconds)


def drain(databases, count, credentials, sink, settled=0):
    """Pushes per second that `count` relays send from a full queue, and the CPU microseconds of relays and server per push.

    :param settled: The number of pushes of today that are already settled.
    """
    name = databases.make()
    session = postgres_server.Session(databases.server, name)
    if settled:
        session.ask(
            f"""INSERT INTO push_queue (device_token, payload, state, time_sent, time_settled, settled_on)
                SELECT {TOKEN}, '{{"aps":{{"alert":"before"}}}}', 'sent', now(), now(), (now() AT TIME ZONE 'UTC')::date
                FROM generate_series(1, {settled}) i""", "VACUUM ANALYZE push_queue", "CHECKPOINT")
    with relays(databases.server.url(name), count, *gateway(databases.folder, credentials, sink)) as started:
        # Warms up: opens the connections to the gateway and uses all code once.
        sink.tell("expect 0")
        wait_until_settled(session, fill(session, 100), 100)
        sink.tell(f"expect {PUSHES}")
        used = cpu(databases.server, processes_of(started))
        seconds = wait_until_settled(session, fill(session, PUSHES), PUSHES)
        used = cpu(databases.server, processes_of(started)) - used
        sink.arrived()
        different, twice = sink.counted()
        bench.oracle(different == PUSHES and twice == 0, f"{different} of {PUSHES} pushes arrived, {twice} arrived twice")
    session.end()
    databases.drop(name)
    return PUSHES / seconds, used / PUSHES * 1e6


def hold(databases, credentials, sink):
    """Microseconds and CPU microseconds per push, before a transaction is held and after it was held for a minute."""
    name = databases.make()
    session = postgres_server.Session(databases.server, name)
    with relays(databases.server.url(name), 1, *gateway(databases.folder, credentials, sink)) as started:
        sink.tell("expect 0")

        def one():
            used = cpu(databases.server, processes_of(started))
            seconds = wait_until_settled(session, fill(session, HELD_PUSHES), HELD_PUSHES)
            return seconds / HELD_PUSHES * 1e6, (cpu(databases.server, processes_of(started)) - used) / HELD_PUSHES * 1e6

        def middle(found):
            return [statistics.median(values) for values in zip(*found)]
        one()
        before = middle([one() for _ in range(3)])
        held = postgres_server.Session(databases.server, name)
        held.ask("BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM push_queue")
        found, end = [], time.time() + HELD
        while time.time() < end or len(found) < 3:
            found.append(one())
        held.ask("COMMIT")
        held.end()
    session.end()
    databases.drop(name)
    return before, middle(found[-3:])


# MARK: The relays' statements

# A statement of a transaction. `values` has its parameters as literals.
Statement = collections.namedtuple("Statement", "sql values")
ENTRY = re.compile(r"^\d{4}-\d\d-\d\d \S+ \S+ \[(\d+)\] (LOG|DETAIL):  (.*)", re.S)


def transactions(log):
    """The statements of each committed transaction, from the log of a server that logs all statements."""
    found, open_ = [], {}
    for entry in re.split(r"(?m)^(?=\d{4}-\d\d-\d\d \d)", log):
        match = ENTRY.match(entry)
        if not match:
            continue
        process, kind, text = match.groups()
        text = text.rstrip("\n").replace("\n\t", "\n")
        statements = open_.setdefault(process, [])
        if kind == "DETAIL":
            if statements and text.lower().startswith("parameters: "):
                values = {int(place): value for place, value in re.findall(r"\$(\d+) = (NULL|'(?:[^']|'')*')", text)}
                statements[-1] = statements[-1]._replace(values=values)
        elif text.startswith("execute <unnamed>: "):
            sql = text.removeprefix("execute <unnamed>: ")
            if sql.startswith("BEGIN"):
                statements.clear()
            if sql == "COMMIT":
                found.append(list(statements))
            else:
                statements.append(Statement(sql, {}))
    return found


def written(statement, changes={}):
    """A statement for pgbench, with its values. `changes` replaces some of them."""
    def value(match):
        place = int(match.group(1))
        if place in changes:
            return changes[place]
        # pgbench reads a word after a colon as a variable.
        return "(" + statement.values[place].replace(":", ":' || '") + ")"
    return re.sub(r"\$(\d+)", value, statement.sql)


class Script:
    """A script for pgbench that sends statements in pipelines, as the relay does."""

    def __init__(self):
        self.lines, self.is_open = [], False

    def add(self, sql):
        if not self.is_open:
            self.lines.append("\\startpipeline")
        self.is_open = True
        self.lines.append(sql + ";")

    def get(self, sql):
        """Adds a statement whose columns become variables of the script."""
        self.close()
        self.lines.append(sql + " \\gset")

    def close(self):
        if self.is_open:
            self.lines.append("\\endpipeline")
        self.is_open = False

    def text(self):
        self.close()
        return "\n".join(self.lines) + "\n"


def posting_script(statements):
    script = Script()
    for statement in statements:
        if "nextval('messages_message_id_seq')" in statement.sql:
            # Counts all columns, so that the server computes all of them.
            columns = ", ".join([f"column{number}" for number in range(12)] + ["id"])
            script.get(f"SELECT array_agg(id ORDER BY id) AS ids, count(f) AS found FROM (\n{written(statement)}\n) f ({columns})")
        elif "INSERT INTO messages (" in statement.sql:
            script.add(written(statement, {1: ":ids"}))
        elif "INSERT INTO push_queue_due (" in statement.sql:
            script.add(written(statement, {1: ":ids", 10: ":ids"}))
        else:
            script.add(written(statement))
    script.add("COMMIT")
    return script.text()


def draining_script(leasing, settling, start, limit):
    """A lease of pushes and the recording of their outcomes."""
    script = Script()
    places = {2: f"({start})", 3: f"({limit})", 5: "'{0,0,0}'", 6: "'{0,0,0}'", 7: "'{0,0,0}'"}
    for statement in leasing:
        if "leased AS (" in statement.sql:
            sources, rows = written(statement, places).rsplit("\nSELECT q.message_id", 1)
            script.get(f"{sources},\nfound AS (SELECT q.message_id{rows})\n"
                       "SELECT coalesce(array_agg(message_id), '{}') AS ids, count(found) AS found FROM found")
        elif "$7" in statement.sql:
            script.add(written(statement, {**places, 3: "(1)"}))
        else:
            script.add(written(statement))
    script.add("COMMIT")
    for statement in settling:
        is_outcome = "UPDATE push_queue SET state" in statement.sql
        script.add(written(statement, {1: ":ids", 2: f"({start})"} if is_outcome else {}))
    script.add("COMMIT")
    return script.text()


class Recorded:
    """The statements that relays sent while they accepted posts and drained a queue."""

    def __init__(self, databases, credentials, sink):
        def post(rate):
            return lambda started, session: posts.post(databases.folder, ports_of(started), MEMBERS, seconds=1, rate=rate)

        def drain(started, session):
            sink.tell("expect 0")
            wait_until_settled(session, fill(session, PUSHES), PUSHES)
        self.batched = {}
        for count in RELAYS:
            posted = sorted(self.record(databases, post(rate=0), count, "INSERT INTO messages ("), key=self.size)
            # Takes transactions of all sizes.
            self.batched[count] = posted[::-(-len(posted) // MOST_SCRIPTS)]
        posted = self.record(databases, post(rate=50), 1, "INSERT INTO messages (")
        self.single = [each for each in posted if self.size(each) == 1][:MOST_SCRIPTS]
        app = gateway(databases.folder, credentials, sink)
        leasing = self.record(databases, drain, 1, "leased AS (", *app)
        settling = self.record(databases, drain, 1, "UPDATE push_queue SET state = 'sent'", *app)
        bench.oracle(self.single, "no post had a transaction of its own")
        # Leaves out leases for the browsers' app and leases from a single lane.
        whole = max(len(self.lease(each).sql) for each in leasing)
        leasing = [each for each in leasing if self.lease(each).values[1] == "'default'" and len(self.lease(each).sql) == whole]
        bench.oracle(leasing, "no lease read all lanes")
        self.leasing, self.settling = map(self.usual, (leasing, settling))
        self.limit = max(int(self.lease(each).values[3].strip("'")) for each in leasing)

    @staticmethod
    def lease(statements):
        return next(statement for statement in statements if "leased AS (" in statement.sql)

    @staticmethod
    def usual(found):
        """A transaction with the most frequent number of statements."""
        count = statistics.mode(map(len, found))
        return next(each for each in found if len(each) == count)

    @staticmethod
    def size(statements):
        """The number of messages that a transaction writes."""
        return next(statement.values[1].count(",") + 1 for statement in statements if "INSERT INTO messages (" in statement.sql)

    @staticmethod
    def record(databases, act, count, part, *app):
        """The transactions that have a statement with this part."""
        name, begin = databases.make(), len(databases.server.log())
        databases.server.rows(f"ALTER DATABASE {name} SET log_statement = 'all'")
        session = postgres_server.Session(databases.server, name)
        with relays(databases.server.url(name), count, *app) as started:
            act(started, session)
        session.end()
        databases.drop(name)
        found = [each for each in transactions(databases.server.log()[begin:]) if any(part in statement.sql for statement in each)]
        bench.oracle(found, f"the relay sent no statement with {part}")
        return found


# MARK: The limit

def pgbench(databases, name, scripts, connections, counted, *ends):
    """The rows per second by which the query `counted` grows.

    :param ends: The arguments of pgbench for the length of the run.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, text in enumerate(scripts):
            files += ["-f", f"{folder}/{number}.sql"]
            with open(files[-1], "w") as file:
                file.write(text)
        before = databases.number(name, counted)
        ran = subprocess.run(
            [databases.server.programs + "/pgbench", "-n", "-M", "extended", "-h", databases.server.folder, "-U", "postgres",
             "-c", str(connections), "-j", str(min(connections, os.cpu_count() or 1)), *files, *ends, name],
            env=databases.server.environment, capture_output=True, text=True, timeout=900)
    bench.oracle(
        ran.returncode == 0 and "aborted" not in ran.stderr and "tps" in ran.stdout, f"pgbench: {ran.stdout[-1000:]} {ran.stderr[-2000:]}")
    count = int(re.search(r"transactions actually processed: (\d+)", ran.stdout).group(1))
    rate = float(re.search(r"tps = ([\d.]+)", ran.stdout).group(1))
    rows = databases.number(name, counted) - before
    bench.oracle(rows >= count > 0, f"pgbench: {count} transactions for {rows:.0f} rows")
    return rows / count * rate


def accept_by_pgbench(databases, transactions, connections):
    name = databases.make()
    found = pgbench(
        databases, name, [posting_script(each) for each in transactions], connections, "SELECT count(*) FROM messages", "-T", str(SECONDS))
    pushes, messages = (databases.number(name, f"SELECT count(*) FROM {table}") for table in ("push_queue", "messages"))
    bench.oracle(pushes == messages, f"pgbench: {messages:.0f} messages, {pushes:.0f} pushes")
    databases.drop(name)
    return found


def drain_by_pgbench(databases, recorded, count, limit, connections):
    name = databases.make()
    session = postgres_server.Session(databases.server, name)
    start = session.ask("INSERT INTO relay_starts (host) VALUES ('pgbench') RETURNING start_id")[0]
    fill(session, count)
    script = draining_script(recorded.leasing, recorded.settling, start, limit)
    found = pgbench(
        databases, name, [script], connections, "SELECT count(*) FROM push_queue WHERE state = 'sent'",
        "-t", str(-(-count // (limit * connections))))
    # Leases that ran at the same time got fewer pushes. The few pushes that are left do not count.
    left = databases.number(name, "SELECT count(*) FROM push_queue WHERE state = 'pending'")
    bench.oracle(left <= max(count / 2, limit * connections), f"pgbench left {left:.0f} of {count} pushes")
    session.end()
    databases.drop(name)
    return found


# MARK: The table

def measure():
    if not postgres_server.is_unpacked():
        print("  left out: there is no PostgreSQL in .build/test-postgres. make setup unpacks it.", flush=True)
        return
    accepted, drained = {count: [] for count in RELAYS}, {count: [] for count in RELAYS}
    batched, single, pushes_batched, pushes_single = {count: [] for count in RELAYS}, [], {count: [] for count in RELAYS}, []
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        credentials = bench.make_credentials(folder)
        sink = gateways.Sink(folder, credentials)
        databases = Databases(folder)
        try:
            recorded = Recorded(databases, credentials, sink)
            for _ in range(RUNS):
                single.append(accept_by_pgbench(databases, recorded.single, posts.CONNECTIONS))
                pushes_single.append(drain_by_pgbench(databases, recorded, SINGLE_PUSHES, 1, SINGLE_CONNECTIONS))
                for count in RELAYS:
                    batched[count].append(accept_by_pgbench(databases, recorded.batched[count], count))
                    accepted[count].append(accept(databases, count))
                    # Two connections per relay, because a relay records outcomes while it leases.
                    pushes_batched[count].append(drain_by_pgbench(databases, recorded, PUSHES, recorded.limit, 2 * count))
                    drained[count].append(drain(databases, count, credentials, sink))
            few, many = (drain(databases, 1, credentials, sink, settled) for settled in (FEW_SETTLED, MANY_SETTLED))
            before, after = hold(databases, credentials, sink)
            version = databases.server.rows("SHOW server_version")[0].split()[0]
            sizes = ", ".join(f"{statistics.median(map(recorded.size, recorded.batched[count])):.0f}" for count in RELAYS)
        finally:
            databases.server.end()
            sink.end()
    bench.row_of_text(
        f"PostgreSQL {version}", "default settings, with fsync, on the same cores as relays, clients and gateway; with "
        f"{', '.join(map(str, RELAYS))} relays {sizes} messages per transaction, a lease of {recorded.limit}")
    for count in RELAYS:
        relays = "one relay" if count == 1 else f"{count} relays"
        bench.row(f"messages accepted, PostgreSQL, {relays}", accepted[count], "/s", single, "pgbench, one transaction each")
        bench.row("the same", accepted[count], "/s", batched[count], "pgbench, same batches", "0.5")
    for count in RELAYS:
        relays = "one relay" if count == 1 else f"{count} relays"
        rates = [rate for rate, _ in drained[count]]
        bench.row(f"pushes drained, PostgreSQL, {relays}", rates, "/s", pushes_single, "pgbench, one transaction each")
        bench.row("the same", rates, "/s", pushes_batched[count], "pgbench, same batches", "0.5")
        bench.row(f"CPU of a push, PostgreSQL, {relays} and the server", [used for _, used in drained[count]], "us", form="{:,.1f}")
    for what, large, small in (
            (f"a push, {MANY_SETTLED:,} settled", 1e6 / many[0], 1e6 / few[0]), ("CPU of it", many[1], few[1])):
        bench.row(what, [large], "us", [small], f"{FEW_SETTLED:,} settled", form="{:,.1f}", inverse=True)
    for what, large, small in zip((f"a push, a transaction held for {HELD} s", "CPU of it"), after, before):
        bench.row(what, [large], "us", [small], "before", form="{:,.1f}", inverse=True)
