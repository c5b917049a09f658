"""Webhooks: the rate at which the relay accepts posts while it reports them to receivers, and the rate of the events."""
import asyncio, os, subprocess, sys, tempfile, time

import bench, posts

COUNTS = (0, 1, 10)
SECONDS = bench.scaled(3, 1)


async def receive(path):
    """Accepts each event with 204. Writes its port to the first line, and the number of events to the second."""
    count = 0

    async def serve(reader, writer):
        nonlocal count
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.split(b":")[1]))
                count += 1
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    while os.getppid() != 1:
        with open(path + ".new", "w") as file:
            file.write(f"{port}\n{count}\n")
        os.rename(path + ".new", path)
        await asyncio.sleep(0.05)


def state(path):
    """The receiver's port, and the number of events until now."""
    with open(path) as file:
        return map(int, file.read().split())


def measure_one(count):
    """Messages accepted per second, CPU microseconds of the relay per message, and events per second after the posts."""
    with tempfile.TemporaryDirectory() as folder:
        database, _ = bench.make_database(folder)
        path = folder + "/receiver"
        receiver = subprocess.Popen([sys.executable, __file__, path])
        while not os.path.exists(path):
            time.sleep(0.01)
        port, _ = state(path)
        with open(folder + "/relay.yaml", "w") as file:
            file.write(f"webhooks:\n  hosts: ['127.0.0.1:{port}']\n")
        relay, api, _ = bench.start_configured(folder, folder + "/relay.yaml")
        try:
            # Rooms of one member have no push, so that the webhooks are the only work besides the posts.
            posts.members(database, posts.CONNECTIONS, 1)
            for number in range(count):
                subprocess.run(
                    [bench.PUSHCHAT, "webhooks", "create", f"http://127.0.0.1:{port}/{number}", "--config", "relay.yaml",
                     "--database", database], cwd=folder, check=True, capture_output=True)
            cpu = bench.cpu(relay)
            load = posts.post(folder, api, posts.CONNECTIONS, SECONDS)
            cpu = (bench.cpu(relay) - cpu) / load.answered * 1e6
            bench.oracle(load.accepted == load.answered, f"{load.accepted} of {load.answered} posts were accepted")
            (_, before), begin = state(path), time.time()
            time.sleep(SECONDS if count else 0)
            (_, after), seconds = state(path), time.time() - begin
            written = bench.rows(database).execute("SELECT count(*) FROM webhook_events").fetchone()[0]
            bench.oracle(written == load.accepted * count, f"{written} events of {load.accepted * count} are stored")
            return load.rate, cpu, (after - before) / seconds
        finally:
            bench.kill(relay, receiver)


def measure():
    runs = [[measure_one(count) for count in COUNTS] for _ in range(bench.RUNS)]
    for place, count in enumerate(COUNTS[1:], 1):
        name = "a webhook" if count == 1 else f"{count} webhooks"
        accepted, cpu, events = zip(*(run[place] for run in runs))
        without = list(zip(*(run[0] for run in runs)))
        bench.row(f"messages accepted with {name}", accepted, "/s", without[0], "no webhook")
        bench.row(f"CPU of a message with {name}", cpu, "us", without[1], "no webhook", inverse=True)
        bench.row(f"events sent to {name}, the posts before queued", events, "/s")


if __name__ == "__main__":
    asyncio.run(receive(sys.argv[1]))
