"""Runs the lines of docs/sandbox.md that point a library at the sandbox. Then sends one notification with the library.

    sandbox_lines.py LIBRARY CONTROL-URL < LINES
"""

import asyncio
import base64
import json
import secrets
import ssl
import sys
import urllib.request

library, control = sys.argv[1:]
lines = compile(sys.stdin.read(), "docs/sandbox.md", "exec")


async def aioapns():
    from aioapns import APNs, NotificationRequest

    names = {"APNs": APNs, "ssl": ssl}
    exec(lines, names)
    request = NotificationRequest(device_token="30" * 32, message={"aps": {"alert": "Hello"}})
    result = await names["client"].send_notification(request)
    assert result.is_successful, result.description


async def pywebpush():
    import requests
    from pywebpush import webpush

    order = urllib.request.Request(f"{control}/browsers", data=b"{}", headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(order, timeout=20) as answer:
        subscription = json.load(answer)["subscription"]
    # Random 32 bytes are a valid key, except with a probability of one in 2^32.
    key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    exec(lines, {"requests": requests, "webpush": webpush, "subscription": subscription, "key": key})


asyncio.run({"aioapns": aioapns, "pywebpush": pywebpush}[library]())
