"""Shared code of the benchmarks: starts and stops programs in temporary folders, and builds the table."""
import json, os, re, signal, sqlite3, statistics, subprocess, sys, time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
PUSHCHAT = os.path.join(ROOT, ".build-release", "release", "pushchat")
QUICK = bool(os.environ.get("QUICK"))
RUNS = 1 if QUICK else int(os.environ.get("RUNS", "5"))


def scaled(full, quick):
    """The number `full`, or `quick` if QUICK is set."""
    return quick if QUICK else full


def use(executable):
    """Measures this executable from now on, instead of the release build of this folder."""
    global PUSHCHAT
    PUSHCHAT = os.path.abspath(executable)


def start(folder, name, arguments, fields):
    """Starts a process and waits until its log has all `fields`: pairs of a message and a field of it."""
    path = os.path.join(folder, name + ".log")
    with open(path, "w") as log:
        process = subprocess.Popen(
            [PUSHCHAT, *arguments, "--log-format", "json"], cwd=folder, stderr=log, stdout=subprocess.DEVNULL)
    found, deadline = {}, time.time() + 20
    while len(found) < len(fields):
        if time.time() > deadline or process.poll() is not None:
            sys.exit(f"{name} did not start. Its log:\n{open(path).read()}")
        for line in open(path):
            if not line.endswith("\n"):
                continue
            entry = json.loads(line)
            for message, field in fields:
                if entry["message"] == message and field in entry:
                    found[message, field] = entry[field]
        time.sleep(0.002)
    return process, [found[key] for key in fields]


def start_sandbox(folder, *more, listeners=("binary", "feedback", "control")):
    """Returns the process and the ports of its `listeners`."""
    fields = [("Sandbox started", name) for name in listeners]
    process, addresses = start(
        folder, "sandbox",
        ["sandbox", "--directory", folder + "/sandbox", "--binary-port", "0", "--feedback-port", "0", "--http2-port", "0",
         "--channels-port", "0", "--control-port", "0", "--webpush-port", "0", "--fcm-port", "0", "--proxy-port", "0", "--inbox-limit", "1000", *more], fields)
    return process, [address.rsplit(":", 1)[1] for address in addresses]


def make_credentials(folder):
    """The folder with the files that a sandbox creates when it starts: ca.pem, server.pem, client.pem and more."""
    sandbox, _ = start_sandbox(folder)
    stop(sandbox)
    return folder + "/sandbox"


def start_relay(folder, ports, *more):
    """A relay that pushes to the sandbox over the binary protocol. Returns the process, its port and its database."""
    printed = subprocess.run(
        [PUSHCHAT, "sandbox", "--print-config", "--directory", folder + "/sandbox", "--binary-port", ports[0],
         "--feedback-port", ports[1], "--gateway", "binary"], check=True, capture_output=True, text=True).stdout
    with open(folder + "/relay.yaml", "w") as file:
        file.write(printed)
    return start_configured(folder, folder + "/relay.yaml", *more)


def start_configured(folder, configuration, *more):
    """A relay with this configuration. Without one, it has no gateway to push to."""
    database = folder + "/pushchat.db"
    process, (port,) = start(
        folder, "relay",
        ["serve", *(["--config", configuration] if configuration else []), "--port", "0", "--database", database, *more],
        [("listening", "port")])
    return process, int(port), database


def make_database(folder):
    """Lets a relay create an empty database. Returns its path and the CPU seconds of a start."""
    relay, _, database = start_configured(folder, None)
    seconds = cpu(relay)
    stop(relay)
    return database, seconds


def compile_c(folder, source, *libraries):
    program = os.path.join(folder, os.path.basename(source).removesuffix(".c"))
    if not os.path.exists(program):
        subprocess.run(["cc", "-O2", "-pthread", "-o", program, os.path.join(ROOT, source), *libraries], check=True)
    return program


def rows(database):
    connection = sqlite3.connect(database, isolation_level=None, timeout=60)
    # Commits on this connection slow down the relay only through the lock.
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def memory(process, field="VmHWM"):
    """Peak resident memory in megabytes. With VmRSS, the current value."""
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field + ":")) / 1024


def cpu(process):
    """CPU seconds that the process has used until now, in user and system mode."""
    with open(f"/proc/{process.pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stop(*processes):
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        process.wait(timeout=60)


def kill(*processes):
    """Kills processes that could still have work for minutes."""
    for process in processes:
        process.kill()
        process.wait()


# The table: name, measured, limit, ratio, goal.
table = []


def figure(values, form):
    middle = form.format(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({form.format(min(values))} to {form.format(max(values))})"


def quotients(values, others):
    """The quotients of values that belong to the same run."""
    return [value / other for value, other in zip(values, others)]


def row(what, values, unit, limits=None, against="", goal="", form="{:,.0f}", inverse=False):
    """Adds a line: the medians of the runs with their spread, and the ratios within the same run."""
    line = {"what": what, "measured": figure(values, form) + " " + unit, "limit": "", "ratio": "", "goal": goal}
    if limits:
        line["limit"] = f"{against}: {figure(limits, form)}"
        line["ratio"] = figure(quotients(limits, values) if inverse else quotients(values, limits), "{:.2f}")
    add(line)


def row_of_text(what, text):
    """Adds a line for counts, which have no median."""
    add({"what": what, "measured": text, "limit": "", "ratio": "", "goal": ""})


def add(line):
    table.append(line)
    print(f"  {line['what']}: {line['measured']}  {line['limit']}  {line['ratio']}", flush=True)


def oracle(holds, what):
    """Fails the whole benchmark unless the condition holds."""
    if not holds:
        sys.exit(f"ORACLE FAILED: {what}")


# The lines that docs/performance.md shows. The others are only in results.md.
HEADLINES = {
    "messages accepted, rooms of 2", "messages delivered, rooms of 2", "CPU of a message and its push, rooms of 2",
    "messages accepted, rooms of 1,000", "pushes delivered, rooms of 1,000",
    "post to response at half of the load, rooms of 2, p99",
    "pushes drained, binary", "pushes drained, HTTP/2", "CPU of a push, HTTP/2", "pushes drained, FCM",
    "pushes to browsers drained",
    "post to arrival, quiet, p50", "post to arrival, quiet, p99", "p99 while a room of 100,000 is served",
    "memory of an open event stream", "10,000 event streams: the latest event",
    "10,000 silent connections: responses to others, p99", "10,000 unread event streams: responses to others, p99",
    "start to first answer", "memory, idle", "memory, 1,000,000 queued",
    "messages accepted, PostgreSQL, one relay", "pushes drained, PostgreSQL, one relay",
}


def markdown(against, lines=None):
    """The table of these lines, by default of all."""
    text = [f"| what | measured | {against} | ratio | goal |", "| --- | --- | --- | --- | --- |"]
    return "\n".join(text + [
        f"| {line['what']} | {line['measured']} | {line['limit']} | {line['ratio']} | {line['goal']} |"
        for line in (table if lines is None else lines)])


def headlines():
    """The lines for docs/performance.md: medians without their spread, and other limits if these have a goal."""
    chosen, shows = [], False
    for line in table:
        shows = line["what"] in HEADLINES or shows and line["what"] == "the same"
        if shows and (line["what"] != "the same" or line["goal"]):
            chosen.append({key: re.sub(r" \([^()]* to [^()]*\)", "", text) for key, text in line.items()})
    return chosen
