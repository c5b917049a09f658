"""Pushes that leave a full queue per second, with everything that is written down about them."""
import contextlib, os, re, socket, subprocess, tempfile, time

import bench

PUSHES = 100_000
SETTLE = 1.0
# The one that nghttpd has.
DEVICE = "a" * 64


class Sink:
    """The C gateway that counts."""

    def __init__(self, folder, credentials):
        program = bench.compile_c(folder, "Tests/Benchmarks/sink.c", "-lssl", "-lcrypto")
        self.process = subprocess.Popen(
            [program, credentials + "/server.pem"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def tell(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def arrived(self):
        """Seconds from the first byte to the last of those expected, and how many came twice."""
        _, seconds, repeats = self.process.stdout.readline().split()
        return float(seconds), int(repeats)

    def counted(self):
        """How many have come until now, and how many of them came once more."""
        self.tell("count")
        _, different, repeats = self.process.stdout.readline().split()
        return int(different), int(repeats)

    def times(self, path):
        """When each arrived, by its number, in nanoseconds."""
        self.tell("times " + path)
        assert self.process.stdout.readline() == "written\n"
        with open(path) as file:
            return {int(number): int(time) for number, time in map(str.split, file)}

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=10)


def configuration(folder, credentials, gateway, port, *more):
    lines = [
        "apps:", "  default:", f"    gateway: {gateway}", "    host: 127.0.0.1", f"    port: {port}",
        f"    trust: {credentials}/ca.pem", f"    certificate: {credentials}/client.pem", *(f"    {line}" for line in more)]
    path = f"{folder}/{gateway}.yaml"
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")
    return path


def fill(database, count, token="printf('%064x', i)"):
    """A queue as another program fills it, in one transaction."""
    rows = bench.rows(database)
    rows.execute(
        f"""WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
           INSERT INTO push_queue (device_token, payload, expires_at, priority)
           SELECT {token}, printf('{{"aps":{{"alert":"number %d","sound":"default"}}}}', i), 2147483647, 10 FROM n""",
        (count,))
    return rows


def settled(rows, count):
    """Waits until all is settled; returns the seconds from the first write to the last verdict."""
    deadline = time.time() + 120
    while rows.execute("SELECT EXISTS (SELECT 1 FROM push_queue WHERE time_settled IS NULL)").fetchone()[0]:
        bench.oracle(time.time() < deadline, "the queue is not empty after two minutes")
        time.sleep(0.05)
    bench.oracle(
        rows.execute("SELECT count(*) FROM push_queue WHERE state = 'sent'").fetchone()[0] == count, "not all were sent")
    return rows.execute(
        "SELECT (julianday(max(time_settled)) - julianday(min(time_written))) * 86400 FROM push_queue").fetchone()[0]


def check_queue(rows):
    """Returns how many the queue has not as sent, and how often one was handed over once more than it had to be."""
    lost, twice = rows.execute("SELECT total(state <> 'sent'), sum(attempts) - count(*) FROM push_queue").fetchone()
    bench.oracle(lost == 0 and twice == 0, f"{lost:.0f} pushes of the queue were not sent, {twice} were tried twice")
    return int(lost), twice


def row_of_losses(gateway, counts):
    """Of all runs together. If anything of the relay's is not zero, the benchmark has failed before."""
    lost, twice = (sum(numbers) for numbers in zip(*counts))
    bench.row_of_text(f"pushes lost, pushes sent twice, {gateway}", f"{lost}, {twice} of {PUSHES * len(counts):,}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def nghttpd(folder, credentials):
    """Its port. It answers 200 to whatever is posted to the one device that it has."""
    os.makedirs(folder + "/root/3/device")
    open(f"{folder}/root/3/device/{DEVICE}", "w").close()
    port = free_port()
    server = subprocess.Popen(
        ["nghttpd", "-a", "127.0.0.1", "-m", "1000", "-d", folder + "/root", str(port), credentials + "/server.pem",
         credentials + "/server.pem"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.05)
        yield port
    finally:
        bench.stop(server)


def measure_http2():
    print("drain, HTTP/2", flush=True)
    found, limits, counts = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        credentials = bench.make_credentials(folder)
        with open(folder + "/payload", "w") as file:
            file.write('{"aps":{"alert":"number 12345","sound":"default"}}')
        with nghttpd(folder, credentials) as port:
            for _ in range(bench.RUNS):
                text = subprocess.run(
                    ["h2load", "-c1", "-m1000", f"-n{PUSHES}", "-d", folder + "/payload", "-H", "apns-topic: com.example.PushChat",
                     "-H", "apns-push-type: alert", "-H", "apns-priority: 10", "-H", "apns-expiration: 2147483647",
                     f"https://127.0.0.1:{port}/3/device/{DEVICE}"], check=True, capture_output=True, text=True).stdout
                bench.oracle(f"{PUSHES} 2xx" in text, text)
                limits.append(float(re.search(r"([\d.]+) req/s", text).group(1)))
                with tempfile.TemporaryDirectory() as own:
                    relay, _, database = bench.start_configured(own, None)
                    bench.stop(relay)
                    rows = fill(database, PUSHES, f"'{DEVICE}'")
                    relay, _, _ = bench.start_configured(own, configuration(own, credentials, "http2", port))
                    found.append(PUSHES / settled(rows, PUSHES))
                    bench.stop(relay)
                    # nghttpd does not count; the queue does.
                    counts.append(check_queue(rows))
    bench.row("pushes drained, HTTP/2", found, "/s", limits, "h2load -c1 -m1000, no queue", "0.25")
    row_of_losses("HTTP/2", counts)


def measure():
    print("drain, binary protocol", flush=True)
    found, single, batched = [], [], []
    memories, counts = [], []
    with tempfile.TemporaryDirectory() as folder:
        credentials = bench.make_credentials(folder)
        sink = Sink(folder, credentials)
        client = bench.compile_c(folder, "Tests/Clients/gateway_client.c", "-lssl", "-lcrypto")
        for number in range(bench.RUNS):
            for results, each in ((single, ["1"]), (batched, [])):
                sink.tell(f"expect {PUSHES}")
                subprocess.run(
                    [client, "127.0.0.1", str(sink.port), credentials + "/client.pem", credentials + "/ca.pem", str(PUSHES),
                     *each], check=True, stdout=subprocess.DEVNULL)
                results.append(PUSHES / sink.arrived()[0])
            with tempfile.TemporaryDirectory() as own:
                # The queue is full before the relay is there.
                relay, _, database = bench.start_configured(own, None)
                bench.stop(relay)
                rows = fill(database, PUSHES)
                sink.tell(f"expect {PUSHES}")
                relay, _, _ = bench.start_configured(
                    own, configuration(own, credentials, "binary", sink.port, f"settle: {SETTLE:.0f}s"))
                sink.arrived()
                # The protocol's yes is silence, which is not the relay's time.
                found.append(PUSHES / (settled(rows, PUSHES) - SETTLE))
                memories.append(bench.memory(relay))
                bench.stop(relay)
                check_queue(rows)
                # After the relay's end: what came twice may have come later than the last one.
                different, repeats = sink.counted()
                bench.oracle(different == PUSHES and repeats == 0, f"{different} pushes came, and {repeats} came twice")
                counts.append((PUSHES - different, repeats))
        sink.end()
    bench.row(
        "pushes drained, binary", found, "/s", single, "C on libssl, one write per frame, no queue", "1.0")
    bench.row("the same", found, "/s", batched, "C, as many frames as fit into a record")
    bench.row("memory while draining", memories, "MB")
    row_of_losses("binary", counts)
