#!/usr/bin/env python3
"""Opens many event streams, and measures how late messages reach them.

Usage: event_streams.py PORT STREAMS ROOMS MESSAGES-PER-SECOND SECONDS [joined] [credentials] [apps] [PID]
With "joined" the members exist already, in consecutive rooms of STREAMS / ROOMS members; otherwise they join first.
With "credentials" each member gets a credential for another app; the members who have joined have one already. With "apps" the
streams use it: a third of them are ntfy's JSON, WebSocket and SSE each. Otherwise they are those of /events.
Prints JSON: the numbers of expected, received and duplicate events, the delays in milliseconds, and the kilobytes by which each
stream has increased the memory of process PID.
"""
import asyncio, base64, json, os, resource, sys, time, urllib.parse

PORT, STREAMS, ROOMS, RATE, SECONDS = map(int, sys.argv[1:6])
OPTIONS = sys.argv[6:]
JOINED, APPS = "joined" in OPTIONS, "apps" in OPTIONS
CREDENTIALS = APPS or "credentials" in OPTIONS
PID = next((option for option in OPTIONS if option.isdecimal()), None)
# Connections that prepare the members at the same time.
PREPARING = 16
limit = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit[1], STREAMS + 1000), limit[1]))

late, seen, doubles = [], 0, 0
# Fewer than the 1,024 connections of the relay's backlog: the system drops more, and resets them later.
opening = asyncio.Semaphore(200)


def udid(number):
    return f"{number:040d}"


def secret(number):
    """The credential of a member who has joined already. The caller stores its hash."""
    return f"pcc_{number:043d}"


def memory():
    with open(f"/proc/{PID}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


async def post(connection, **fields):
    """Posts a form over a connection that stays open, and returns the response's body."""
    reader, writer = connection
    body = urllib.parse.urlencode(fields).encode()
    writer.write(b"POST /api.php HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(body) + body)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    answer = await reader.readexactly(length)
    if b" 200 " not in head.split(b"\r\n")[0]:
        sys.exit(f"{fields}: {answer}")
    return answer


async def prepare(numbers, secrets):
    """Lets members join, and creates their credentials."""
    connection = await asyncio.open_connection("127.0.0.1", PORT)
    for number in numbers:
        await post(connection, cmd="join", udid=udid(number), token=0, name=f"n{number}", code=f"room{number % ROOMS}")
        if CREDENTIALS:
            made = await post(connection, cmd="credential", udid=udid(number), name="phone")
            secrets[number] = json.loads(made)["credential"]
    connection[1].close()


def request(number, secrets):
    """Returns the form of a stream, and the path and headers with which it opens."""
    if not APPS:
        return "events", f"/events?udid={udid(number)}", ""
    form = ("json", "ws", "sse")[number % 3]
    room = number // (STREAMS // ROOMS) if JOINED else number % ROOMS
    headers = f"Authorization: Bearer {secrets[number]}\r\n"
    if form == "ws":
        headers += ("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                    f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n")
    return form, f"/ntfy/room{room}/{form}", headers


async def frames(reader, writer):
    """Yields the texts of a WebSocket, and answers pings."""
    while True:
        opcode, length = await reader.readexactly(2)
        if length == 126:
            length = int.from_bytes(await reader.readexactly(2), "big")
        payload = await reader.readexactly(length)
        if opcode & 15 == 9:
            writer.write(bytes([0x8A, 0x80 | length]) + bytes(4) + payload)
        else:
            yield payload


async def follow(number, secrets, opened):
    global seen, doubles
    form, path, headers = request(number, secrets)
    try:
        async with opening:
            reader, writer = await asyncio.open_connection("127.0.0.1", PORT, limit=1 << 20)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
    except (OSError, asyncio.IncompleteReadError) as error:
        sys.exit(f"{path}: {error}")
    if head.split()[1] not in (b"200", b"101"):
        sys.exit(f"{path}: {head.decode()}")
    last = ""
    try:
        async for line in frames(reader, writer) if form == "ws" else reader:
            if line.startswith(b"retry:") or b'"event":"open"' in line:
                opened.release()
            elif b'"at ' in line:
                message = json.loads(line.removeprefix(b"data: "))
                late.append(time.time() - float((message.get("text") or message["message"])[3:]))
                seen += 1
                # Ids of /events are numbers. Those of ntfy have one length.
                name = message["id"] if APPS else f"{message['id']:012d}"
                doubles += name <= last
                last = name
    except (asyncio.CancelledError, asyncio.IncompleteReadError):
        writer.close()


async def main():
    secrets = {number: secret(number) for number in range(STREAMS)}
    if not JOINED:
        await asyncio.gather(*(prepare(range(first, STREAMS, PREPARING), secrets) for first in range(PREPARING)))
    before = memory() if PID else 0
    opened = asyncio.Semaphore(0)
    streams = [asyncio.create_task(follow(number, secrets, opened)) for number in range(STREAMS)]
    for _ in range(STREAMS):
        await opened.acquire()
    # Not before the streams: the relay closes idle connections.
    connection = await asyncio.open_connection("127.0.0.1", PORT)
    begin, expected = time.time(), 0
    for turn in range(RATE * SECONDS):
        await asyncio.sleep(max(0, begin + turn / RATE - time.time()))
        # Post to one room after another, however the members are spread over them.
        sender = turn * (STREAMS // ROOMS if JOINED else 1) % STREAMS
        await post(connection, cmd="message", udid=udid(sender), text=f"at {time.time():.6f}")
        expected += STREAMS // ROOMS
    end = time.time() + 20
    while seen < expected and time.time() < end:
        await asyncio.sleep(0.05)
    ordered = sorted(late)
    print(json.dumps({
        "expected": expected, "seen": seen, "doubles": doubles, "latest_ms": round(1000 * ordered[-1]) if ordered else None,
        "median_ms": round(1000 * ordered[len(ordered) // 2], 2) if ordered else None,
        "stream_kb": round((memory() - before) / STREAMS, 2) if PID else None, "seconds": round(time.time() - begin, 1)}))
    for stream in streams:
        stream.cancel()


asyncio.run(main())
