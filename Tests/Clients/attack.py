#!/usr/bin/env python3
"""Clients of a relay on loopback: an attacker, and its neighbours.

Usage: attack.py neighbours PORT SECONDS
       attack.py connections|readers|headers|udids PORT COUNT
Neighbours talk in pairs from another address, each with a stream. They print JSON: the median, the 99th percentile and the
maximum response time in milliseconds, the responses other than 200, and the messages that did not arrive.
An attacker prints "ready" when it has begun, and continues until its standard input ends, or for udids until it has sent all.
"""
import asyncio, json, resource, select, socket, sys, threading, time

KIND, PORT, COUNT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
PAIRS, PAUSE = 10, 0.05
limit = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))


def form(body):
    return (b"POST /api.php HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


# Neighbours.

async def ask(connection, body):
    """Returns the status of the response, and its time in milliseconds."""
    reader, writer = connection
    begin = time.monotonic()
    writer.write(form(body.encode()))
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
    return head.split(b" ")[1], 1000 * (time.monotonic() - begin)


def connect():
    return asyncio.open_connection("127.0.0.1", PORT, local_addr=("127.0.0.2", 0))


async def listen(udid, mark, seen, opened):
    reader, writer = await connect()
    writer.write(f"GET /events?udid={udid} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    async for line in reader:
        if line.startswith(b"retry:"):
            opened.release()
        elif line.startswith(b"data: ") and mark.encode() in line:
            seen.add(json.loads(line[6:])["text"])


async def talk(number, mark, times, failed, sent):
    connection = await connect()
    await asyncio.sleep(PAUSE * number / (2 * PAIRS))
    for turn in range(int(COUNT / PAUSE)):
        begin = time.monotonic()
        text = f"{mark} {number} {turn}"
        status, taken = await ask(connection, f"cmd=message&udid={number + 900_000_000:040d}&text={text}")
        times.append(taken)
        if status == b"200":
            sent.add(text)
        else:
            failed.append(status)
        await asyncio.sleep(max(0, PAUSE - (time.monotonic() - begin)))


async def neighbours():
    mark = f"run {time.time_ns()}"
    times, failed, sent, seen, opened = [], [], set(), [set() for _ in range(PAIRS)], asyncio.Semaphore(0)
    connection = await connect()
    for number in range(2 * PAIRS):
        await ask(connection, f"cmd=join&udid={number + 900_000_000:040d}&token=0&name=n&code=pair{number // 2}")
    streams = [
        asyncio.create_task(listen(f"{2 * pair + 900_000_000:040d}", mark, seen[pair], opened)) for pair in range(PAIRS)]
    for _ in range(PAIRS):
        await opened.acquire()
    await asyncio.gather(*(talk(number, mark, times, failed, sent) for number in range(2 * PAIRS)))
    end = time.time() + 20
    while len(sent - set().union(*seen)) and time.time() < end:
        await asyncio.sleep(0.05)
    times.sort()
    print(json.dumps({
        "median": times[len(times) // 2], "p99": times[len(times) * 99 // 100], "longest": times[-1],
        "failed": len(failed), "lost": len(sent - set().union(*seen))}))
    for stream in streams:
        stream.cancel()


# Attackers.

def stream_of(number):
    return b"GET /events?udid=%040d HTTP/1.1\r\nHost: localhost\r\n\r\n" % number


def hold(first_bytes, small_buffer=False, drip=0):
    """Keeps COUNT connections open, replaces those that the relay closes, and reads nothing from them.

    With drip each sends this number of further bytes a second, one at a time."""
    poll, open_connections = select.epoll(), {}

    def begin(number):
        connection = socket.socket()
        if small_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", PORT))
        connection.send(first_bytes(number))
        connection.setblocking(False)
        open_connections[connection.fileno()] = (connection, number)
        poll.register(connection, select.EPOLLRDHUP | select.EPOLLERR)

    for number in range(COUNT):
        begin(number)
    print("ready", flush=True)
    due = time.monotonic()
    while True:
        wait = -1
        if drip:
            due += 1 / drip
            for connection, _ in open_connections.values():
                try:
                    connection.send(b"a")
                except OSError:
                    pass
            wait = max(0, due - time.monotonic())
        for descriptor, _ in poll.poll(wait):
            connection, number = open_connections.pop(descriptor)
            poll.unregister(descriptor)
            connection.close()
            begin(number)


def fill_rooms():
    """Posts messages to the rooms of members that do not read."""
    connection = socket.create_connection(("127.0.0.1", PORT))
    turn = 0
    while True:
        connection.sendall(form(b"cmd=message&udid=%040d&text=%s" % (turn * 101 % COUNT, b"x" * 180)))
        connection.recv(65536)
        turn += 1
        time.sleep(0.005)


def name_udids():
    """Sends each udid in a separate request, on eight connections with eight requests in progress on each."""
    def run(first):
        connection, left = socket.create_connection(("127.0.0.1", PORT)), 0
        answers = connection.makefile("rb")
        for number in range(first, COUNT, 8):
            connection.sendall(form(b"cmd=messages&udid=%040d" % (10**9 + number)))
            left += 1
            while left > 7:
                length = 0
                while (line := answers.readline()) not in (b"\r\n", b""):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                answers.read(length)
                left -= 1
    threads = [threading.Thread(target=run, args=(first,), daemon=True) for first in range(8)]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    for thread in threads:
        thread.join()


def until_told():
    sys.stdin.read()
    import os
    os._exit(0)


if KIND == "neighbours":
    asyncio.run(neighbours())
elif KIND == "udids":
    name_udids()
else:
    threading.Thread(target=until_told, daemon=True).start()
    if KIND == "connections":
        hold(lambda number: b"")
    elif KIND == "readers":
        threading.Thread(target=fill_rooms, daemon=True).start()
        hold(stream_of, small_buffer=True)
    elif KIND == "headers":
        hold(lambda number: b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: ", drip=20)
    else:
        sys.exit(__doc__)
