"""The memory and the start time of a relay with an empty and with a full database."""
import http.client, subprocess, tempfile, time

import bench, drain, gateways, posts

MANY = bench.scaled(1_000_000, 100_000)


def first_answer(folder):
    """Milliseconds from the start of the process to its first response, and the process."""
    port = gateways.free_port()
    begin = time.perf_counter()
    # Does not wait for the log, which can be later than the response.
    process = subprocess.Popen(
        [bench.PUSHCHAT, "serve", "--port", str(port), "--database", folder + "/pushchat.db"], cwd=folder,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/readyz")
            assert connection.getresponse().status == 200
            return (time.perf_counter() - begin) * 1000, process
        except ConnectionRefusedError:
            time.sleep(0.001)


def measure_one(fill=None):
    with tempfile.TemporaryDirectory() as folder:
        if fill:
            database, _ = bench.make_database(folder)
            # Empties the write-ahead log, as a relay does when it stops.
            rows = fill(database)
            rows.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            rows.close()
        milliseconds, relay = first_answer(folder)
        time.sleep(2)
        memory = bench.memory(relay)
        bench.stop(relay)
        return milliseconds, memory


def measure():
    idle, devices, queued = [], [], []
    for _ in range(bench.RUNS):
        idle.append(measure_one())
        devices.append(measure_one(lambda database: posts.members(database, 100_000, 100)))
        queued.append(measure_one(lambda database: drain.fill(database, MANY)))
    times, memories = (lambda found: [one for one, _ in found]), (lambda found: [one for _, one in found])
    bench.row("start to first answer", times(idle), "ms")
    bench.row(f"the same with {MANY:,} queued", times(queued), "ms", goal="under 150 ms")
    bench.row("memory, idle", memories(idle), "MB", goal="under 40 MB")
    bench.row("memory, 100,000 devices", memories(devices), "MB", memories(idle), "idle", "no growth", form="{:,.1f}")
    bench.row(f"memory, {MANY:,} queued", memories(queued), "MB", memories(idle), "idle", "no growth", form="{:,.1f}")
