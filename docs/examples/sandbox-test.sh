#!/bin/sh
# Tests a provider in a shell script: starts a sandbox on free ports, pushes, looks at what arrived, ends it.
# Needs pushchat, curl with HTTP/2, and python3 to read JSON.
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

# A device of the sandbox: it gives the token.
token=$(curl -s -X POST -H 'Content-Type: application/json' -d '{}' "$control/devices" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["token"])')

# Your provider does this; here curl does it, with the certificate.
curl -s --http2 --cacert "$(ready "['authority']")" --cert "$(ready "['certificate']")" \
    -H "apns-topic: $(ready "['topic']")" -H 'apns-push-type: alert' -d '{"aps":{"alert":"Hello"}}' \
    "https://localhost:$(ready "['ports']['http2']")/3/device/$token"

# Waits for a provider that answers before its push has arrived.
arrived=$(curl -s "$control/notifications?token=$token&wait=10s")
case $arrived in
    *'"answer":"accepted"'*) echo "it has arrived" ;;
    *) echo "it has not arrived: $arrived"; exit 1 ;;
esac
