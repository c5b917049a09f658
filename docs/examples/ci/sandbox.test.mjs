// Tests a provider in Node.js against a sandbox that runs already, for example as a service of the CI (github.yml, gitlab.yml).
// PUSHCHAT_SANDBOX is the address of its control API. Run it with: node --test
import assert from "node:assert";
import http2 from "node:http2";
import test from "node:test";

const control = process.env.PUSHCHAT_SANDBOX ?? "http://localhost:2198";

async function call(method, path) {
  const body = method === "POST" ? "{}" : undefined;
  const response = await fetch(control + path, { method, body, headers: { "Content-Type": "application/json" } });
  return response.json();
}

// Sends a push. Replace this with your provider.
async function push(token, payload) {
  const { authority, certificate, topic } = await call("GET", "/credentials");
  // The sandbox's certificate has the name localhost, whatever the name of the service is.
  const client = http2.connect(`https://${new URL(control).hostname}:2197`, {
    ca: authority, cert: certificate, key: certificate, servername: "localhost",
  });
  try {
    return await new Promise((resolve, reject) => {
      client.on("error", reject);
      const request = client.request({
        ":method": "POST", ":path": `/3/device/${token}`, "apns-topic": topic, "apns-push-type": "alert",
      });
      request.on("response", (headers) => resolve(headers[":status"])).on("error", reject);
      request.end(payload);
    });
  } finally {
    client.close();
  }
}

test("a push arrives", async () => {
  const { token } = await call("POST", "/devices");
  assert.equal(await push(token, '{"aps":{"alert":"Hello"}}'), 200);
  // A provider may return before its push has arrived, so this waits for it.
  const { notifications } = await call("GET", `/notifications?wait=10s&token=${token}`);
  assert.deepEqual(notifications.map((each) => each.answer), ["accepted"]);
});
