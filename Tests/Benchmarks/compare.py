"""Compares two builds in alternating runs. The ratios show which one is faster, even if the machine does other work."""
import shutil, tempfile

import bench, drain, gateways, latency, posts


def measure_build(executable, folder, credentials, sink, port):
    """Measures one run of one build. Returns the value, unit and format for each line of the table."""
    bench.use(executable)
    room = posts.deliver(folder, credentials, sink, 2)
    binary, http2 = drain.drain_binary(credentials, sink), drain.drain_http2(credentials, port)
    quiet, _ = latency.through_relay(folder, credentials, sink)
    return {
        "messages delivered, rooms of 2": (room.delivered, "/s", "{:,.0f}"),
        "CPU of a message and its push": (room.cpu / room.messages * 1e6, "us", "{:,.0f}"),
        "pushes drained, binary": (binary.rate, "/s", "{:,.0f}"),
        "CPU of a push, binary": (binary.cpu, "us", "{:,.1f}"),
        "memory while draining, binary": (binary.memory, "MB", "{:,.1f}"),
        "pushes drained, HTTP/2": (http2.rate, "/s", "{:,.0f}"),
        "CPU of a push, HTTP/2": (http2.cpu, "us", "{:,.1f}"),
        "memory while draining, HTTP/2": (http2.memory, "MB", "{:,.1f}"),
        "post to arrival, quiet, p50": (quiet, "ms", "{:,.2f}"),
    }


def compare(base):
    """Prints the values of the new build and of the executable `base`, and the ratios of consecutive runs."""
    found = {"base": [], "new": []}
    with tempfile.TemporaryDirectory() as folder:
        # Copies both files, because the way in which a file was written changes how much of it the kernel maps at a time.
        # The difference is some megabytes of memory.
        builds = {name: shutil.copy(path, f"{folder}/{name}") for name, path in (("base", base), ("new", bench.PUSHCHAT))}
        credentials = bench.make_credentials(folder)
        sink = gateways.Sink(folder, credentials)
        with gateways.nghttpd(folder, credentials) as port:
            for number in range(bench.RUNS):
                # Changes the order in each run.
                for name in ("base", "new") if number % 2 == 0 else ("new", "base"):
                    found[name].append(measure_build(builds[name], folder, credentials, sink, port))
                print(f"  run {number + 1} of {bench.RUNS} is done", flush=True)
        sink.end()
    for what, (_, unit, form) in found["new"][0].items():
        before, after = ([run[what][0] for run in found[name]] for name in ("base", "new"))
        bench.row(what, after, unit, before, "base", form=form)
