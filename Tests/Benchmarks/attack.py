"""Limits under attack: what the relay's other clients notice, and what memory it takes and gives back.

The attackers come from this machine, whose connections and requests no limit counts: as behind a proxy that lets all of
it through.
"""
import json, os, resource, subprocess, sys, tempfile, time

import bench, posts

CLIENT = os.path.join(bench.ROOT, "Tests", "Clients", "attack.py")
SECONDS = bench.scaled(20, 5)
# After this long nothing that was needed for an attack may be left.
AFTER = 30
MOST = bench.scaled(10_000, 2_000)
HEADERS = 1_000
UDIDS = bench.scaled(1_000_000, 50_000)
ROOM = 100
# What is to hold.
LATEST, MEMORY = 100, 300


def connections_that_fit():
    """The relay takes three quarters of the files that a process may open as connections, and seven eighths of these as
    streams; some are left for the neighbours."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files == resource.RLIM_INFINITY:
        return MOST
    return max(ROOM, min(MOST, (files * 3 // 4 * 7 // 8 - 200) // ROOM * ROOM))


def neighbours(port):
    played = subprocess.run(
        [sys.executable, CLIENT, "neighbours", str(port), str(SECONDS)], check=True, capture_output=True, text=True)
    result = json.loads(played.stdout)
    bench.oracle(result["failed"] == 0, f"{result['failed']} of the neighbours' messages were refused")
    bench.oracle(result["lost"] == 0, f"{result['lost']} of the neighbours' messages did not arrive")
    return result["p99"]


def measure_one(kind, count):
    """Milliseconds at the 99th percentile, in quiet and under attack; megabytes before, at the most, and after."""
    with tempfile.TemporaryDirectory() as folder:
        configuration = os.path.join(folder, "relay.yaml")
        with open(configuration, "w") as file:
            # Else nothing is remembered of a udid.
            file.write("http: {rate_per_member: 100/s burst 100}\n")
        relay, port, database = bench.start_configured(folder, configuration)
        try:
            posts.members(database, MOST, ROOM)
            quiet = neighbours(port)
            before = bench.memory(relay, "VmRSS")
            attacker = subprocess.Popen(
                [sys.executable, CLIENT, kind, str(port), str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True)
            try:
                bench.oracle(attacker.stdout.readline() == "ready\n", f"the attacker ended: {kind}")
                attacked = neighbours(port)
                if kind == "udids":
                    attacker.wait(timeout=1200)
                most = bench.memory(relay)
            finally:
                bench.kill(attacker)
            time.sleep(AFTER)
            bench.oracle(relay.poll() is None, f"the relay has ended: {kind}")
            return quiet, attacked, before, most, bench.memory(relay, "VmRSS")
        finally:
            bench.kill(relay)


def measure():
    most = connections_that_fit()
    for kind, count, what in [
        ("connections", most, f"{most:,} connections that say nothing"),
        ("readers", most, f"{most:,} event streams that nobody reads"),
        ("headers", HEADERS, f"headers on {HEADERS:,} connections, a byte at a time"),
        ("udids", UDIDS, f"{UDIDS:,} udids"),
    ]:
        quiet, attacked, before, peak, after = measure_one(kind, count)
        bench.row(
            f"{what}: answers to others, p99", [attacked], "ms", [quiet], "in quiet", goal=f"{LATEST} ms",
            form="{:,.1f}")
        bench.row("the same: memory at the most", [peak], "MB", [before], "before", goal=f"{MEMORY} MB")
        bench.row(f"the same: memory {AFTER} s after", [after], "MB", [before], "before")
