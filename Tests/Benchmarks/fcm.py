"""The rate at which pushes for Android leave a full queue to FCM, and their cost beside pushes for iPhones."""
import contextlib, http.server, json, os, ssl, subprocess, tempfile, threading, time, urllib.request

import bench, drain, gateways, latency

PUSHES = bench.scaled(100_000, 20_000)
# The longer queue, for the growth of memory.
MANY = 4 * PUSHES
TOKEN = "cAAAAAAAAAAAAAAAAAAAA1:APA91b" + "x" * 120
PROJECT = "example"
PATH = f"v1/projects/{PROJECT}/messages:send"
# The number of pushes for Android that wait while messages for iPhones are timed.
BESIDE = bench.scaled(20_000, 5_000)
MESSAGE = '{"android":{"priority":"HIGH"},"data":{"title":"name0","body":"number 12345"}}'


class TokenEndpoint(http.server.BaseHTTPRequestHandler):
    """Google's token endpoint: it issues the same access token to everybody."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        body = b'{"access_token":"ya29.benchmark","expires_in":3599,"token_type":"Bearer"}'
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def token_endpoint(credentials):
    """Runs the token endpoint and yields its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), TokenEndpoint)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(credentials + "/server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()


def make_account(folder, tokens):
    """Writes a service account with a new key, whose access tokens come from this port."""
    key = subprocess.run(
        ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], check=True, capture_output=True, text=True)
    path = folder + "/service-account.json"
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
        json.dump({
            "type": "service_account", "project_id": PROJECT, "private_key_id": "benchmark", "private_key": key.stdout,
            "client_email": f"relay@{PROJECT}.iam.gserviceaccount.com", "client_id": "1",
            "token_uri": f"https://127.0.0.1:{tokens}/token"}, file)
    return path


@contextlib.contextmanager
def started(credentials, account, port, count):
    """Starts a relay with a full queue. Yields its process, its database, and the CPU seconds of a start."""
    with tempfile.TemporaryDirectory() as folder:
        database, start = bench.make_database(folder)
        rows = bench.rows(database)
        rows.execute(
            """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
               INSERT INTO push_queue (device_token, payload) SELECT ?, replace(?, '12345', i) FROM n""",
            (count, TOKEN, MESSAGE))
        rows.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with open(folder + "/relay.yaml", "w") as file:
            json.dump({
                "apps": {"default": {
                    "gateway": "fcm", "host": "127.0.0.1", "port": port, "trust": credentials + "/ca.pem",
                    "service_account": account}}}, file)
        relay, _, _ = bench.start_configured(folder, folder + "/relay.yaml")
        try:
            yield relay, rows, start
        finally:
            bench.kill(relay)


def drain_relay(credentials, account, port, count=PUSHES):
    with started(credentials, account, port, count) as (relay, rows, start):
        settled = drain.wait_until_settled(rows)
        cpu, memory = bench.cpu(relay) - start, bench.memory(relay)
        twice = drain.check_queue(rows, count)
        bench.oracle(twice == 0, f"{twice} pushes were tried twice")
        return drain.Drain(count / (settled - drain.first_sent(rows)), cpu / count * 1e6, memory, twice)


# Each of these hits a third of the pushes for as long as the relay runs.
FAULTS = [
    {"action": "status", "reason": "UNAVAILABLE"}, {"action": "status", "reason": "SENDER_ID_MISMATCH"}, {"action": "close"}]


def beside(folder, credentials, sink, faults):
    """The percentiles of pushes for iPhones beside an app whose pushes FCM accepts, or refuses in several ways."""
    sandbox, (port, control) = bench.start_sandbox(folder, listeners=("fcm", "control"))
    try:
        for fault in faults:
            body = json.dumps({"protocol": "fcm", "every": 3, "times": 1_000_000, **fault}).encode()
            urllib.request.urlopen(urllib.request.Request(
                f"http://127.0.0.1:{control}/faults", body, {"Content-Type": "application/json"})).close()
        settings = (
            f"  second:\n    gateway: fcm\n    host: 127.0.0.1\n    port: {port}\n    trust: {folder}/sandbox/ca.pem\n"
            f"    service_account: {folder}/sandbox/service-account.json\n")
        fill = (
            """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
               INSERT INTO push_queue (app, device_token, payload) SELECT 'second', ? || i, ? FROM n""",
            (BESIDE, TOKEN, MESSAGE))
        return latency.through_relay(folder, credentials, sink, other=(settings, fill))
    finally:
        bench.kill(sandbox)


def measure():
    found, many, limits, apple = [], [], [], []
    good, failing = [], []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        credentials = bench.make_credentials(folder)
        port = stack.enter_context(gateways.nghttpd(folder, credentials, PATH))
        account = make_account(folder, stack.enter_context(token_endpoint(credentials)))
        os.makedirs(folder + "/apple")
        apple_port = stack.enter_context(gateways.nghttpd(folder + "/apple", credentials))
        sink = gateways.Sink(folder, credentials)
        body = '{"message":{"token":"%s",%s}' % (TOKEN, MESSAGE[1:])
        headers = ["authorization: Bearer ya29.benchmark", "content-type: application/json"]
        for _ in range(bench.RUNS):
            limits.append(drain.h2load(folder, port, 100, f"/{PATH}", body, headers, PUSHES))
            found.append(drain_relay(credentials, account, port))
            many.append(drain_relay(credentials, account, port, MANY))
            apple.append(drain.drain_http2(credentials, apple_port))
            for faults, times in (([], good), (FAULTS, failing)):
                with tempfile.TemporaryDirectory() as own:
                    times.append(beside(own, credentials, sink, faults))
        sink.end()
    bench.row("pushes drained, FCM", [run.rate for run in found], "/s", limits, "h2load -c1 -m100, no queue", "0.6")
    bench.row(
        "CPU of a push, FCM", [run.cpu for run in found], "us", [run.cpu for run in apple], "HTTP/2 to Apple", form="{:,.1f}",
        inverse=True)
    bench.row(
        f"memory while draining, FCM, {MANY:,} queued", [run.memory for run in many], "MB", [run.memory for run in found],
        f"{PUSHES:,} queued", "no growth", form="{:,.1f}")
    bench.row(
        "p99 of a push for an iPhone beside an app that FCM refuses", [p99 for _, p99 in failing], "ms",
        [p99 for _, p99 in good], "FCM accepts all", "at least 0.5", "{:,.2f}", inverse=True)
    drain.row_of_losses("FCM", [(0, run.twice) for run in found + many], (PUSHES + MANY) * len(found))
