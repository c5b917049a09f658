"""Tests of a service that notifies browsers and Android phones. The service is not changed: the sandbox's proxy plays the
hosts of Mozilla and Google.

Requires test_push.py beside this file, pywebpush, google-auth and requests.
"""

import json

import google.auth
import httpx
import pytest
import pywebpush
from google.auth.transport.requests import AuthorizedSession
from py_vapid import Vapid

from test_push import forget, sandbox  # noqa: F401, the fixtures


class Notifier:
    """The service of this example. Put yours in its place."""

    def __init__(self, browsers, phones):
        self.browsers, self.phones = browsers, phones
        self.key = Vapid()
        self.key.generate_keys()
        credentials, project = google.auth.default(scopes=["https://www.googleapis.com/auth/firebase.messaging"])
        self.google = AuthorizedSession(credentials)
        self.url = f"https://fcm.googleapis.com/v1/projects/{project}/messages:send"

    def notify(self, text):
        for browser in list(self.browsers):
            try:
                claims = {"sub": "mailto:me@example.org"}
                pywebpush.webpush(browser, text, vapid_private_key=self.key, vapid_claims=claims, ttl=60)
            except pywebpush.WebPushException as error:
                if error.response is None or error.response.status_code not in (404, 410):
                    raise
                self.browsers.remove(browser)
        for phone in self.phones:
            message = {"message": {"token": phone, "notification": {"body": text}}}
            for _ in range(3):
                response = self.google.post(self.url, json=message, timeout=10)
                if response.status_code != 503:
                    break
            response.raise_for_status()


@pytest.fixture
def control(sandbox):
    def call(method, path, **body):
        response = httpx.request(method, sandbox.control + path, json=body or None, timeout=20)
        return response.raise_for_status().json() if response.content else None

    return call


@pytest.fixture
def user(sandbox, control, monkeypatch):
    """A notifier, and the browser and phone of its only user."""
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{sandbox.ports['proxy']}")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", sandbox.authority)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", sandbox.service_account)
    browser = control("POST", "/browsers", host="updates.push.services.mozilla.com")
    phone = control("POST", "/installations", kind="token")
    return Notifier([browser["subscription"]], [phone["registration_token"]]), browser, phone


def arrived(control, device, count=1):
    return control("GET", f"/notifications?token={device['token']}&count={count}&wait=10s")["notifications"]


def test_both_get_it(user, control):
    notifier, browser, phone = user
    notifier.notify("Hello")
    assert [each["payload"] for each in arrived(control, browser)] == ["Hello"]
    (push,) = arrived(control, phone)
    assert json.loads(push["payload"])["message"]["notification"] == {"body": "Hello"}


def test_a_browser_that_is_gone_is_forgotten(user, control):
    notifier, browser, _ = user
    control("DELETE", f"/browsers/{browser['id']}")
    notifier.notify("Hello")
    assert notifier.browsers == []


def test_google_has_trouble(user, control):
    notifier, _, phone = user
    control("POST", "/faults", protocol="fcm", action="status", reason="UNAVAILABLE")
    notifier.notify("Hello")
    assert [each["answer"] for each in arrived(control, phone, count=2)] == ["UNAVAILABLE", "accepted"]
