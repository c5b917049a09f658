"""Tests of a provider with pytest. All tests of a session share one sandbox on free ports.

Requires pushchat in the PATH or at the path in the variable PUSHCHAT, pytest, and httpx[http2] for the provider of this
example.
"""

import json
import os
import ssl
import subprocess
import time
import types

import httpx
import pytest


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sandbox")
    ready = folder / "ready.json"
    process = subprocess.Popen(
        [os.environ.get("PUSHCHAT", "pushchat"), "sandbox", "--free-ports", "--ready-file", ready, "--directory",
         folder / "credentials", "--end-with-parent"],
        stdout=subprocess.DEVNULL,
    )
    while not ready.exists():
        assert process.poll() is None, "the sandbox has ended"
        time.sleep(0.05)
    yield types.SimpleNamespace(**json.loads(ready.read_text()))
    process.terminate()
    process.wait()


@pytest.fixture
def device(sandbox):
    """The token of a simulated device."""
    return httpx.post(f"{sandbox.control}/devices", json={}).json()["token"]


@pytest.fixture(autouse=True)
def forget(sandbox):
    """Gives each test an empty inbox and no faults."""
    for resource in ("notifications", "faults"):
        httpx.delete(f"{sandbox.control}/{resource}").raise_for_status()


def push(sandbox, token, payload):
    """Sends a push. Replace this with your provider; here httpx sends the push."""
    context = ssl.create_default_context(cafile=sandbox.authority)
    context.load_cert_chain(sandbox.certificate)
    with httpx.Client(http1=False, http2=True, verify=context) as client:
        return client.post(
            f"https://localhost:{sandbox.ports['http2']}/3/device/{token}",
            headers={"apns-topic": sandbox.topic, "apns-push-type": "alert"},
            json=payload,
        )


def test_a_push_arrives(sandbox, device):
    assert push(sandbox, device, {"aps": {"alert": "Hello"}}).status_code == 200
    # A provider may return before its push has arrived, so this waits for it.
    (arrived,) = httpx.get(f"{sandbox.control}/notifications?token={device}&wait=10s", timeout=20).json()["notifications"]
    assert json.loads(arrived["payload"]) == {"aps": {"alert": "Hello"}}


def test_the_app_was_removed(sandbox, device):
    httpx.delete(f"{sandbox.control}/devices/{device}").raise_for_status()
    response = push(sandbox, device, {"aps": {"alert": "Hello"}})
    assert (response.status_code, response.json()["reason"]) == (410, "Unregistered")


def test_apple_has_trouble(sandbox, device):
    fault = {"protocol": "http2", "action": "status", "status": 503, "reason": "ServiceUnavailable"}
    httpx.post(f"{sandbox.control}/faults", json=fault).raise_for_status()
    assert push(sandbox, device, {"aps": {"alert": "Hello"}}).status_code == 503
    assert push(sandbox, device, {"aps": {"alert": "Hello"}}).status_code == 200
