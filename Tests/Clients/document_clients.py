#!/usr/bin/env python3
"""Plays the clients and servers of the four documents besides the tutorial, against a relay and its sandbox.

The clients send the same as the documents' code: forms to the printed addresses, tokens as their devices print them.
The command line and the admin API replace the documents' own scripts.

Usage: document_clients.py PUSHCHAT RELAY-URL SANDBOX-URL BINARY-PORT HTTP2-PORT SANDBOX-FOLDER SHELL
(SHELL, a list in JSON, runs the SQL that follows it in the relay's database)
Prints a line for each check that passed. Ends with status 1 at the first that failed.
"""
import json, subprocess, sys, time, urllib.error, urllib.parse, urllib.request

PUSHCHAT, RELAY, SANDBOX, BINARY, HTTP2, FOLDER, SHELL = sys.argv[1:]


def check(what, holds, detail=""):
    if not holds:
        sys.exit(f"FAILED {what}: {detail}")
    print(what)


def call(method, url, body=None, headers={}):
    request = urllib.request.Request(url, method=method, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


def form(path, **fields):
    """Posts a form as ASIFormDataRequest does without files."""
    return call("POST", RELAY + path, urllib.parse.urlencode(fields).encode(),
                {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"})[:2]


def multipart(path, **fields):
    """Posts a multipart form as ASIFormDataRequest does on request."""
    boundary = "0xKhTmLbOuNdArY-1B7D0B0E"
    body = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()) + f"--{boundary}--\r\n"
    return call("POST", RELAY + path, body.encode(),
                {"Content-Type": f"multipart/form-data; charset=utf-8; boundary={boundary}"})[:2]


def api(method, path, value=None, **headers):
    body = None if value is None else json.dumps(value).encode()
    headers = {name.replace("_", "-"): text for name, text in headers.items()}
    if body is not None:
        headers["Content-Type"] = "application/json"
    status, text, _ = call(method, RELAY + path, body, headers)
    return status, json.loads(text) if text else None


def command(*arguments, expect=0):
    done = subprocess.run([PUSHCHAT, *arguments], capture_output=True, text=True, timeout=60, cwd=FOLDER)
    if done.returncode != expect:
        sys.exit(f"FAILED pushchat {' '.join(arguments)}: status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout + done.stderr


seen = 0


def arrivals(count, within=20):
    """Returns token and payload of the next pushes that the sandbox accepted, in order of arrival."""
    global seen
    end = time.time() + within
    while True:
        page = json.loads(call("GET", f"{SANDBOX}/notifications?since={seen}")[1])
        # Leave out the empty one with which the relay probes the binary gateway for all earlier ones.
        came = [n for n in page["notifications"] if n["payload"]]
        if len(came) >= count:
            seen = page["next"]
            return [(n["token"], json.loads(n["payload"])) for n in came]
        if time.time() > end:
            sys.exit(f"FAILED waiting for {count} pushes, {len(came)} came: {page}")
        time.sleep(0.05)


def settled(notification):
    """Waits until every push of a notification is settled."""
    end = time.time() + 30
    while True:
        status, value = api("GET", f"/v1/notifications/{notification}")
        if status == 200 and value["state"] == "done":
            return value
        if time.time() > end:
            sys.exit(f"FAILED waiting for notification {notification}: {value}")
        time.sleep(0.05)


def token(number):
    return f"{number:064x}"


def printed(hexadecimal):
    """Formats a token as the description of NSData: `<0f744707 bebcf74f …>`."""
    return "<" + " ".join(hexadecimal[i:i + 8] for i in range(0, len(hexadecimal), 8)) + ">"


def monitoring():
    """Document 1: alerts of a server monitor."""
    phone = token(0x101)
    status, text = form("/push_chat_service.php", token=printed(phone).strip("<>"), appid="com.example.PushChat")
    check("1 a token with spaces is registered", (status, text) == (200, "OK\n"), text)

    alert = {"to": {"tokens": [phone]}, "alert": "Server 1 is down", "sound": "default",
             "custom": {"server": {"serverId": 1, "name": "Server 1"}}}
    status, receipt = api("POST", "/v1/notifications", alert, Idempotency_Key="alert-4711")
    check("1 an alert with a custom dictionary beside aps is accepted", status == 202 and receipt["devices"] == 1, receipt)
    check("1 and arrives as it was meant", arrivals(1) == [
        (phone, {"aps": {"alert": "Server 1 is down", "sound": "default"}, "server": {"serverId": 1, "name": "Server 1"}})])
    again = api("POST", "/v1/notifications", alert, Idempotency_Key="alert-4711")
    check("1 the monitor's repeat is the same alert", again == (202, receipt), again)

    payload = '{"aps":{"alert":"from the queue","badge":3}}'
    row = f"INSERT INTO push_queue (device_token, payload) VALUES ('{printed(phone)}', '{payload}')"
    subprocess.run([*json.loads(SHELL), row], check=True, timeout=60)
    check("1 a payload that a script puts into the queue is sent", arrivals(1) == [(phone, json.loads(payload))])

    status, problem = api("POST", "/v1/notifications", {"to": {"tokens": [phone]}, "alert": "x" * 4100})
    check("1 the error for a payload that is too large says by how much",
          status == 400 and problem["field"] == "payload" and "more than the 4096" in problem["detail"], problem)


def tutorial():
    """Document 2: registration with an app id, and the sending script with a .p12 file and its password."""
    phone = token(0x201)
    status, text = form("/push_chat_service.php", token=phone, appid="98Z3R5XU29.com.example.PushChat")
    check("2 token and appid with the team's prefix", (status, text) == (200, "OK\n"), text)
    status, text = multipart("/push_chat_service.php", token=phone, appid="98Z3R5XU29.com.example.PushChat")
    check("2 the same in the other format", (status, text) == (200, "OK\n"), text)
    status, text = form("/push_chat_service.php", token=phone, appid="98Z3R5XU29.com.example.Unknown")
    check("2 an app that is not configured is an error that names the field", status == 400 and "appid" in text, text)
    status, text = form("/push_chat_service.php", token="", appid="com.example.PushChat")
    check("2 an empty token is an error", status == 400 and "token" in text, text)

    # The text has three bytes per character, so none may be escaped on the way.
    identity = ["--certificate", FOLDER + "/client.p12", "--passphrase", "pushchat", "--trust", FOLDER + "/ca.pem",
                "--topic", "com.example.PushChat", "--host", "127.0.0.1"]
    for gateway, port in (("binary", BINARY), ("http2", HTTP2)):
        text = command("send", "--direct", *identity, "--gateway", gateway, "--port", port, "--token", phone,
                       "--alert", "新年好", "--badge", "11", "--sound", "default")
        check(f"2 the sending script, over {gateway}", "accepted" in text, text)
        check(f"2 and the push over {gateway}", arrivals(1) == [
            (phone, {"aps": {"alert": "新年好", "badge": 11, "sound": "default"}})])
    wrong = [*identity[:3], "wrong", *identity[4:]]
    text = command("send", "--direct", *wrong, "--gateway", "http2", "--port", HTTP2, "--token", phone,
                   "--alert", "x", expect=1)
    check("2 a wrong password gives a clear error", "passphrase" in text, text)


def models():
    """Document 3: devices and messages as models, with a record for each device."""
    phones = [token(0x301 + number) for number in range(3)]
    for phone in phones:
        status, text = form("/admin/apns_devices.json", token=printed(phone))
        check("3 a device registers at the address of the document", (status, json.loads(text)) == (200, {"ok": True}), text)
    for _ in range(5):
        made = json.loads(call("POST", SANDBOX + "/devices", b"{}", {"Content-Type": "application/json"})[1])["token"]
        form("/admin/apns_devices.json", token=made)
        call("DELETE", f"{SANDBOX}/devices/{made}")

        status, receipt = api("POST", "/v1/notifications", {
            "to": {"tokens": [*phones, made, phones[0]]}, "alert": "hello", "badge": 1, "sound": "default"})
        check("3 a message to several devices", status == 202 and receipt["devices"] == 4, receipt)
        record = settled(receipt["id"])
        if not any(d["reason"] == "DeviceInactive" for d in record["deliveries"]):
            break
        arrivals(3)  # The feedback service reported the device in between. Try again with another one.
        api("DELETE", f"/v1/devices/{made}")
    check("3 one record for each device", sorted(d["token"] for d in record["deliveries"]) == sorted([*phones, made]), record)
    check("3 with time and outcome", all(d["settled_at"] and d["attempts"] == 1 for d in record["deliveries"]), record)
    check("3 and the gateway's reason", record["counts"]["sent"] == 3 and record["counts"]["failed"] == 1
          and [d["reason"] for d in record["deliveries"] if d["token"] == made] in (["Unregistered"], ["InvalidToken"]), record)
    check("3 no device got it twice", sorted(t for t, _ in arrivals(4)) == sorted([*phones, made]))
    end = time.time() + 20
    while True:
        # Over the binary protocol the feedback service reports it a little later.
        status, device = api("GET", f"/v1/devices/{made}")
        if not device["active"] or time.time() > end:
            break
        time.sleep(0.1)
    check("3 the device is deactivated, with the time", status == 200 and not device["active"] and device["deactivated_at"], device)
    status, receipt = api("POST", "/v1/notifications", {"to": {"tokens": [made]}, "alert": "again"})
    record = settled(receipt["id"])
    check("3 and is skipped from then on", [d["reason"] for d in record["deliveries"]] == ["DeviceInactive"], record)
    form("/admin/apns_devices.json", token=made)
    check("3 until it registers again", api("GET", f"/v1/devices/{made}")[1]["active"])
    api("DELETE", f"/v1/devices/{made}")


def manager():
    """Document 4: the device manager."""
    status, listed = api("GET", "/v1/devices?limit=500")
    everyone = sorted(d["token"] for d in listed["devices"])
    check("4 all devices are in the list", status == 200 and len(everyone) >= 5 and listed["next"] is None, listed)
    for what, content, aps in (
        ("a message", {"alert": "m"}, {"alert": "m"}), ("a sound", {"sound": "beep.caf"}, {"sound": "beep.caf"}),
        ("a badge", {"badge": 7}, {"badge": 7}),
        ("all of them", {"alert": "m", "badge": 7, "sound": "beep.caf"}, {"alert": "m", "badge": 7, "sound": "beep.caf"}),
    ):
        api("POST", "/v1/notifications", {"to": {"all": True}, **content})
        came = arrivals(len(everyone))
        check(f"4 {what} to every device", sorted(t for t, _ in came) == everyone and all(p == {"aps": aps} for _, p in came), came)
        command("send", "--relay", RELAY, "--token", everyone[0], *[
            text for name, value in content.items() for text in ("--" + name, str(value))])
        check(f"4 {what} to one device, by the command line", arrivals(1) == [(everyone[0], {"aps": aps})])
    raw = '{"aps":{"alert":{"loc-key":"GREETING","loc-args":["Ray"]}},"acme":[1,2.50]}'
    command("send", "--relay", RELAY, "--token", everyone[0], "--payload", raw)
    check("4 raw JSON to one device", arrivals(1) == [(everyone[0], json.loads(raw))])

    phone = token(0x401)
    status, text = form("/push_chat_service.php", token=phone, client_info="iPod; badges only")
    check("4 a device registers with a text of its own", status == 200, text)
    status, _ = api("PUT", f"/v1/devices/{phone}", {"user_reference": "account-17"})
    check("4 its user is set", status == 200)
    status, device = api("GET", f"/v1/devices/{phone}")
    check("4 the device's data", device["client_info"] == "iPod; badges only" and device["user_reference"] == "account-17", device)
    status, device = api("PATCH", f"/v1/devices/{phone}", {"server_info": "badge 3"})
    check("4 the server's own text is kept with it", status == 200 and device["server_info"] == "badge 3", device)
    unread = {"to": {"users": ["account-17"]}, "badge": 3, "skip_unchanged": True}
    status, receipt = api("POST", "/v1/notifications", unread)
    check("4 the user's unread count", receipt["devices"] == 1 and arrivals(1) == [(phone, {"aps": {"badge": 3}})], receipt)
    settled(receipt["id"])
    status, receipt = api("POST", "/v1/notifications", unread)
    check("4 is not sent again unchanged", receipt["devices"] == 0 and settled(receipt["id"])["counts"]["skipped"] == 1, receipt)
    api("POST", "/v1/notifications", {**unread, "badge": 4})
    check("4 but when it has changed", arrivals(1) == [(phone, {"aps": {"badge": 4}})])
    status, text = form("/push_chat_service.php", token=phone, cmd="unregister")
    check("4 a device unregisters", status == 200 and api("GET", f"/v1/devices/{phone}")[0] == 404, text)


monitoring()
tutorial()
models()
manager()
