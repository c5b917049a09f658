"""Sends to a browser with pywebpush over HTTP/1.1, with webpush-rs (a library in Rust), and with http-ece, py-vapid and httpx
over HTTP/2. Prints each response as JSON.

    webpush_client.py CA.PEM PRIVATE_KEY < {"subscription": …, "texts": […]}

The key is the sender's, 32 bytes in base64url.
"""

import base64
import json
import os
import re
import ssl
import sys
import time
import types
import urllib.parse

import http_ece
import httpx
import py_vapid
import pywebpush
import requests
import webpush_rs
from cryptography.hazmat.primitives.asymmetric import ec

authority, key = sys.argv[1:]
order = json.load(sys.stdin)
subscription = order["subscription"]
claims = {"sub": "mailto:sender@example.org"}


def with_pywebpush(text):
    session = requests.Session()
    session.verify = authority
    # Otherwise a bundle named in the environment would replace this authority.
    session.trust_env = False
    try:
        return pywebpush.webpush(
            subscription, text, vapid_private_key=key, vapid_claims=dict(claims), ttl=60, headers={"Urgency": "high"},
            requests_session=session, timeout=60)
    except pywebpush.WebPushException as refusal:
        return refusal.response


# The maximum size in bytes that webpush-rs accepts.
RUST_LIMIT = 3070


def with_webpush_rs(text):
    # It trusts the system's authorities, which the environment can replace.
    os.environ["SSL_CERT_FILE"] = authority
    keys = subscription["keys"]
    try:
        status = webpush_rs.send_one(
            subscription["endpoint"], keys["p256dh"], keys["auth"], key, claims["sub"], text.encode())
    except RuntimeError as refusal:
        code = re.search(r"code (\d+)", str(refusal))
        if not code:
            raise
        status = int(code[1])
    return types.SimpleNamespace(status_code=status, http_version="not told", headers={}, text="")


def decoded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def with_http_ece(text):
    url = urllib.parse.urlsplit(subscription["endpoint"])
    keys = subscription["keys"]
    body = http_ece.encrypt(
        text.encode(), private_key=ec.generate_private_key(ec.SECP256R1()), dh=decoded(keys["p256dh"]),
        auth_secret=decoded(keys["auth"]), version="aes128gcm")
    headers = py_vapid.Vapid02.from_string(key).sign(
        {**claims, "aud": f"{url.scheme}://{url.netloc}", "exp": int(time.time()) + 3600})
    with httpx.Client(http2=True, verify=ssl.create_default_context(cafile=authority), timeout=60) as client:
        return client.post(
            subscription["endpoint"], content=body,
            headers={**headers, "TTL": "3600", "Topic": "news", "Content-Encoding": "aes128gcm"})


json.dump(
    [
        {"sender": send.__name__, "status": answer.status_code, "version": getattr(answer, "http_version", "HTTP/1.1"),
         "location": answer.headers.get("location"), "body": answer.text}
        for text in order["texts"]
        for send in (with_pywebpush, with_webpush_rs, with_http_ece)
        if send is not with_webpush_rs or len(text.encode()) <= RUST_LIMIT
        for answer in [send(text)]
    ],
    sys.stdout)
