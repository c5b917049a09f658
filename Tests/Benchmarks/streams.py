"""Event streams: the memory of an open stream, and the delay of the last event of a message."""
import json, os, resource, subprocess, sys, tempfile

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


def measure_one(streams):
    """Kilobytes per stream, and milliseconds from a post to its last event."""
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
            bench.oracle(expected == RATE * SECONDS * ROOM, f"the client expected {expected} events")
            bench.oracle(seen == expected, f"{seen} of {expected} events arrived")
            bench.oracle(doubles == 0, f"{doubles} events arrived twice")
            return (bench.memory(relay) - before) * 1024 / streams, result["latest_ms"]
        finally:
            bench.kill(relay)


def measure():
    streams = streams_that_fit()
    found = [measure_one(streams) for _ in range(RUNS)]
    fewer = "" if streams == STREAMS else ", as many as the limit of open files allows"
    bench.row("memory of an open event stream", [memory for memory, _ in found], "kB", form="{:,.1f}")
    bench.row(f"{streams:,} event streams{fewer}: the latest event", [latest for _, latest in found], "ms")
