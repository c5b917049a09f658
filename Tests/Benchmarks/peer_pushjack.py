"""Sends one text to many devices with pushjack 1.6.0. The gateway counts and measures the time.

    peer_pushjack.py PORT CLIENT.PEM PUSHES
"""
import ssl, sys


def wrap_socket(sock, certfile, do_handshake_on_connect):
    """Replaces ssl.wrap_socket, which pushjack (2018) calls and Python 3.12 removed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # pushjack takes the session tickets of TLS 1.3 for an unreadable response. It would reconnect often and lose pushes.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(certfile)
    return context.wrap_socket(sock, do_handshake_on_connect=do_handshake_on_connect)


ssl.wrap_socket = wrap_socket
from pushjack import APNSClient  # noqa: E402


class LocalClient(APNSClient):
    host = "127.0.0.1"
    port = int(sys.argv[1])


tokens = [f"{number:064x}" for number in range(1, int(sys.argv[3]) + 1)]
response = LocalClient(certificate=sys.argv[2]).send(tokens, "number 12345", sound="default", error_timeout=1)
if response.errors:
    sys.exit(f"{len(response.errors)} pushes failed, the first with {response.errors[0]}")
