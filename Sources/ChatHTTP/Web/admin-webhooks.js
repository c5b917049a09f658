"use strict";
// The operator's page: the health of webhooks.

// The number of failed events to show.
const maxFailures = 10;
const webhookStates = { active: "webhooks.active", paused: "webhooks.paused", ended: "webhooks.ended" };

// Lists the webhooks. Hides the section if there are none.
async function showWebhooks() {
  let page;
  try {
    page = await call("GET", "/v1/webhooks");
  } catch (error) {
    return showSection("webhooks", "webhook-list", error);
  }
  byId("webhooks").hidden = !page.webhooks.length;
  if (!page.webhooks.length) return update(byId("webhook-list"));
  update(byId("webhook-list"), table([
    "column.to", "column.room", "column.state", "column.queued", "webhooks.success", "column.reason", "column.actions",
  ], page.webhooks.map((webhook) => [
    new URL(webhook.url).origin, webhook.room ?? words("any"), words(webhookStates[webhook.state]), webhook.waiting,
    webhook.last_success_at ? clock(webhook.last_success_at) : words("never"), webhook.reason ?? "",
    actions([
      [words("webhooks.failures"), webhook.url, "failures-" + webhook.id, () => attempt(() => showFailures(webhook))],
      webhook.state === "active"
        ? [words("webhooks.test"), webhook.url, "try-" + webhook.id, () => changeWebhook("POST", webhook.id + ":test")]
        : [words("webhooks.resume"), webhook.url, "try-" + webhook.id, () => changeWebhook("PATCH", webhook.id, { state: "active" })],
    ]),
  ])));
}

function changeWebhook(method, path, body) {
  attempt(async () => {
    await call(method, "/v1/webhooks/" + path, body);
    await showWebhooks();
  });
}

// Shows the last failed events of a webhook with their responses.
async function showFailures(webhook) {
  const page = await call("GET", `/v1/webhooks/${webhook.id}/deliveries?state=failed&limit=${maxFailures}`);
  const place = byId("webhook-failures");
  if (!page.deliveries.length) update(place, element("p", "hint", words("noMatch")));
  else {
    update(place, table(["webhooks.event", "column.time", "column.result", "column.text"], page.deliveries.map((event) => [
      event.type, clock(event.created_at), String(event.status ?? event.error ?? ""), (event.response ?? "").slice(0, 200),
    ])));
  }
  place.focus();
}
