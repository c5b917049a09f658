"""What the benchmarks share: the release build, started and stopped in a folder of its own."""
import json, os, signal, subprocess, sys, time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
PUSHCHAT = os.path.join(ROOT, ".build-release", "release", "pushchat")


def start(folder, name, arguments, fields):
    """Starts a process and waits for the log lines that bring the wanted fields: {message: field}."""
    path = os.path.join(folder, name + ".log")
    with open(path, "w") as log:
        process = subprocess.Popen(
            [PUSHCHAT, *arguments, "--log-format", "json"], cwd=folder, stderr=log, stdout=subprocess.DEVNULL)
    found, deadline = {}, time.time() + 20
    while len(found) < len(fields):
        if time.time() > deadline or process.poll() is not None:
            sys.exit(f"{name} did not start; see its log:\n{open(path).read()}")
        for line in open(path):
            if not line.endswith("\n"):
                continue
            entry = json.loads(line)
            for message, field in fields:
                if entry["message"] == message and field in entry:
                    found[message, field] = entry[field]
        time.sleep(0.05)
    return process, [found[key] for key in fields]


def start_sandbox(folder, *more):
    """Returns the process and its ports: binary, feedback, control."""
    fields = [("Sandbox started", name) for name in ("binary", "feedback", "control")]
    process, addresses = start(
        folder, "sandbox",
        ["sandbox", "--directory", folder + "/sandbox", "--binary-port", "0", "--feedback-port", "0", "--http2-port", "0",
         "--control-port", "0", "--inbox-limit", "1000", *more], fields)
    return process, [address.rsplit(":", 1)[1] for address in addresses]


def start_relay(folder, ports, *more):
    """A relay that pushes to the sandbox over the binary protocol. Returns the process, its port and its database."""
    printed = subprocess.run(
        [PUSHCHAT, "sandbox", "--print-config", "--directory", folder + "/sandbox", "--binary-port", ports[0],
         "--feedback-port", ports[1], "--gateway", "binary"], check=True, capture_output=True, text=True).stdout
    with open(folder + "/relay.yaml", "w") as file:
        file.write(printed)
    database = folder + "/pushchat.db"
    process, (port,) = start(
        folder, "relay",
        ["serve", "--config", folder + "/relay.yaml", "--port", "0", "--database", database, *more],
        [("listening", "port")])
    return process, int(port), database


def most_memory(process):
    """Megabytes of resident memory at the most."""
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) // 1024


def stop(*processes):
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        process.wait(timeout=40)
