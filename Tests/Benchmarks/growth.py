"""The cost of one device among a thousand devices and among a million."""
import http.client, json, sqlite3, statistics, tempfile, time

import bench

FEW, MANY = 1_000, bench.scaled(1_000_000, 100_000)
REQUESTS = 400
# The number of reports from the feedback service. Each one is about another device.
REPORTS = 1_000


def token(number):
    """A token. Tokens are spread over their whole range, like Apple's."""
    return f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}" + f"{number:048x}"


def register(database, count):
    rows = sqlite3.connect(database, timeout=60)
    with rows:
        rows.executemany(
            "INSERT INTO devices (app, device_token, user_reference) VALUES ('default', ?, ?)",
            ((token(number), f"user{number}") for number in range(count)))
        rows.execute(
            "INSERT INTO device_tags (tag, device_id) SELECT 'news', device_id FROM devices WHERE device_id % 2 = 0")
    return rows


class Client:
    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def call(self, method, path, value=None):
        body = None if value is None else json.dumps(value)
        self.connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {text.decode()}")
        return json.loads(text)

    def median(self, calls):
        """The median time of the calls in seconds."""
        times = []
        for arguments in calls:
            begin = time.perf_counter()
            self.call(*arguments)
            times.append(time.perf_counter() - begin)
        return statistics.median(times)


def feedback(rows, count):
    """Seconds per report, from the first step of the relay to the last."""
    with rows:
        rows.executemany(
            "INSERT INTO feedback (app, device_token, time_reported) VALUES ('default', ?, '2030-01-01 00:00:00.000')",
            ((token(number * 7919 % count),) for number in range(REPORTS)))
    open_reports = "SELECT count(*) FROM feedback WHERE result IS NULL"
    left = REPORTS
    while left == REPORTS:
        left = rows.execute(open_reports).fetchone()[0]
    first, begin = left, time.perf_counter()
    while left:
        left = rows.execute(open_reports).fetchone()[0]
    return (time.perf_counter() - begin) / max(1, first)


def measure_with(count, folder):
    """The seconds per device for each operation, and the megabytes."""
    sandbox, ports = bench.start_sandbox(folder)
    relay, port, database = bench.start_relay(folder, ports, "--set", "apps.default.feedback_interval=1s")
    try:
        rows = register(database, count)
        client = Client(port)
        some = [token(number) for number in range(0, count, max(1, count // REQUESTS))]
        result = {
            "look up a device": client.median([("GET", f"/v1/devices/{t}") for t in some]),
            "register again": client.median([("PUT", f"/v1/devices/{t}") for t in some]),
            "list a page of 100": client.median(
                [("GET", f"/v1/devices?limit=100&cursor={int(count * part / 20)}") for part in range(19)] * 5),
            "list a page of a tag": client.median(
                [("GET", f"/v1/devices?tag=news&limit=100&cursor={int(count * part / 20)}") for part in range(18)] * 5),
            "list a user's devices": client.median(
                [("GET", f"/v1/devices?user_reference=user{number}") for number in range(0, count, max(1, count // 100))]),
        }
        # Only queues the pushes, because `not_before` is a day ahead.
        later = int(time.time()) + 86_400
        begin = time.perf_counter()
        receipt = client.call("POST", "/v1/notifications", {"to": {"all": True}, "alert": "later", "not_before": later})
        result["answer to a notification for all"] = time.perf_counter() - begin
        while client.call("GET", f"/v1/notifications/{receipt['id']}?limit=1")["state"] == "queueing":
            time.sleep(0.002)
        result["queue for all, a device"] = (time.perf_counter() - begin) / count
        queued = client.call("GET", f"/v1/notifications/{receipt['id']}?limit=1")["counts"]["pending"]
        if queued != count:
            raise SystemExit(f"{queued} of {count} devices were queued")
        client.call("DELETE", f"/v1/notifications/{receipt['id']}")

        result["act on feedback, a device"] = feedback(rows, count)
        return result, bench.memory(relay)
    finally:
        bench.stop(relay, sandbox)


def measure():
    with tempfile.TemporaryDirectory() as few, tempfile.TemporaryDirectory() as many:
        (small, small_memory), (large, large_memory) = measure_with(FEW, few), measure_with(MANY, many)
    for name, seconds in large.items():
        bench.row(
            f"{name}, among {MANY:,} devices", [seconds * 1e6], "us", [small[name] * 1e6], f"among {FEW:,}", form="{:,.1f}",
            inverse=True)
    bench.row(f"memory at most, {MANY:,} devices", [large_memory], "MB", [small_memory], f"{FEW:,}", form="{:,.0f}")
