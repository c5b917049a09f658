#!/usr/bin/env python3
"""Sends with published libraries, unchanged, to the addresses of Google, Apple and a browser's push service, through the sandbox's proxy.

Usage: proxy_clients.py READY.json
READY.json is the sandbox's ready file. Prints a line for each check that passed. Ends with status 1 at the first that failed.
"""
import json, os, ssl, sys, urllib.request

with open(sys.argv[1]) as file:
    ready = json.load(file)
proxy = f"http://127.0.0.1:{ready['ports']['proxy']}"
for name in list(os.environ):
    if name.lower() in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        del os.environ[name]
os.environ["HTTPS_PROXY"] = proxy
# The names under which the libraries look for an authority: requests, and those that use Python's own defaults.
os.environ["REQUESTS_CA_BUNDLE"] = os.environ["SSL_CERT_FILE"] = ready["authority"]

import firebase_admin, httpx, pyfcm, pywebpush, requests
from firebase_admin import credentials, exceptions, messaging
from py_vapid import Vapid

from checks import check


def control(method, path, body=None):
    request = urllib.request.Request(
        ready["control"] + path, None if body is None else json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def fault(reason, times=1):
    control("POST", "/faults", {"protocol": "fcm", "action": "status", "reason": reason, "times": times})


def raised(kind, call):
    try:
        call()
    except kind as error:
        return error
    return None


# Google's library for Python.
app = firebase_admin.initialize_app(credentials.Certificate(ready["service_account"]))
phone = control("POST", "/installations", {})
message = messaging.Message(
    token=phone["registration_token"], notification=messaging.Notification("T", "grüße"), data={"room": "kitchen"},
    android=messaging.AndroidConfig(priority="high", ttl=60, collapse_key="kitchen"))
name = messaging.send(message)
entry = control("GET", f"/notifications?protocol=fcm&token={phone['token']}")["notifications"][-1]
check("firebase-admin sends a notification", entry["name"] == name and entry["headers"]["collapse_key"] == "kitchen", entry)
other = control("POST", "/installations", {"kind": "fid"})
data = messaging.Message(fid=other["fid"], data={"room": "kitchen"})
batch = messaging.send_each([data, data, messaging.Message(token="x", data={})])
check("firebase-admin sends several messages", (batch.success_count, batch.failure_count) == (2, 1), batch.responses[0].exception)
check("firebase-admin has a message checked", messaging.send(data, dry_run=True))
subscribed = messaging.subscribe_to_topic([other["fid"], phone["registration_token"]], "news")
check("firebase-admin subscribes to a topic", (subscribed.success_count, subscribed.failure_count) == (2, 0), subscribed.errors)
messaging.unsubscribe_from_topic([phone["registration_token"]], "news")
messaging.send(messaging.Message(condition="'news' in topics", data={"room": "kitchen"}))
phones = control("GET", "/notifications?protocol=fcm")["notifications"][-1]["phones"]
check("a message to a condition reaches those that have subscribed", [each["installation"] for each in phones] == [other["id"]], phones)
for reason, kind, times in [
        ("UNREGISTERED", messaging.UnregisteredError, 1), ("SENDER_ID_MISMATCH", messaging.SenderIdMismatchError, 1),
        ("QUOTA_EXCEEDED", messaging.QuotaExceededError, 1), ("INVALID_ARGUMENT", exceptions.InvalidArgumentError, 1),
        # The library asks for another token after 401, twice.
        ("THIRD_PARTY_AUTH_ERROR", messaging.ThirdPartyAuthError, 3)]:
    fault(reason, times)
    check(f"firebase-admin's exception for {reason}", raised(kind, lambda: messaging.send(data)))
fault("UNAVAILABLE")
check("firebase-admin repeats a message after UNAVAILABLE", messaging.send(data))

# PyFCM.
fcm = pyfcm.FCMNotification(service_account_file=ready["service_account"], project_id="pushchat-sandbox")
sent = fcm.notify(fcm_token=phone["registration_token"], notification_title="T", notification_body="B")
check("PyFCM sends a notification", sent["name"].startswith("projects/pushchat-sandbox/messages/"), sent)
fault("UNREGISTERED")
check("PyFCM's exception for UNREGISTERED", raised(
    pyfcm.errors.FCMNotRegisteredError, lambda: fcm.notify(fcm_token=phone["registration_token"], notification_title="T")))

# Apple's service.
device = control("POST", "/devices", {})["token"]
trusted = ssl.create_default_context(cafile=ready["authority"])
trusted.load_cert_chain(ready["certificate"])
with httpx.Client(http2=True, verify=trusted) as client:
    answer = client.post(
        f"https://api.push.apple.com:2197/3/device/{device}", json={"aps": {"alert": "Hello"}}, headers={"apns-topic": ready["topic"]})
check("httpx sends to Apple's host over HTTP/2", (answer.status_code, answer.http_version) == (200, "HTTP/2"), answer.text)

# A browser.
key = Vapid()
key.generate_keys()
for fields in [{}, {"host": "updates.push.services.mozilla.com"}]:
    subscription = control("POST", "/browsers", fields)["subscription"]
    answer = pywebpush.webpush(subscription, "grüße", vapid_private_key=key, vapid_claims={"sub": "mailto:me@example.org"}, ttl=60)
    check(f"pywebpush sends to {subscription['endpoint'].split('/push/')[0].split(':')[1]}", answer.status_code == 201, answer.text)

# Nothing else.
error = raised(requests.exceptions.ProxyError, lambda: requests.get("https://example.org/"))
check("every other host is refused", "403 Forbidden" in str(error), error)
refusal = control("GET", "/stats")["refusals"][-1]
check("the refusal names the permitted hosts", "example.org" in refusal["message"] and "fcm.googleapis.com:443" in refusal["message"])
