#!/usr/bin/env python3
"""Opens many event streams, and measures how late messages reach them.

Usage: event_streams.py PORT STREAMS ROOMS MESSAGES-PER-SECOND SECONDS [joined]
With "joined" the members exist already, in consecutive rooms of STREAMS / ROOMS members; otherwise they join first.
Prints JSON: the numbers of expected, received and duplicate events, and the longest delay in milliseconds.
"""
import asyncio, json, resource, sys, time, urllib.parse

PORT, STREAMS, ROOMS, RATE, SECONDS = map(int, sys.argv[1:6])
JOINED = sys.argv[6:] == ["joined"]
limit = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit[1], STREAMS + 1000), limit[1]))

late, seen, doubles = [], 0, 0


def udid(number):
    return f"{number:040d}"


async def post(connection, **fields):
    """Posts a form over a connection that stays open."""
    reader, writer = connection
    body = urllib.parse.urlencode(fields).encode()
    writer.write(b"POST /api.php HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(body) + body)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    answer = await reader.readexactly(length)
    if b" 200 " not in head.split(b"\r\n")[0]:
        sys.exit(f"{fields}: {answer}")


async def follow(number, opened):
    global seen, doubles
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT, limit=1 << 20)
    writer.write(b"GET /events?udid=%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % udid(number).encode())
    last = 0
    try:
        async for line in reader:
            if line.startswith(b"retry:"):
                opened.release()
            elif line.startswith(b"data: ") and b'"text":"at ' in line:
                message = json.loads(line[6:])
                late.append(time.time() - float(message["text"][3:]))
                seen += 1
                doubles += message["id"] <= last
                last = message["id"]
    except asyncio.CancelledError:
        writer.close()


async def main():
    connection = await asyncio.open_connection("127.0.0.1", PORT)
    for number in range(0 if JOINED else STREAMS):
        await post(connection, cmd="join", udid=udid(number), token=0, name=f"n{number}", code=f"room{number % ROOMS}")
    opened = asyncio.Semaphore(0)
    streams = [asyncio.create_task(follow(number, opened)) for number in range(STREAMS)]
    for _ in range(STREAMS):
        await opened.acquire()
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
        "median_ms": round(1000 * ordered[len(ordered) // 2]) if ordered else None,
        "seconds": round(time.time() - begin, 1)}))
    for stream in streams:
        stream.cancel()


asyncio.run(main())
