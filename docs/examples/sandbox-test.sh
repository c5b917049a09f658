#!/bin/sh
# Tests a provider in a shell script: starts a sandbox on free ports, sends a push, checks that it arrived, and stops the
# sandbox.
# Requires pushchat, curl with HTTP/2, and python3 to read JSON.
set -eu
folder=$(mktemp -d)
pushchat sandbox --free-ports --ready-file "$folder/ready.json" --directory "$folder/sandbox" --end-with-parent \
    > "$folder/sandbox.log" 2>&1 &
sandbox=$!
trap 'kill $sandbox 2> "$folder/kill.log" || true; wait $sandbox || true; rm -r "$folder"' EXIT

until [ -e "$folder/ready.json" ]; do
    kill -0 $sandbox || { cat "$folder/sandbox.log"; exit 1; }
    sleep 0.1
done
ready() { python3 -c "import json; print(json.load(open('$folder/ready.json'))$1)"; }
control=$(ready "['control']")

# Creates a device; the sandbox returns its token.
token=$(curl -s -X POST -H 'Content-Type: application/json' -d '{}' "$control/devices" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["token"])')

# Replace this with your provider; here curl sends the push, with the certificate.
curl -s --http2 --cacert "$(ready "['authority']")" --cert "$(ready "['certificate']")" \
    -H "apns-topic: $(ready "['topic']")" -H 'apns-push-type: alert' -d '{"aps":{"alert":"Hello"}}' \
    "https://localhost:$(ready "['ports']['http2']")/3/device/$token"

# A provider may return before its push has arrived, so this waits for it.
arrived=$(curl -s "$control/notifications?token=$token&wait=10s")
case $arrived in
    *'"answer":"accepted"'*) echo "it has arrived" ;;
    *) echo "it has not arrived: $arrived"; exit 1 ;;
esac
