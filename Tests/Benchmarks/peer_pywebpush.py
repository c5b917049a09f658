"""Sends pushes with pywebpush, one after another, over one HTTP/1.1 connection. Prints pushes per second.

    peer_pywebpush.py SERVER.PEM CA.PEM P256DH AUTH PUSHES

A separate process serves them and always returns 201. The first push opens the connection and is not measured.
"""
import asyncio, multiprocessing, ssl, sys, time

import py_vapid, pywebpush, requests

CERTIFICATE, AUTHORITY, P256DH, AUTH, PUSHES = sys.argv[1:]


async def answer(reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
            writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
    except asyncio.IncompleteReadError:
        writer.close()


async def serve(started):
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(CERTIFICATE)
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
    started.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


here, there = multiprocessing.Pipe()
multiprocessing.Process(target=lambda: asyncio.run(serve(there)), daemon=True).start()
port = here.recv()
session = requests.Session()
session.verify = AUTHORITY
# Otherwise a bundle named in the environment would replace this authority.
session.trust_env = False
key = py_vapid.Vapid02()
key.generate_keys()


def send(number):
    reply = pywebpush.webpush(
        {"endpoint": f"https://127.0.0.1:{port}/push?{number}", "keys": {"p256dh": P256DH, "auth": AUTH}},
        '{"notification":{"title":"number %d"}}' % number, vapid_private_key=key,
        vapid_claims={"sub": "mailto:push@example.org"}, ttl=2_419_200, requests_session=session)
    if reply.status_code != 201:
        sys.exit(f"a push got the status {reply.status_code}")


send(0)
begin = time.perf_counter()
for number in range(int(PUSHES)):
    send(number + 1)
print(int(PUSHES) / (time.perf_counter() - begin))
