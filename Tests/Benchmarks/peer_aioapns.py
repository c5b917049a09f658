"""Sends pushes with aioapns 4.0 over one connection, many at a time. Prints pushes per second.

    peer_aioapns.py PORT CA.PEM CLIENT.PEM TOKEN PUSHES

The first push opens the connection and is not measured.
"""
import asyncio, logging, ssl, sys, time

from aioapns import APNs, NotificationRequest, PushType
from aioapns.connection import APNsDevelopmentClientProtocol, H2Protocol

PORT, AUTHORITY, CERTIFICATE, TOKEN, PUSHES = sys.argv[1:]
# The number of concurrent pushes at which aioapns is fastest. With 500, it takes a sixth longer.
AT_ONCE = 50

logging.getLogger("aioapns").setLevel(logging.CRITICAL)


class Protocol(APNsDevelopmentClientProtocol):
    """Matches responses to pushes by stream, because nghttpd does not return the identifier of a request.

    The responses have no body.
    """
    APNS_SERVER, APNS_PORT = "localhost", int(PORT)

    def on_response_received(self, headers):
        if headers[b":status"] != b"200":
            sys.exit(f"a push got the response {headers}")

    def on_data_received(self, raw_data, stream_id):
        assert not raw_data

    def on_stream_ended(self, stream_id):
        H2Protocol.on_stream_ended(self, stream_id)
        identifier = self.request_streams.pop(stream_id)
        super().on_response_received({b":status": b"200", b"apns-id": identifier.encode()})


async def main():
    trusted = ssl.create_default_context(cafile=AUTHORITY)
    trusted.set_alpn_protocols(["h2"])
    client = APNs(client_cert=CERTIFICATE, topic="com.example.PushChat", ssl_context=trusted, max_connections=1)
    client.pool.protocol_class = Protocol

    async def send(count):
        for number in range(count):
            result = await client.send_notification(NotificationRequest(
                device_token=TOKEN, message={"aps": {"alert": f"number {number}", "sound": "default"}},
                push_type=PushType.ALERT, priority=10, time_to_live=3600))
            if not result.is_successful:
                sys.exit(f"a push failed: {result.description}")

    await send(1)
    begin, each = time.perf_counter(), int(PUSHES) // AT_ONCE
    await asyncio.gather(*(send(each) for _ in range(AT_ONCE)))
    print(each * AT_ONCE / (time.perf_counter() - begin))
    client.pool.close()


asyncio.run(main())
