#!/usr/bin/env python3
"""Unmodified programs post to webhooks: Debian's Alertmanager through a firing, a second and a resolved alert, and Apprise.

Usage: hook_senders.py ALERTMANAGER RELAY-COMMAND…
ALERTMANAGER is the executable. Prints a line for each check that passed. Ends with status 1 at the first that failed.
"""
import atexit, datetime, json, subprocess, sys, tempfile, urllib.request

import apprise

from checks import check, free_port, until
from relay import administered

alertmanager, log = sys.argv[1], tempfile.NamedTemporaryFile()
relay = administered(sys.argv[2:])
relay.log = log.name
children = []


@atexit.register
def end():
    for child in [*children, relay.process]:
        if child and child.poll() is None:
            child.kill()


def hook(format):
    """Returns the token of a new webhook, and its address."""
    made = relay.admin("POST", "/v1/tokens", {"name": "from " + format, "room": "ops", "hook": {"format": format}})
    return made["token"], relay.base + made["url"]


def messages():
    return relay.admin("GET", "/v1/messages?room=ops&text=true")["messages"]


def started_alertmanager(url):
    """Starts Alertmanager, and returns the address of its API."""
    folder, ports = tempfile.mkdtemp(), [free_port(), free_port()]
    with open(folder + "/alertmanager.yml", "w") as file:
        file.write(f"""
route: {{receiver: relay, group_by: [alertname], group_wait: 1s, group_interval: 1s, repeat_interval: 1h}}
receivers:
- name: relay
  webhook_configs:
  - url: {url}
""")
    # Debian's build reads templates below /usr/share, where an unpacked package has none.
    share = alertmanager.removesuffix("/bin/prometheus-alertmanager") + "/share"
    mount = 'mount -t overlay overlay -o "lowerdir=$0:/usr/share" /usr/share && exec "$@"'
    children.append(subprocess.Popen(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, share, alertmanager, f"--config.file={folder}/alertmanager.yml", f"--storage.path={folder}/data",
         f"--web.listen-address=127.0.0.1:{ports[0]}", "--cluster.listen-address="],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    base = f"http://127.0.0.1:{ports[0]}"
    until("Alertmanager starts", lambda: urllib.request.urlopen(base + "/-/ready", timeout=2).status == 200)
    return base


def alert(base, instance, ends=None):
    """Tells Alertmanager of an alert, as Prometheus does."""
    body = {"labels": {"alertname": "DiskFull", "instance": instance, "severity": "critical"},
            "annotations": {"summary": f"The disk of {instance} is full"}, "generatorURL": "http://prometheus.example/graph"}
    if ends:
        body["endsAt"] = ends
    request = urllib.request.Request(
        base + "/api/v2/alerts", json.dumps([body]).encode(), {"Content-Type": "application/json"}, method="POST")
    urllib.request.urlopen(request, timeout=30).close()


relay.start()
secrets = []

# ----- Alertmanager

token, url = hook("alertmanager")
secrets.append(token)
api = started_alertmanager(url)
alert(api, "nas")
until("a firing alert is a message", messages)
first = messages()[0]
check("it has the alert's title", first.get("title") == "DiskFull", first)
check("it has the alert's text", "The disk of nas is full" in first["text"], first)
check("the token names the sender", first["name"] == "from alertmanager", first)
alert(api, "db")
until("a second alert changes the message", lambda: "db" in messages()[0]["text"])
check("and posts no other", len(messages()) == 1 and messages()[0]["id"] == first["id"], messages())
past = (datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=1)).isoformat()
for instance in ["nas", "db"]:
    alert(api, instance, past)
until("resolved alerts resolve it", lambda: messages()[0]["title"] == "Resolved: DiskFull")
check("in its place", [message["id"] for message in messages()] == [first["id"]], messages())
check("and end the key", messages()[0].get("resolved_at"), messages())
alert(api, "nas")
until("the next alert is another message", lambda: len(messages()) == 2)

# ----- Apprise

token, url = hook("json")
secrets.append(token)
sender = apprise.Apprise()
check("Apprise knows the address", sender.add(url.replace("http://", "json://")))
check("Apprise posts", sender.notify(title="Backup", body="is done", notify_type="success"))
check("its message has a title and a text",
      any(each.get("title") == "Backup" and each["text"] == "is done" for each in messages()), messages())

token, url = hook("discord")
secrets.append(token)
# No sender that can be installed here lets its user choose the host of Discord.
body = {"username": "bot", "embeds": [{"title": "Build", "description": "**failed**", "url": "https://example.org/1"}]}
request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
check("Discord's senders get its response", urllib.request.urlopen(request, timeout=30).status == 204)

# ----- Secrets

relay.kill()
with open(log.name) as file:
    text = file.read()
check("the log has the posts", "message accepted" in text, text[-500:])
check("the log has no token", not any(secret in text for secret in secrets))
