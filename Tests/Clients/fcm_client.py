#!/usr/bin/env python3
"""Sends messages to the sandbox's FCM with Google's own client library, unchanged.

Usage: fcm_client.py READY.json
READY.json is the sandbox's ready file. Prints a line for each check that passed. Ends with status 1 at the first that failed.
"""
import json, os, sys, urllib.request

with open(sys.argv[1]) as file:
    ready = json.load(file)
os.environ["HTTPLIB2_CA_CERTS"] = os.environ["REQUESTS_CA_BUNDLE"] = ready["authority"]

import httplib2
from google.auth.exceptions import RefreshError
from google.oauth2.service_account import Credentials
from google_auth_httplib2 import AuthorizedHttp
from googleapiclient.discovery import build
from googleapiclient.errors import HttpError

from checks import check

SCOPES = ["https://www.googleapis.com/auth/firebase.messaging"]


def control(method, path, body=None):
    request = urllib.request.Request(
        ready["control"] + path, None if body is None else json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def client():
    # The library takes the authority only from the transport, which its token requests use as well.
    http = httplib2.Http(ca_certs=ready["authority"], timeout=30)
    credentials = Credentials.from_service_account_file(ready["service_account"], scopes=SCOPES)
    return build("fcm", "v1", http=AuthorizedHttp(credentials, http=http), static_discovery=True,
                 client_options={"api_endpoint": f"https://localhost:{ready['ports']['fcm']}"})


def send(fcm, message, **more):
    return fcm.projects().messages().send(parent="projects/pushchat-sandbox", body={"message": message, **more}).execute()


def refused(fcm, message):
    try:
        return 200, send(fcm, message)
    except HttpError as error:
        return error.resp.status, json.loads(error.content)["error"]


fcm = client()
phone = control("POST", "/installations", {})
message = {"token": phone["registration_token"], "data": {"room": "7", "text": "Grüße"},
           "android": {"priority": "HIGH", "ttl": "3600s", "collapseKey": "room-7"}}
answer = send(fcm, message)
check("Google's library gets a token and sends a message", answer["name"].startswith("projects/pushchat-sandbox/messages/0:"), answer)
found = control("GET", f"/notifications?protocol=fcm&token={phone['token']}")["notifications"]
check("the inbox has it", [entry["name"] for entry in found] == [answer["name"]]
      and json.loads(found[0]["payload"])["message"]["data"] == message["data"]
      and found[0]["headers"] == {"priority": "high", "ttl": "3600s", "collapse_key": "room-7"}, found)
check("a message that is only checked gets a name", send(fcm, message, validate_only=True)["name"])
status, error = refused(fcm, {"token": phone["registration_token"], "data": {"n": 1}})
check("a wrong value is named", status == 400 and error["details"][0]["fieldViolations"][0]["field"] == "message.data[0].value", error)
control("DELETE", f"/installations/{phone['id']}")
status, error = refused(fcm, message)
check("a removed app is unregistered", status == 404 and error["details"][0]["errorCode"] == "UNREGISTERED", error)
other = control("POST", "/installations", {"kind": "fid"})
message = {"token": other["fid"], "notification": {"title": "T", "body": "B"}}
check("the field token takes an installation id", send(fcm, message)["name"])
control("POST", "/faults", {"protocol": "fcm", "action": "expire_token"})
check("the library asks for another token after 401", send(fcm, message)["name"])
control("POST", "/faults", {"protocol": "fcm", "action": "status", "reason": "QUOTA_EXCEEDED", "retry_after": 7})
status, error = refused(fcm, message)
check("a quota is exceeded", status == 429 and error["status"] == "RESOURCE_EXHAUSTED", error)
control("POST", "/faults", {"protocol": "fcm_token", "action": "status", "reason": "invalid_grant"})
try:
    send(client(), message)
    check("a refused account", False)
except RefreshError as error:
    check("the library reports a refused account", "invalid_grant" in str(error), error)
