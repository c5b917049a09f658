"""The relay under test, for scripts that start, kill and restart it."""
import json, re, ssl, subprocess, time, urllib.error, urllib.parse, urllib.request

from checks import free_port

# Seconds after which a request counts as hanging.
LIMIT = 120


def start(base, command, context=None, log=subprocess.DEVNULL):
    """Starts a relay, and waits until it responds at its address. Returns the process."""
    process = subprocess.Popen(command, stdout=log, stderr=log)
    end = time.time() + 120
    while True:
        try:
            urllib.request.urlopen(base + "/healthz", timeout=2, context=context).close()
            return process
        except (urllib.error.URLError, OSError):
            if process.poll() is not None or time.time() > end:
                raise SystemExit(f"FAILED the relay does not start; its status is {process.poll()}")
            time.sleep(0.05)


def administered(command):
    """Returns a relay with an admin token, so that a request without a token has no rights, although it comes from the same
    machine."""
    token = "the-token-of-the-administrator"
    return Relay([*command, "--set", "admin.token=" + token], token=token)


class Relay:
    """A relay that keeps its port over restarts.

    With `authority`, the file of its certificate's authority, it speaks TLS. `token` is its admin token, if it has one. Its log is
    appended to `log`.
    """

    def __init__(self, command, authority=None, token=None, log="/dev/null"):
        self.port, self.command, self.process, self.log = free_port(), command, None, log
        self.settings = ()
        self.context = ssl.create_default_context(cafile=authority) if authority else None
        self.base = f"http{'s' if authority else ''}://127.0.0.1:{self.port}"
        self.rights = {"Authorization": f"Bearer {token}"} if token else {}

    def start(self, *settings):
        """Starts the relay with more flags, which it keeps when it restarts."""
        self.settings = settings
        with open(self.log, "a") as log:
            self.process = start(self.base, [*self.command, "--port", str(self.port), *settings], self.context, log)

    def kill(self):
        """Kills the relay with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def restart(self, meanwhile=None):
        """Kills the relay and starts it again. In between calls `meanwhile` with a relay on the same store and another port,
        which no client of the first one finds."""
        self.kill()
        if meanwhile:
            other = Relay(self.command)
            other.rights = self.rights
            other.start()
            meanwhile(other)
            other.kill()
        self.start(*self.settings)

    def ask(self, method, path, body=None, headers={}):
        """Returns the status, the text, and the headers."""
        request = urllib.request.Request(self.base + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT, context=self.context) as answer:
                return answer.status, answer.read().decode(), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), error.headers

    def admin(self, method, path, body=None, **headers):
        """Calls the admin API as the relay's own user, and returns the JSON. Any refusal ends the script."""
        data = None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if data else {}
        status, text, _ = self.ask(method, path, data, {**self.rights, **kind, **headers})
        if status >= 300:
            raise SystemExit(f"FAILED {method} {path} {body}: {status} {text}")
        return json.loads(text) if text else None

    def streams(self):
        """Returns the number of streams that the relay serves."""
        _, text, _ = self.ask("GET", "/metrics", headers=self.rights)
        return int(re.search(r"^pushchat_event_streams (\d+)", text, re.M)[1])

    def chat(self, command, udid, **fields):
        """Calls the chat API, and returns the text. Any refusal ends the script."""
        body = urllib.parse.urlencode({"cmd": command, "udid": udid, **fields}).encode()
        status, text, _ = self.ask("POST", "/api.php", body)
        if status != 200:
            raise SystemExit(f"FAILED cmd={command} {fields}: {status} {text}")
        return text

    def member(self, number, name, room):
        """Lets a member join, and returns its udid."""
        udid = f"{number:040x}"
        self.chat("join", udid, token=0, name=name, code=room)
        return udid

    def credential(self, udid, name):
        """Creates a member's credential for another app. Returns the JSON with secret and topic."""
        return json.loads(self.chat("credential", udid, name=name))

    def token(self, name, *scopes, room=None):
        """Creates an access token and returns its secret."""
        return self.admin("POST", "/v1/tokens", {"name": name, "scopes": scopes, **({"room": room} if room else {})})["token"]

    def post(self, room, text, key=None, **fields):
        """Posts as the administrator, and returns the message's id. A repeat with the same key posts once."""
        headers = {"Idempotency-Key": key} if key else {}
        return self.admin("POST", "/v1/messages", {"room": room, "text": text, **fields}, **headers)["id"]
