"""Notifies a user, waits until each of the user's devices has its outcome, and fails unless all accepted it.

    PUSHCHAT_TOKEN=pct_… python3 notify.py https://chat.example.org alice 'Tea is ready'
"""

import json, os, sys, time, urllib.request, uuid

relay, user, text = sys.argv[1:]
headers = {
    "Authorization": "Bearer " + os.environ["PUSHCHAT_TOKEN"],
    "Content-Type": "application/json",
    "Idempotency-Key": str(uuid.uuid4()),  # a second attempt after a lost response sends nothing twice
}


def call(path, body=None):
    for attempt in range(10):
        try:
            request = urllib.request.Request(relay + path, body and json.dumps(body).encode(), headers)
            return json.load(urllib.request.urlopen(request, timeout=10))
        except OSError as error:
            if 400 <= getattr(error, "code", 503) < 429:
                sys.exit(f"{error}: {error.read().decode()}")
            print(error, file=sys.stderr)
            time.sleep(2)
    sys.exit("the relay does not respond")


sent = call("/v1/notifications", {"to": {"users": [user]}, "alert": text})
deadline = time.monotonic() + 60
while True:
    notification = call(f"/v1/notifications/{sent['id']}")
    if notification["state"] == "done" or time.monotonic() > deadline:
        break
    time.sleep(0.5)
for delivery in notification["deliveries"]:
    print(delivery["token"][:8], delivery["state"], delivery["reason"] or "")
sys.exit(0 if 0 < notification["counts"]["sent"] == notification["devices"] else 1)
