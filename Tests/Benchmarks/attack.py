"""Limits under attack: the effect on the relay's other clients, and the memory that the relay takes and frees again.

The attackers run on this machine, and no limit applies to local connections and requests. This corresponds to a proxy that
forwards everything.
"""
import json, os, resource, subprocess, sys, tempfile, time

import bench, posts

CLIENT = os.path.join(bench.ROOT, "Tests", "Clients", "attack.py")
SECONDS = bench.scaled(20, 5)
# Seconds after which the relay must have freed everything that an attack needed.
AFTER = 30
MOST = bench.scaled(10_000, 2_000)
HEADERS = 1_000
UDIDS = bench.scaled(1_000_000, 50_000)
ROOM = 100
# The goals: milliseconds at the 99th percentile, and peak megabytes.
LATEST, MEMORY = 100, 300


def connections_that_fit():
    """The number of attacking connections.

    The relay uses three quarters of the open files that a process may have for connections, and seven eighths of these
    for streams. Some stay free for the neighbours.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files == resource.RLIM_INFINITY:
        return MOST
    return max(ROOM, min(MOST, (files * 3 // 4 * 7 // 8 - 200) // ROOM * ROOM))


def neighbours(port):
    played = subprocess.run(
        [sys.executable, CLIENT, "neighbours", str(port), str(SECONDS)], check=True, capture_output=True, text=True)
    result = json.loads(played.stdout)
    bench.oracle(result["failed"] == 0, f"{result['failed']} of the neighbours' messages were rejected")
    bench.oracle(result["lost"] == 0, f"{result['lost']} of the neighbours' messages did not arrive")
    return result["p99"]


def measure_one(kind, count):
    """Milliseconds at the 99th percentile, idle and under attack, and megabytes before, at the peak, and afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        configuration = os.path.join(folder, "relay.yaml")
        with open(configuration, "w") as file:
            # With this limit, the relay keeps memory for each udid.
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
                bench.oracle(attacker.stdout.readline() == "ready\n", f"the attacker exited: {kind}")
                attacked = neighbours(port)
                if kind == "udids":
                    attacker.wait(timeout=1200)
                most = bench.memory(relay)
            finally:
                bench.kill(attacker)
            time.sleep(AFTER)
            bench.oracle(relay.poll() is None, f"the relay exited: {kind}")
            return quiet, attacked, before, most, bench.memory(relay, "VmRSS")
        finally:
            bench.kill(relay)


def measure():
    most = connections_that_fit()
    for kind, count, what in [
        ("connections", most, f"{most:,} silent connections"),
        ("readers", most, f"{most:,} unread event streams"),
        ("headers", HEADERS, f"headers on {HEADERS:,} connections, one byte at a time"),
        ("udids", UDIDS, f"{UDIDS:,} udids"),
    ]:
        quiet, attacked, before, peak, after = measure_one(kind, count)
        bench.row(
            f"{what}: responses to others, p99", [attacked], "ms", [quiet], "idle", goal=f"{LATEST} ms",
            form="{:,.1f}")
        bench.row("the same: peak memory", [peak], "MB", [before], "before", goal=f"{MEMORY} MB")
        bench.row(f"the same: memory {AFTER} s after", [after], "MB", [before], "before")
