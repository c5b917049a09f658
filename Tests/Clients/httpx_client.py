"""Sends with httpx over HTTP/2, as Apple's own example does with curl. Prints each response as JSON.

    httpx_client.py PORT CA.PEM CLIENT.PEM TOPIC < tokens, one per line
"""

import asyncio
import json
import ssl
import sys

import httpx

port, authority, certificate, topic = sys.argv[1:]


async def main():
    context = ssl.create_default_context(cafile=authority)
    context.load_cert_chain(certificate)
    async with httpx.AsyncClient(http1=False, http2=True, verify=context, base_url=f"https://localhost:{port}") as client:

        async def send(token):
            answer = await client.post(
                f"/3/device/{token}",
                headers={"apns-topic": topic, "apns-push-type": "alert"},
                json={"aps": {"alert": "hello"}},
            )
            return {
                "token": token,
                "version": answer.http_version,
                "status": answer.status_code,
                "apns_id": answer.headers.get("apns-id"),
                "unique_id": answer.headers.get("apns-unique-id"),
                "body": answer.json() if answer.content else None,
            }

        return await asyncio.gather(*map(send, sys.stdin.read().split()))


json.dump(asyncio.run(main()), sys.stdout)
