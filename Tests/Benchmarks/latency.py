"""The time from a post to the arrival at the gateway, on an idle relay and on one with other work."""
import http.client, subprocess, tempfile, time

import bench, gateways, posts

MESSAGES = bench.scaled(300, 100)
PAUSE = 0.01
CROWD = 100_000


def send(port, sink, is_relay):
    """Posts messages one after another. Returns the time of each post in nanoseconds, by the message's number."""
    sink.tell(f"expect {MESSAGES + 1_000_000}")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.connect()
    begun = {}
    for number in range(1, MESSAGES + 1):
        # The messages of the crowd have lower numbers.
        number += 3_000_000
        body = f"cmd=message&udid={0:040d}&text=%23{number}" if is_relay else f"text=#{number}"
        begun[number] = time.monotonic_ns()
        connection.request("POST", "/api.php", body, {"Content-Type": "application/x-www-form-urlencoded"})
        answer = connection.getresponse()
        answer.read()
        bench.oracle(answer.status == 200, f"a post got the status {answer.status}")
        time.sleep(PAUSE)
    return begun


def arrivals(begun, sink, folder):
    deadline = time.time() + 60
    while True:
        times = sink.times(folder + "/times")
        if all(number in times for number in begun):
            return sorted((times[number] - begin) / 1e6 for number, begin in begun.items())
        bench.oracle(time.time() < deadline, "a message has not arrived within a minute")
        time.sleep(0.1)


def without_store(folder, credentials, sink):
    handler = bench.compile_c(folder, "Tests/Benchmarks/handler.c", "-lssl", "-lcrypto")
    process = subprocess.Popen(
        [handler, "127.0.0.1", str(sink.port), credentials + "/client.pem"], stdout=subprocess.PIPE, text=True)
    try:
        return posts.percentiles(arrivals(send(int(process.stdout.readline()), sink, is_relay=False), sink, folder))
    finally:
        process.kill()
        process.wait()


def through_relay(folder, credentials, sink, crowd=False, dead=False, other=None):
    """Posts through a relay. `other` has the settings of a second app, and statements that queue its pushes."""
    with tempfile.TemporaryDirectory() as own:
        path = gateways.configuration(own, credentials, "binary", sink.port, "settle: 1s")
        if dead:
            # Adds an app whose gateway's port is closed, with pushes that wait for it.
            with open(path, "a") as file:
                file.write(
                    f"  second:\n    gateway: binary\n    host: 127.0.0.1\n    port: 1\n    trust: {credentials}/ca.pem\n"
                    f"    certificate: {credentials}/client.pem\n")
        if other:
            with open(path, "a") as file:
                file.write(other[0])
        relay, port, database = bench.start_configured(own, path)
        try:
            rows = posts.members(database, 2, 2)
            if dead:
                rows.execute(
                    """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
                       INSERT INTO push_queue (app, device_token, payload) SELECT 'second', printf('%064x', i), '{}' FROM n""")
            if other:
                rows.execute(*other[1])
            if crowd:
                rows.execute(
                    """WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
                       INSERT INTO active_users (udid, device_token, nickname, secret_code)
                       SELECT printf('%040d', i), printf('%064x', i), 'name' || i, 'crowd' FROM n""", (CROWD + 10,))
            # Warms up: opens the connection to the gateway and uses all code once.
            posts.post_one(port, "warm+1")
            sink.tell("expect 1")
            posts.post_one(port, "warm+2")
            sink.arrived()
            if crowd:
                posts.post_one(port, "warm+3", member=10)
            begun = send(port, sink, is_relay=True)
            if crowd:
                state = rows.execute("SELECT count(*) FROM push_queue").fetchone()[0]
                print(f"    {state:,} pushes of the crowd were queued at the same time", flush=True)
            return posts.percentiles(arrivals(begun, sink, own))
        finally:
            bench.kill(relay)


def measure():
    limits, quiet, crowded, beside = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        credentials = bench.make_credentials(folder)
        sink = gateways.Sink(folder, credentials)
        for _ in range(bench.RUNS):
            limits.append(without_store(folder, credentials, sink))
            quiet.append(through_relay(folder, credentials, sink))
            crowded.append(through_relay(folder, credentials, sink, crowd=True))
            beside.append(through_relay(folder, credentials, sink, dead=True))
        sink.end()
    half, most = (lambda found: [p50 for p50, _ in found]), (lambda found: [p99 for _, p99 in found])
    form = "{:,.2f}"
    bench.row(
        "post to arrival, quiet, p50", half(quiet), "ms", half(limits), "C, no store", "at least 0.3", form, inverse=True)
    bench.row("post to arrival, quiet, p99", most(quiet), "ms", goal="under 20 ms", form=form)
    bench.row(
        "p99 while a room of 100,000 is served", most(crowded), "ms", most(quiet), "quiet", "at least 0.2", form, inverse=True)
    bench.row(
        "p99 beside a dead gateway", most(beside), "ms", most(quiet), "quiet", "at least 0.2", form, inverse=True)
