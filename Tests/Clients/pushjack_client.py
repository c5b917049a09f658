"""Sends with pushjack 1.6.0 to a gateway on this machine, reads the feedback service twice, and prints JSON.

    pushjack_client.py GATEWAY_PORT FEEDBACK_PORT CLIENT.PEM TEXT < tokens, one per line

Only the addresses are changed in pushjack, by a subclass as its documentation suggests.
"""

import json
import ssl
import sys
import time

if not hasattr(ssl, "wrap_socket"):
    # Python 3.12 removed this function, which pushjack (2018) calls.
    def wrap_socket(sock, certfile, do_handshake_on_connect):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(certfile)
        return context.wrap_socket(sock, do_handshake_on_connect=do_handshake_on_connect)

    ssl.wrap_socket = wrap_socket

from pushjack import APNSClient  # noqa: E402


class SandboxClient(APNSClient):
    host = feedback_host = "127.0.0.1"
    port = int(sys.argv[1])
    feedback_port = int(sys.argv[2])


client = SandboxClient(certificate=sys.argv[3], default_error_timeout=5, default_batch_size=10)


def expired_again():
    """Returns the list that remains once the service has noticed the first connection's end."""
    end = time.time() + 5
    while True:
        tokens = [token.token for token in client.get_expired_tokens()]
        if not tokens or time.time() > end:
            return tokens
        time.sleep(0.05)


response = client.send(sys.stdin.read().split(), sys.argv[4], sound="default", badge=3)
json.dump(
    {
        "errors": [{"code": error.code, "identifier": error.identifier} for error in response.errors],
        "failures": response.failures,
        "successes": len(response.successes),
        "expired": [token.token for token in client.get_expired_tokens()],
        "expiredAgain": expired_again(),
    },
    sys.stdout,
)
