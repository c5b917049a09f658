"""Starts the push services of PushChat's sandbox on free ports. With pytest, use the fixture `push_sandbox`."""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

EXECUTABLE = os.path.join(os.path.dirname(__file__), "pushchat")


class SandboxError(Exception):
    """The sandbox did not start, or rejected a call. The text says why."""


class Sandbox:
    """A running sandbox. Use it in a `with` statement, or call `stop`.

    Each member of the ready file is an attribute: `control`, `ports`, `host`, `authority`, `certificate`, `key`, `key_id`,
    `team_id`, `topic`, `service_account`, `directory`, `process`, `version`.

    :param arguments: further options of `pushchat sandbox`
    :param within: the time in seconds for the start
    """

    def __init__(self, *arguments, within=30):
        self._folder = tempfile.TemporaryDirectory(prefix="pushchat-sandbox-")
        ready = os.path.join(self._folder.name, "ready.json")
        log = os.path.join(self._folder.name, "log")
        with open(log, "wb") as output:
            self._process = subprocess.Popen(
                [EXECUTABLE, "sandbox", "--free-ports", "--ready-file", ready, "--end-with-parent", "--directory",
                 os.path.join(self._folder.name, "credentials"), *arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        deadline = time.monotonic() + within
        while not os.path.exists(ready):
            if self._process.poll() is not None or time.monotonic() > deadline:
                with open(log, encoding="utf-8", errors="replace") as output:
                    text = output.read()
                self.stop()
                raise SandboxError(f"the sandbox did not start: {text}")
            time.sleep(0.02)
        with open(ready, encoding="utf-8") as file:
            vars(self).update(json.load(file))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.stop()

    def stop(self):
        """Ends the sandbox, and removes its credentials. A second call has no effect."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._folder.cleanup()

    def call(self, method, path, body=None):
        """Calls the control API, and returns the decoded response, or `None` if it has no body."""
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(self.control.rstrip("/") + path, data, headers, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=310) as response:
                text = response.read()
        except urllib.error.HTTPError as error:
            raise SandboxError(f"{method} {path}: {error.read().decode(errors='replace')}") from None
        return json.loads(text) if text else None

    def notifications(self, **query):
        """The notifications in the inbox, the oldest first. `wait="10s"` waits for the first; see the page "The control API"."""
        return self.call("GET", "/notifications?" + urllib.parse.urlencode(query))["notifications"]

    def fault(self, **fields):
        """Makes notifications fail: `fault(protocol="http2", action="status", reason="Unregistered")`."""
        return self.call("POST", "/faults", fields)

    def reset(self):
        """Empties the inbox, and removes all faults."""
        self.call("DELETE", "/notifications")
        self.call("DELETE", "/faults")


def main():
    """The command `pushchat-sandbox`: replaces itself by `pushchat sandbox` with the same arguments."""
    os.execv(EXECUTABLE, [EXECUTABLE, "sandbox", *sys.argv[1:]])
