"""Event streams: the memory of an open stream, and the delay of the last event of a message. Streams of ntfy's apps are
compared with those of /events."""
import hashlib, json, os, resource, subprocess, sys, tempfile

import bench, posts

CLIENT = os.path.join(bench.ROOT, "Tests", "Clients", "event_streams.py")
STREAMS, ROOM = bench.scaled(10_000, 2_000), 100
RATE, SECONDS = 50, 3
# A run takes ten seconds, most of them for opening the streams.
RUNS = min(bench.RUNS, 3)


def streams_that_fit():
    """The number of streams.

    The relay uses three quarters of the open files that a process may have for connections, and seven eighths of these
    for streams. The client needs 1,000 files in addition to its own streams.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files == resource.RLIM_INFINITY:
        return STREAMS
    return max(ROOM, min(STREAMS, files * 3 // 4 * 7 // 8 // ROOM * ROOM, (files - 1000) // ROOM * ROOM))


def credentials(rows, count):
    """Gives each member a credential that the client of this part knows."""
    rows.execute("BEGIN")
    rows.executemany(
        "INSERT INTO credentials (name, hash, member) SELECT 'phone', ?, member_id FROM active_users WHERE udid = ?",
        ((hashlib.sha256(f"pcc_{number:043d}".encode()).digest(), f"{number:040d}") for number in range(count)))
    rows.execute("COMMIT")


def measure_one(streams, *options):
    """Kilobytes per stream, and milliseconds from a post to its last event."""
    with tempfile.TemporaryDirectory() as folder:
        relay, port, database = bench.start_configured(folder, None)
        try:
            credentials(posts.members(database, streams, ROOM), streams)
            played = subprocess.run(
                [sys.executable, CLIENT, *map(str, (port, streams, streams // ROOM, RATE, SECONDS)), "joined",
                 *options, str(relay.pid)], check=True, capture_output=True, text=True)
            result = json.loads(played.stdout)
            expected, seen, doubles = result["expected"], result["seen"], result["doubles"]
            bench.oracle(expected == RATE * SECONDS * ROOM, f"the client expected {expected} events")
            bench.oracle(seen == expected, f"{seen} of {expected} events arrived")
            bench.oracle(doubles == 0, f"{doubles} events arrived twice")
            return result["stream_kb"], result["latest_ms"]
        finally:
            bench.kill(relay)


def measure():
    streams = streams_that_fit()
    runs = [(measure_one(streams), measure_one(streams, "apps")) for _ in range(RUNS)]
    events, apps = zip(*runs)
    fewer = "" if streams == STREAMS else ", as many as the limit of open files allows"
    bench.row("memory of an open event stream", [memory for memory, _ in events], "kB", form="{:,.1f}")
    bench.row(f"{streams:,} event streams{fewer}: the latest event", [latest for _, latest in events], "ms")
    bench.row(
        "memory of an open stream of ntfy's apps", [memory for memory, _ in apps], "kB", [memory for memory, _ in events],
        "/events", goal="1.2", form="{:,.1f}")
    bench.row(
        f"{streams:,} streams of ntfy's apps{fewer}: the latest event", [latest for _, latest in apps], "ms",
        [latest for _, latest in events], "/events", goal="1.2")
