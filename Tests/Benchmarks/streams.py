"""Pages that listen: what an open event stream takes, and how late the last of a message's events is."""
import json, os, resource, subprocess, sys, tempfile

import bench, posts

CLIENT = os.path.join(bench.ROOT, "Tests", "Clients", "event_streams.py")
STREAMS, ROOM = bench.scaled(10_000, 2_000), 100
RATE, SECONDS = 50, 3
# A run takes ten seconds, most of them for opening the streams.
RUNS = min(bench.RUNS, 3)


def streams_that_fit():
    """The relay takes three quarters of the files that a process may open as connections, and seven eighths of these as
    streams; the client wants 1,000 beside its own."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files == resource.RLIM_INFINITY:
        return STREAMS
    return max(ROOM, min(STREAMS, files * 3 // 4 * 7 // 8 // ROOM * ROOM, (files - 1000) // ROOM * ROOM))


def measure_one(streams):
    """Kilobytes for a stream, and milliseconds from a post to the latest of its events."""
    with tempfile.TemporaryDirectory() as folder:
        relay, port, database = bench.start_configured(folder, None)
        try:
            posts.members(database, streams, ROOM)
            before = bench.memory(relay, "VmRSS")
            played = subprocess.run(
                [sys.executable, CLIENT, *map(str, (port, streams, streams // ROOM, RATE, SECONDS)), "joined"],
                check=True, capture_output=True, text=True)
            result = json.loads(played.stdout)
            expected, seen, doubles = result["expected"], result["seen"], result["doubles"]
            bench.oracle(expected == RATE * SECONDS * ROOM, f"{expected} events were to come")
            bench.oracle(seen == expected, f"{seen} of {expected} events came")
            bench.oracle(doubles == 0, f"{doubles} events came twice")
            return (bench.memory(relay) - before) * 1024 / streams, result["latest_ms"]
        finally:
            bench.kill(relay)


def measure():
    streams = streams_that_fit()
    found = [measure_one(streams) for _ in range(RUNS)]
    fewer = "" if streams == STREAMS else ", as many as the limit of open files allows"
    bench.row("memory of an open event stream", [memory for memory, _ in found], "kB", form="{:,.1f}")
    bench.row(f"{streams:,} event streams{fewer}: the latest event", [latest for _, latest in found], "ms")
