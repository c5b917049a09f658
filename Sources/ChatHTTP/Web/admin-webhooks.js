"use strict";
// The operator's page: the health of webhooks.

// The number of failed events to show, and of events among which to look for them.
const maxFailures = 10;
const eventsToExamine = 100;
// The number of failures after which a receiver counts as failing.
const failuresToWarn = 3;
// The number of seconds to wait for the response to a test. The relay waits for 15 seconds.
const secondsOfTest = 20;
const webhookLooks = { active: "good", failing: "bad", paused: "warn", ended: "bad" };

// The last list of webhooks, also for the verdict.
let lastWebhooks = [];

// Reads the webhooks for the verdict. A relay of an older version has none.
async function readWebhooks() {
  lastWebhooks = (await call("GET", "/v1/webhooks").catch(() => null))?.webhooks ?? lastWebhooks;
}

function healthOf(webhook) {
  return webhook.state === "active" && webhook.failures >= failuresToWarn ? "failing" : webhook.state;
}

// Returns the name of a webhook with its id, because several may have the same receiver.
function webhookName(webhook) {
  // The rest of the address may be a secret.
  const origin = new URL(webhook.url).origin;
  return `${webhook.id} ${webhook.bot ? plain(webhook.bot) + " " : ""}(${origin})`;
}

// Lists the webhooks. Hides the section if there are none.
async function showWebhooks() {
  try {
    lastWebhooks = (await call("GET", "/v1/webhooks")).webhooks;
  } catch (error) {
    return showSection("webhooks", "webhook-list", error);
  }
  byId("webhooks").hidden = !lastWebhooks.length;
  if (!lastWebhooks.length) return update(byId("webhook-list"));
  update(byId("webhook-list"), table([
    "column.to", "column.room", "column.state", "column.queued", "webhooks.success", "column.reason", "column.actions",
  ], lastWebhooks.map((webhook) => {
    const [receiver, state] = [webhookName(webhook), healthOf(webhook)];
    return [
      receiver, webhook.room ?? words("any"), element("td", webhookLooks[state], words("webhook." + state)), webhook.waiting,
      webhook.last_success_at ? clock(webhook.last_success_at) : words("never"), webhook.reason ?? "",
      actions([
        [words("webhooks.failures"), receiver, "failures-" + webhook.id, () => attempt(() => showFailures(webhook.id, receiver))],
        webhook.state === "active"
          ? [words("webhooks.test"), receiver, "try-" + webhook.id, () => attempt(() => testWebhook(webhook.id, receiver))]
          : [words("webhooks.resume"), receiver, "try-" + webhook.id, () => attempt(async () => {
            await call("PATCH", "/v1/webhooks/" + webhook.id, { state: "active" });
            await showWebhooks();
          })],
      ]),
    ];
  })));
}

// Shows the last events of a webhook that failed, or have failed so far, with their responses.
async function showFailures(id, receiver) {
  const pages = await Promise.all(["waiting", "failed"].map((state) =>
    call("GET", `/v1/webhooks/${id}/deliveries?state=${state}&limit=${eventsToExamine}`)));
  const failures = pages.flatMap((page) => page.deliveries).filter((event) =>
    event.state === "failed" || event.status !== null || event.error);
  showEvents(id, receiver, failures.sort((one, other) => other.id - one.id).slice(0, maxFailures));
}

// Sends an event without content, and shows the response.
async function testWebhook(id, receiver) {
  const { event } = await call("POST", `/v1/webhooks/${id}:test`);
  for (let second = 0; second < secondsOfTest; second += 1) {
    await new Promise((done) => setTimeout(done, 1000));
    const page = await call("GET", `/v1/webhooks/${id}/deliveries?limit=${eventsToExamine}`);
    const found = page.deliveries.find((each) => each.id === event);
    if (found && found.status === null && !found.error) continue;
    showEvents(id, receiver, found ? [found] : []);
    return showWebhooks();
  }
  showEvents(id, receiver, []);
}

function showEvents(id, receiver, events) {
  const title = element("h3", "", words("webhooks.eventsOf", { receiver }));
  const list = events.length ? table(["webhooks.event", "column.time", "column.state", "column.result", "column.text", "column.actions"],
    events.map((event) => [
      event.type, clock(event.created_at), words("webhook." + event.state), [event.status, event.error].filter(Boolean).join(": "),
      (event.response ?? "").slice(0, 200),
      event.state === "failed" ? actions([[words("webhooks.again"), event.type, "again-" + event.id, () => attempt(async () => {
        await call("POST", `/v1/webhooks/${id}:redeliver`, { events: [event.id] });
        await Promise.all([showWebhooks(), showFailures(id, receiver)]);
      })]]) : "",
    ])) : element("p", "hint", words("noMatch"));
  const place = byId("webhook-failures");
  update(place, title, list);
  place.focus();
}
