"""A push service for browsers over HTTP/2 that decrypts messages with http-ece, and verifies senders with py-vapid.

    webpush_service.py SERVER.PEM BROWSERS
        Listens on loopback and prints {"port": …, "subscriptions": […]}. Then prints a line of JSON for each accepted push.
        The browser of a request is the number after the ? in its path. A message that it cannot decrypt or verify gets a 400.
    webpush_service.py < {"private": …, "auth": …, "authorization": …, "bodies": […]}
        Decrypts messages for one browser, and prints the texts as JSON. All values are in base64url; the key has 32 bytes.

Ends by itself after five minutes.
"""

import asyncio
import base64
import json
import os
import signal
import ssl
import sys

import h2.config
import h2.connection
import h2.events
import http_ece
import py_vapid
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def verified(authorization):
    """Returns the claims and the sender's public key."""
    if not py_vapid.Vapid02.verify(authorization):
        raise ValueError("py-vapid does not verify it")
    fields = dict(field.split("=", 1) for field in authorization.split(" ", 1)[1].split(","))
    return json.loads(decoded(fields["t"].split(".")[1])), fields["k"]


class Browser:
    def __init__(self, private=None, auth=None):
        self.private = private or ec.generate_private_key(ec.SECP256R1())
        self.auth = auth or os.urandom(16)

    def subscription(self, endpoint):
        public = self.private.public_key().public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
        return {"endpoint": endpoint, "expirationTime": None, "keys": {"p256dh": encoded(public), "auth": encoded(self.auth)}}

    def read(self, body):
        return http_ece.decrypt(body, private_key=self.private, auth_secret=self.auth, version="aes128gcm")


class Service(asyncio.Protocol):
    """One connection."""

    def __init__(self, browsers):
        self.browsers = browsers
        self.streams = {}
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))

    def connection_made(self, transport):
        self.transport = transport
        self.http.initiate_connection()
        transport.write(self.http.data_to_send())

    def data_received(self, data):
        for event in self.http.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                self.streams[event.stream_id] = (dict(event.headers), bytearray())
            elif isinstance(event, h2.events.DataReceived):
                self.streams[event.stream_id][1].extend(event.data)
                self.http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self.answer(event.stream_id, *self.streams.pop(event.stream_id))
        self.transport.write(self.http.data_to_send())

    def answer(self, stream, headers, body):
        try:
            claims, key = verified(headers["authorization"])
            number = int(headers[":path"].split("?")[1])
            text = self.browsers[number % len(self.browsers)].read(bytes(body)).decode()
        except Exception as error:
            self.http.send_headers(stream, [(":status", "400")])
            self.http.send_data(stream, repr(error).encode(), end_stream=True)
            return
        print(json.dumps({
            "browser": number, "text": text, "key": key, "claims": claims, "size": len(body), "ttl": headers["ttl"],
            "urgency": headers["urgency"]}), flush=True)
        self.http.send_headers(stream, [(":status", "201"), ("location", f"/message/{stream}")], end_stream=True)


async def serve(certificate, count):
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    tls.set_alpn_protocols(["h2"])
    browsers = [Browser() for _ in range(count)]
    server = await asyncio.get_running_loop().create_server(lambda: Service(browsers), "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    subscriptions = [browser.subscription(f"https://127.0.0.1:{port}/push?{n}") for n, browser in enumerate(browsers)]
    print(json.dumps({"port": port, "subscriptions": subscriptions}), flush=True)
    await server.serve_forever()


def read(order):
    browser = Browser(
        ec.derive_private_key(int.from_bytes(decoded(order["private"]), "big"), ec.SECP256R1()), decoded(order["auth"]))
    claims, key = verified(order["authorization"])
    texts = [encoded(browser.read(decoded(body))) for body in order["bodies"]]
    json.dump({"claims": claims, "key": key, "texts": texts}, sys.stdout)


signal.alarm(300)
if len(sys.argv) == 3:
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
else:
    read(json.load(sys.stdin))
