"""Two client libraries from PyPI, which keep no queue, with the same gateways as the relay."""
import os, subprocess, sys, tempfile

import bench, drain, gateways

AIOAPNS, PUSHJACK = "4.0", "1.6.0"
# Fewer pushes than for the relay, which is much faster.
HTTP2_PUSHES = 10_000
RUNS = min(bench.RUNS, 3)


def install(folder):
    """The path of a Python with both libraries, or None if they cannot be installed."""
    commands = (
        [sys.executable, "-m", "venv", folder + "/venv"],
        [folder + "/venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1",
         f"aioapns=={AIOAPNS}", f"pushjack=={PUSHJACK}"],
    )
    for command in commands:
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode != 0:
            said = (ran.stderr.strip() or ran.stdout.strip() or "no reason given").splitlines()
            print(f"  peers are left out: {said[-1]}", flush=True)
            return None
    return folder + "/venv/bin/python"


def run(python, program, *arguments):
    path = os.path.join(os.path.dirname(__file__), program)
    ran = subprocess.run([python, path, *map(str, arguments)], capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{program} failed:\n{ran.stderr}")
    return ran.stdout


def aioapns(python, folder, credentials):
    """The pushes per second of each run."""
    with gateways.nghttpd(folder, credentials) as port:
        return [
            float(run(
                python, "peer_aioapns.py", port, credentials + "/ca.pem", credentials + "/client.pem", gateways.DEVICE,
                HTTP2_PUSHES))
            for _ in range(RUNS)]


def pushjack(python, folder, credentials):
    """The pushes per second of each run, and the numbers of lost and duplicate pushes."""
    found, counts = [], []
    sink = gateways.Sink(folder, credentials)
    for _ in range(RUNS):
        # The sink does not report the last push, because pushes can be lost, and the test does not wait for those.
        sink.tell("expect 0")
        run(python, "peer_pushjack.py", sink.port, credentials + "/client.pem", drain.PUSHES)
        times = sink.times(folder + "/times").values()
        found.append(len(times) / (max(times) - min(times)) * 1e9)
        counts.append((drain.PUSHES - len(times), sink.counted()[1]))
    sink.end()
    return found, counts


def measure():
    with tempfile.TemporaryDirectory() as folder:
        if not (python := install(folder)):
            return
        credentials = bench.make_credentials(folder)
        bench.row(f"for comparison: aioapns {AIOAPNS}, HTTP/2, no queue", aioapns(python, folder, credentials), "/s")
        found, counts = pushjack(python, folder, credentials)
        bench.row(f"for comparison: pushjack {PUSHJACK}, binary, no queue", found, "/s")
        drain.row_of_losses(f"pushjack {PUSHJACK}", counts, drain.PUSHES * RUNS)
