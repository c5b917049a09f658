"""Sends with aioapns 4.0 to a gateway on this machine. Prints each push's result as JSON.

    aioapns_client.py PORT CA.PEM token KEY.P8 KEY_ID TEAM_ID TOPIC < tokens, one per line
    aioapns_client.py PORT CA.PEM certificate CLIENT.PEM < tokens, one per line

Only the address is changed in aioapns. It does not use ALPN, as for its other users.
"""

import asyncio
import json
import logging
import ssl
import sys

from aioapns import APNs, NotificationRequest, PushType
from aioapns.connection import APNsDevelopmentClientProtocol

port, authority, mode, *credentials = sys.argv[1:]
# It logs every 10 ms that it waits for a free stream.
logging.getLogger("aioapns").setLevel(logging.ERROR)
APNsDevelopmentClientProtocol.APNS_SERVER = "localhost"
APNsDevelopmentClientProtocol.APNS_PORT = int(port)


async def main():
    trusted = ssl.create_default_context(cafile=authority)
    options = dict(use_sandbox=True, ssl_context=trusted, max_connections=2)
    if mode == "token":
        key, key_id, team_id, topic = credentials
        client = APNs(key=open(key).read(), key_id=key_id, team_id=team_id, topic=topic, **options)
    else:
        client = APNs(client_cert=credentials[0], **options)

    async def send(token):
        request = NotificationRequest(
            device_token=token, message={"aps": {"alert": "grüße"}}, push_type=PushType.ALERT, time_to_live=3600
        )
        result = await client.send_notification(request)
        return {
            "token": token,
            "id_is_echoed": result.notification_id == request.notification_id,
            "status": result.status,
            "reason": result.description,
            "timestamp": result.timestamp,
        }

    results = await asyncio.gather(*map(send, sys.stdin.read().split()))
    client.pool.close()
    return results


json.dump(asyncio.run(main()), sys.stdout)
