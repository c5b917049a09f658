"""The rate at which pushes leave a full queue, including the recording of their outcomes, and their cost."""
import dataclasses, os, re, subprocess, tempfile, time

import bench, gateways

PUSHES = 100_000
# Seconds of silence after which a push over the binary protocol counts as accepted.
SETTLE = 1
# Schemas before version 5 have the state 'written'.
UNSETTLED = "state IN ('pending', 'written')"


@dataclasses.dataclass
class Drain:
    """The result of one run."""
    rate: float  # pushes per second
    cpu: float  # the relay's microseconds per push
    memory: float  # peak megabytes
    twice: int


def fill(database, count, token="printf('%064x', i)"):
    """Fills the queue as another program would, in one transaction, and empties the write-ahead log."""
    rows = bench.rows(database)
    rows.execute(
        f"""WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
           INSERT INTO push_queue (device_token, payload)
           SELECT {token}, printf('{{"aps":{{"alert":"number %d","sound":"default"}}}}', i) FROM n""",
        (count,))
    rows.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return rows


def wait_until_settled(rows):
    """Waits until the relay has recorded the outcome of every push. Returns that time, as time.time() does."""
    deadline = time.time() + 120
    while True:
        # Looks only at the last push, because that hardly slows down the relay. It is among the last to be settled.
        while rows.execute(f"SELECT {UNSETTLED} FROM push_queue ORDER BY message_id DESC LIMIT 1").fetchone()[0]:
            bench.oracle(time.time() < deadline, "the queue is not empty after two minutes")
            time.sleep(0.005)
        seen = time.time()
        left = rows.execute(f"SELECT count(*) FROM push_queue WHERE {UNSETTLED}").fetchone()[0]
        if not left:
            return seen
        bench.oracle(time.time() < deadline, f"{left} pushes are not settled after two minutes")


def check_queue(rows, count):
    """Checks that all pushes are in the queue as sent. Returns the number of unnecessary attempts."""
    there, sent, attempts = rows.execute("SELECT count(*), total(state = 'sent'), total(attempts) FROM push_queue").fetchone()
    bench.oracle(there == sent == count, f"of {count} pushes {there} are in the queue, {sent:.0f} were sent")
    return int(attempts - count)


def first_sent(rows):
    """The time of the first response to a push, as time.time() returns it."""
    return rows.execute("SELECT (julianday(min(time_sent)) - julianday('1970-01-01')) * 86400 FROM push_queue").fetchone()[0]


def row_of_losses(gateway, counts, pushes):
    """Adds a line with the sums of all runs. A push that the relay lost has failed the benchmark before."""
    lost, twice = (sum(numbers) for numbers in zip(*counts))
    bench.row_of_text(f"pushes lost, pushes sent twice, {gateway}", f"{lost}, {twice} of {pushes:,}")


def drain_binary(credentials, sink):
    with tempfile.TemporaryDirectory() as folder:
        # Fills the queue before the relay starts.
        database, start = bench.make_database(folder)
        rows = fill(database, PUSHES)
        sink.tell(f"expect {PUSHES}")
        relay, _, _ = bench.start_configured(
            folder, gateways.configuration(folder, credentials, "binary", sink.port, f"settle: {SETTLE}s"))
        to_last, _ = sink.arrived()
        arrived = time.time()
        # The silence does not count as the relay's time.
        seconds = to_last + wait_until_settled(rows) - arrived - SETTLE
        cpu, memory = bench.cpu(relay) - start, bench.memory(relay)
        bench.stop(relay)
        check_queue(rows, PUSHES)
        # Counts after the relay has stopped, because a duplicate can arrive after the last push.
        different, repeats = sink.counted()
        bench.oracle(different == PUSHES and repeats == 0, f"{different} of {PUSHES} pushes arrived, {repeats} arrived twice")
        return Drain(PUSHES / seconds, cpu / PUSHES * 1e6, memory, repeats)


def drain_http2(credentials, port):
    with tempfile.TemporaryDirectory() as folder:
        database, start = bench.make_database(folder)
        rows = fill(database, PUSHES, f"'{gateways.DEVICE}'")
        relay, _, _ = bench.start_configured(folder, gateways.configuration(folder, credentials, "http2", port))
        settled = wait_until_settled(rows)
        cpu, memory = bench.cpu(relay) - start, bench.memory(relay)
        bench.stop(relay)
        # nghttpd does not count, so the queue is checked. The start is the time of nghttpd's first response.
        twice = check_queue(rows, PUSHES)
        bench.oracle(twice == 0, f"{twice} pushes were tried twice")
        return Drain(PUSHES / (settled - first_sent(rows)), cpu / PUSHES * 1e6, memory, twice)


def h2load(
    folder, port, streams, path=f"/3/device/{gateways.DEVICE}", body='{"aps":{"alert":"number 12345","sound":"default"}}',
    headers=("apns-topic: com.example.PushChat", "apns-push-type: alert"), count=PUSHES):
    """Requests per second over one connection with this number of concurrent streams."""
    with open(folder + "/payload", "w") as file:
        file.write(body)
    text = subprocess.run(
        ["h2load", "-c1", f"-m{streams}", f"-n{count}", "-d", folder + "/payload",
         *(word for header in headers for word in ("-H", header)), f"https://127.0.0.1:{port}{path}"],
        check=True, capture_output=True, text=True).stdout
    bench.oracle(f"{count} 2xx" in text, text)
    return float(re.search(r"([\d.]+) req/s", text).group(1))


def send_binary(client, credentials, sink, *each):
    """Notifications per second of a C program. `each` is the number of frames per write. Without it: as many as fit."""
    sink.tell(f"expect {PUSHES}")
    subprocess.run(
        [client, "127.0.0.1", str(sink.port), credentials + "/client.pem", credentials + "/ca.pem", str(PUSHES), *each],
        check=True, stdout=subprocess.DEVNULL)
    return PUSHES / sink.arrived()[0]


def report(found, gateway):
    bench.row(f"CPU of a push, {gateway}", [run.cpu for run in found], "us", form="{:,.1f}")
    bench.row(f"memory while draining, {gateway}", [run.memory for run in found], "MB", goal="45 MB", form="{:,.1f}")
    row_of_losses(gateway, [(0, run.twice) for run in found], PUSHES * len(found))


def measure_http2():
    found, few, many = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        credentials = bench.make_credentials(folder)
        with gateways.nghttpd(folder, credentials) as port:
            for _ in range(bench.RUNS):
                few.append(h2load(folder, port, 100))
                many.append(h2load(folder, port, 1000))
                found.append(drain_http2(credentials, port))
    rates = [run.rate for run in found]
    bench.row("pushes drained, HTTP/2", rates, "/s", few, "h2load -c1 -m100, no queue", "0.8")
    bench.row("the same", rates, "/s", many, "h2load -c1 -m1000")
    report(found, "HTTP/2")


def measure():
    found, single, batched = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        credentials = bench.make_credentials(folder)
        sink = gateways.Sink(folder, credentials)
        client = bench.compile_c(folder, "Tests/Clients/gateway_client.c", "-lssl", "-lcrypto")
        for _ in range(bench.RUNS):
            single.append(send_binary(client, credentials, sink, "1"))
            batched.append(send_binary(client, credentials, sink))
            found.append(drain_binary(credentials, sink))
        sink.end()
    rates = [run.rate for run in found]
    bench.row("pushes drained, binary", rates, "/s", single, "C on libssl, one write per frame, no queue", "1.0")
    bench.row("the same", rates, "/s", batched, "C, as many frames as fit into a record")
    report(found, "binary")
