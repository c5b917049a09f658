"""Prints a room's messages as they come, and misses none when the connection is lost.

    PUSHCHAT_TOKEN=pct_… python3 wait.py https://chat.example.org kitchen
"""

import json, os, sys, time, urllib.parse, urllib.request

relay, room = sys.argv[1:]
headers = {"Authorization": "Bearer " + os.environ["PUSHCHAT_TOKEN"]}
while True:
    try:
        request = urllib.request.Request(f"{relay}/events?room={urllib.parse.quote(room)}", headers=headers)
        for line in urllib.request.urlopen(request, timeout=45):  # the relay writes at least every 16 seconds
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "id":
                headers["Last-Event-ID"] = value  # the stream resumes after this message
            elif name == "event":
                event = value
            elif name == "data" and event == "message":
                message = json.loads(value)
                print(f"{message['name']}: {message['text']}", flush=True)
    except OSError as error:
        if 400 <= getattr(error, "code", 503) < 429:
            sys.exit(f"{error}: {error.read().decode()}")
        print(error, file=sys.stderr)
    time.sleep(2)
