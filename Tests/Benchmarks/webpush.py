"""The rate at which pushes to browsers leave a full queue, and their cost. Each one is encrypted with its own key pair."""
import base64, contextlib, hashlib, json, os, subprocess, tempfile, time

import bench, drain, gateways, peers

PUSHES = bench.scaled(20_000, 5_000)
# The longer queue, for the growth of memory.
MANY = bench.scaled(200_000, 50_000)
# The number of pushes that the check decrypts, and of those that the library sends, which is much slower.
CHECKED, PEER_PUSHES = 200, bench.scaled(2_000, 500)
# The number of concurrent pushes, which is the relay's for one service.
STREAMS = 100
CLIENTS = os.path.join(bench.ROOT, ".build", "test-clients", "bin", "python")
# The keys of RFC 8291, appendix A. No program decrypts these messages.
KEYS = {
    "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
    "auth": "BTBZMqHH6r4Tts7J_aSIgg",
}


def decoded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def fill(database, port, count, keys):
    """Registers `count` browsers of one service, and queues a push for each as another program would."""
    rows = bench.rows(database)
    rows.execute("BEGIN")
    public, secret = decoded(keys["p256dh"]), decoded(keys["auth"])
    endpoints = (f"https://127.0.0.1:{port}/push?{number}" for number in range(1, count + 1))
    rows.executemany(
        "INSERT INTO subscriptions (device_token, endpoint, p256dh, auth) VALUES (?, ?, ?, ?)",
        ((hashlib.sha256(endpoint.encode()).hexdigest(), endpoint, public, secret) for endpoint in endpoints))
    rows.execute("INSERT INTO devices (app, device_token) SELECT 'webpush', device_token FROM subscriptions")
    rows.execute(
        """INSERT INTO push_queue (app, device_token, payload)
           SELECT 'webpush', device_token,
               printf('{"aps":{"alert":"number %s","sound":"default"}}', substr(endpoint, instr(endpoint, '?') + 1))
           FROM subscriptions""")
    rows.execute("COMMIT")
    rows.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return rows


@contextlib.contextmanager
def started(credentials, port, count, keys=KEYS):
    """Starts a relay with a full queue. Yields its process, its database, and the CPU seconds of a start."""
    with tempfile.TemporaryDirectory() as folder:
        database, start = bench.make_database(folder)
        rows = fill(database, port, count, keys)
        with open(folder + "/relay.yaml", "w") as file:
            json.dump({
                "push": {"contact": "mailto:push@example.org"},
                "webpush": {"hosts": [f"127.0.0.1:{port}"], "trust": credentials + "/ca.pem"}}, file)
        relay, _, _ = bench.start_configured(folder, folder + "/relay.yaml")
        try:
            yield relay, rows, start
        finally:
            bench.kill(relay)


def drain_relay(credentials, port):
    with started(credentials, port, PUSHES) as (relay, rows, start):
        settled = drain.wait_until_settled(rows)
        cpu, memory = bench.cpu(relay) - start, bench.memory(relay)
        twice = drain.check_queue(rows, PUSHES)
        return drain.Drain(PUSHES / (settled - drain.first_sent(rows)), cpu / PUSHES * 1e6, memory, twice)


def memory_with(credentials, port, count):
    """Current and peak megabytes when PUSHES of `count` queued pushes have been sent."""
    with started(credentials, port, count) as (relay, rows, _):
        deadline = time.time() + 120
        while rows.execute("SELECT state FROM push_queue WHERE message_id = ?", (PUSHES,)).fetchone()[0] == "pending":
            bench.oracle(time.time() < deadline, f"{PUSHES} of {count} pushes were not sent within two minutes")
            time.sleep(0.02)
        return bench.memory(relay, "VmRSS"), bench.memory(relay)


def send(program, credentials, port, count, keys=KEYS):
    """Pushes per second of the C program, and its CPU microseconds per push."""
    ran = subprocess.run(
        [program, str(port), credentials + "/ca.pem", decoded(keys["p256dh"]).hex(), decoded(keys["auth"]).hex(), str(count),
         str(STREAMS), str(os.cpu_count())], check=True, stdout=subprocess.PIPE, text=True)
    seconds, cpu = map(float, ran.stdout.split())
    return count / seconds, cpu / count * 1e6


def check(program, credentials):
    """Checks that a service gets every push of the relay and of the C program. It decrypts with independent libraries."""
    with tempfile.TemporaryFile("w+") as output:
        service = subprocess.Popen(
            [CLIENTS, os.path.join(bench.ROOT, "Tests", "Clients", "webpush_service.py"), credentials + "/server.pem", "1"],
            stdout=output)

        def lines(count):
            """Waits until the service has printed `count` lines. Returns all lines."""
            deadline = time.time() + 60
            while True:
                output.seek(0)
                found = output.read().splitlines(keepends=True)
                if len(found) >= count and found[count - 1].endswith("\n"):
                    return [json.loads(line) for line in found]
                bench.oracle(time.time() < deadline, f"{len(found)} of {count} pushes arrived within a minute")
                time.sleep(0.05)

        try:
            about = lines(1)[0]
            keys = about["subscriptions"][0]["keys"]
            send(program, credentials, about["port"], CHECKED, keys)
            with started(credentials, about["port"], CHECKED, keys) as (_, rows, _):
                drain.wait_until_settled(rows)
                drain.check_queue(rows, CHECKED)
            arrived = sorted((push["browser"], push["text"]) for push in lines(1 + 2 * CHECKED)[1:])
            wanted = [(number, '{"notification":{"title":"number %d"}}' % number) for number in range(1, CHECKED + 1)]
            bench.oracle(arrived == sorted(2 * wanted), "the pushes that arrived differ from those that the C program and the relay sent")
        finally:
            bench.kill(service)


def measure():
    found, limits, costs, others, few, many = [], [], [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        credentials = bench.make_credentials(folder)
        program = bench.compile_c(folder, "Tests/Benchmarks/web_pusher.c", "-lssl", "-lcrypto", "-lnghttp2")
        if has_clients := os.path.exists(CLIENTS):
            check(program, credentials)
        else:
            print("  pywebpush is left out. make setup installs it.", flush=True)
        with gateways.nghttpd(folder, credentials, "push") as port:
            for _ in range(bench.RUNS):
                rate, cost = send(program, credentials, port, PUSHES)
                limits.append(rate)
                costs.append(cost)
                found.append(drain_relay(credentials, port))
                few.append(memory_with(credentials, port, PUSHES))
                many.append(memory_with(credentials, port, MANY))
                if has_clients:
                    others.append(float(peers.run(
                        CLIENTS, "peer_pywebpush.py", credentials + "/server.pem", credentials + "/ca.pem", KEYS["p256dh"],
                        KEYS["auth"], PEER_PUSHES)))
    bench.row(
        "pushes to browsers drained", [run.rate for run in found], "/s", limits,
        f"C on libssl and nghttp2, {STREAMS} streams, {os.cpu_count()} threads encrypt, no queue", "0.5")
    bench.row(
        "CPU of a push to a browser", [run.cpu for run in found], "us", costs, "the C program", form="{:,.1f}", inverse=True)
    for name, at in (("memory", 0), ("memory at most", 1)):
        bench.row(
            f"{name}, {MANY:,} pushes to browsers queued, after {PUSHES:,}", [run[at] for run in many], "MB",
            [run[at] for run in few], f"{PUSHES:,} queued", "no growth", form="{:,.1f}")
    drain.row_of_losses("Web Push", [(0, run.twice) for run in found], PUSHES * len(found))
    if others:
        bench.row("for comparison: pywebpush, HTTP/1.1, no queue", others, "/s")
