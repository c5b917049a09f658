"use strict";
// The operator's page. All data comes from the admin API, with the admin token if one is configured.

// The time between two samples, in milliseconds, and the maximum number of samples to plot.
const pause = 2000;
const most = 300;

let token = sessionStorage.getItem("pushchat.admin");

function call(method, path, body, headers = {}) {
  return callJSON(method, path, body, token ? { ...headers, Authorization: "Bearer " + token } : headers);
}

// MARK: Login

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  look().then(() => sessionStorage.setItem("pushchat.admin", token)).catch(() => {});
});

byId("forget").addEventListener("click", () => {
  sessionStorage.removeItem("pushchat.admin");
  location.reload();
});

function show(isIn) {
  byId("door").hidden = isIn;
  byId("view").hidden = !isIn;
  byId("forget").hidden = !isIn || !token;
}

// MARK: Metrics

const samples = [];
// Whether the error on the screen says that the metrics cannot be read. Only that error disappears without user action.
let isLost = false;

function seconds(count) {
  if (count === null || count === undefined) return "none";
  if (count < 60) return Math.round(count) + " s";
  if (count < 5400) return Math.round(count / 60) + " min";
  if (count < 172800) return Math.round(count / 3600) + " h";
  return Math.round(count / 86400) + " days";
}

async function look() {
  let stats;
  try {
    stats = await call("GET", "/v1/stats");
  } catch (error) {
    if (error instanceof Refused && error.status === 401) {
      show(false);
      if (token) showError(error);
    } else {
      isLost = true;
      const waits = byId("door").hidden ? "; waiting for it." : ".";
      showError(error instanceof Refused ? error : new Error("The relay does not answer" + waits));
    }
    throw error;
  }
  const isNew = isLost || byId("view").hidden;
  if (isNew) {
    showError();
    // Draw the day before the view appears, so that nothing moves.
    await showDay();
  }
  isLost = false;
  show(true);
  draw(stats);
  if (isNew) showLists();
}

// Fetches the lists once rather than periodically, because each call adds a line to the log.
function showLists() {
  return Promise.all([showUsage(), showTokens(), showModeration()]).catch(showError);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden || byId("view").hidden) return;
  showDay();
  showLists();
});

// Shows a section whose list cannot be read. Hides it if the relay is older and lacks it. Shows the error otherwise, for example
// if the token has no access.
function showSection(section, list, error) {
  const isMissing = error instanceof Refused && [404, 405].includes(error.status);
  byId(section).hidden = isMissing;
  if (!isMissing) update(byId(list), element("p", "hint", error.message));
}

function sum(stats, name) {
  return stats.apps.reduce((total, app) => total + app[name], 0);
}

function recent(stats, state) {
  return stats.apps.flatMap((app) => app.outcomes).filter((outcome) => outcome.state === state)
    .reduce((total, outcome) => total + outcome.last_minute, 0);
}

function draw(stats) {
  byId("about").textContent = "version " + stats.version + ", up for " + seconds(stats.uptime_seconds);
  const depth = sum(stats, "due") + sum(stats, "delayed") + sum(stats, "written");
  const ages = stats.apps.map((app) => app.oldest_age_seconds).filter((age) => age !== null);
  const cards = [
    ["In the queue", depth], ["Oldest waits", ages.length ? seconds(Math.max(...ages)) : "–"],
    ["Sent, last minute", recent(stats, "sent")], ["Failed, last minute", recent(stats, "failed")],
    ["Devices", stats.devices.active + (stats.devices.total > stats.devices.active ? " of " + stats.devices.total : "")],
    ["Members", stats.members], ["Rooms", stats.rooms], ["Messages", stats.messages],
    ["Notifications", stats.notifications],
  ];
  byId("figures").replaceChildren(...cards.map(([name, value]) => {
    const card = element("div");
    card.append(element("dt", "", name), element("dd", "", value));
    return card;
  }));
  samples.push({ depth, age: ages.length ? Math.max(...ages) : 0 });
  if (samples.length > most) samples.shift();
  plot();
  update(byId("apps"), ...stats.apps.map(appOf));
}

// Returns a line through the samples, with the newest on the right and the highest just below the top.
function line(name, least) {
  const top = Math.max(least, ...samples.map((sample) => sample[name]));
  return samples.map((sample, index) => {
    const x = 600 - (samples.length - 1 - index) * (600 / (most - 1));
    return x.toFixed(1) + " " + (135 - (sample[name] / top) * 125).toFixed(1);
  }).join("L");
}

function plot() {
  const points = line("depth", 10);
  byId("line").setAttribute("d", "M" + points);
  byId("area").setAttribute("d", "M" + points.split(" ")[0] + " 140L" + points + "L600 140Z");
  byId("age").setAttribute("d", "M" + line("age", 10));
  const highest = (name) => Math.max(...samples.map((sample) => sample[name]));
  byId("legend").textContent = samples.at(-1).depth + " now, " + highest("depth") + " at most; the oldest (dashed) waited up to "
    + seconds(highest("age"));
}

function list(rows) {
  const list = element("dl", "facts");
  list.append(...facts(rows));
  return list;
}

function table(head, rows) {
  const box = element("div", "table");
  const made = element("table");
  const line = element("tr");
  head.forEach((name, column) => {
    const cell = element("th", typeof rows[0]?.[column] === "number" ? "number" : "", name);
    cell.scope = "col";
    line.append(cell);
  });
  const top = element("thead");
  top.append(line);
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr");
    row.forEach((value) => line.append(
      value instanceof Node ? value : element("td", typeof value === "number" ? "number" : "", value ?? "")));
    body.append(line);
  }
  made.append(top, body);
  box.append(made);
  // Allow scrolling wide tables with the keyboard.
  box.tabIndex = 0;
  return box;
}

// Returns a button. `key` identifies it after the list is drawn again.
function button(text, action, key) {
  const made = element("button", "quiet", text);
  made.type = "button";
  if (key) made.dataset.key = key;
  made.addEventListener("click", action);
  return made;
}

// Returns a table cell with a link.
function link(text, action) {
  const made = button(text, () => lead(action));
  made.className = "link";
  const cell = element("td");
  cell.append(made);
  return cell;
}

// Returns a table cell with buttons. Each has a verb, its object, a key, and an action.
function actions(list) {
  const cell = element("td");
  const box = element("div", "buttons");
  box.append(...list.map(([verb, object, key, action]) => {
    const made = button(verb, action, key);
    made.append(element("span", "only-spoken", " " + object));
    return made;
  }));
  cell.append(box);
  return cell;
}

const looks = { sent: "good", failed: "bad", expired: "bad", cancelled: "warn" };

function state(text) {
  return element("td", looks[text] ?? "", text);
}

function appOf(app) {
  const box = element("div");
  box.append(element("h3", "", app.app));
  const end = app.certificate_expires_at && new Date(app.certificate_expires_at);
  const days = end && Math.floor((end - Date.now()) / 86400000);
  box.append(list([
    ["Gateway", app.gateway ? app.gateway + (app.address ? " at " + app.address : ", no credentials") : "no longer configured",
      app.address ? "" : "warn"],
    ["Topic", app.topic],
    ["Connections", app.connections, app.address && app.connections === 0 ? "bad" : ""],
    ["Certificate", end && days + " days left", days < 30 ? "bad" : ""],
    ["Queue", `${app.due} due, ${app.delayed} delayed, ${app.written} in progress`],
    ["Oldest", app.oldest_queued_at && seconds(app.oldest_age_seconds)],
  ]));
  if (app.outcomes.length) {
    box.append(table(["Outcome", "Reason", "Last minute", "Since the start"], app.outcomes
      .toSorted((one, other) => other.total - one.total)
      .map((outcome) => [state(outcome.state), outcome.reason, outcome.last_minute, outcome.total])));
  }
  return box;
}

// MARK: Sending

const words = { tokens: "Token", users: "Reference", tags: "Tag", room: "Secret code" };

byId("to").addEventListener("change", () => {
  const to = byId("to").value;
  byId("whom-box").hidden = to === "all";
  byId("whom-label").textContent = words[to] ?? "";
});

byId("send").addEventListener("submit", async (event) => {
  event.preventDefault();
  const to = byId("to").value;
  const whom = byId("whom").value.trim();
  const body = { to: { [to]: to === "all" ? true : to === "room" ? whom : [whom] } };
  if (byId("alert").value) body.alert = byId("alert").value;
  if (byId("badge").value) body.badge = Number(byId("badge").value);
  if (byId("sound").value) body.sound = byId("sound").value;
  attempt(async () => {
    const receipt = await call("POST", "/v1/notifications", body, { "Idempotency-Key": crypto.randomUUID?.() ?? String(Math.random()) });
    await follow(() => showNotification(receipt.id));
  });
});

// MARK: Looking up

let following = 0;

// Shows a record and refreshes it until it is final or another one is opened.
async function follow(show) {
  const mine = (following += 1);
  for (let look = 0; mine === following; look += 1) {
    let found;
    try {
      found = await show();
    } catch (error) {
      // Ignore an error for a record that is no longer open.
      if (mine === following) throw error;
      return;
    }
    if (mine !== following) return;
    const [made, isOver] = found;
    if (!isOver && look === 300) made.append(element("p", "hint", "This is no longer refreshed. Look it up again."));
    update(byId("result"), made);
    if (isOver || look === 300) return;
    await new Promise((done) => setTimeout(done, 500));
  }
}

// Replaces content only if it has changed, so that focus, selection and a screen reader's position stay.
function update(place, ...made) {
  const isSame = place.children.length === made.length && made.every((each, index) => each.isEqualNode(place.children[index]));
  if (isSame) return;
  const { activeElement } = document;
  place.replaceChildren(...made);
  if (activeElement && !activeElement.isConnected) focusKey(place, activeElement.dataset.key);
}

function focusKey(place, key) {
  if (key) place.querySelector(`[data-key="${key}"]`)?.focus();
}

async function showNotification(id) {
  const notification = await call("GET", "/v1/notifications/" + id + "?limit=50");
  return [notificationOf(notification), ["done", "cancelled"].includes(notification.state)];
}

async function showMessage(id) {
  const message = await call("GET", "/v1/messages/" + id + "?limit=50");
  const { counts } = message;
  const isOver = !message.queueing && counts.pending === 0 && message.fetched === message.readers;
  return [messageOf(message), isOver];
}

// Moves the focus to the result of an action, because the clicked element disappears.
function lead(action) {
  byId("result").focus();
  return attempt(action);
}

// Shows an error.
async function attempt(action) {
  showError();
  try {
    await action();
  } catch (error) {
    showError(error);
  }
}

// Returns the origin of a push: a notification, a message, or neither if another program enqueued it.
function origin(delivery) {
  if (delivery.notification) return link("notification " + delivery.notification, () => follow(() => showNotification(delivery.notification)));
  if (delivery.message) return link("message " + delivery.message, () => follow(() => showMessage(delivery.message)));
  return "";
}

function deliveries(list, head, cell) {
  return table(["Push", "Token", "State", "Reason", "Attempts", "Queued", "Settled", head], list.map((delivery) => [
    delivery.id, delivery.token.slice(0, 8) + "…", state(delivery.state),
    (delivery.reason ?? "") + (delivery.hint ? " (" + delivery.hint + ")" : ""), delivery.attempts,
    clock(delivery.queued_at), clock(delivery.settled_at), cell(delivery),
  ]));
}

function clock(text) {
  if (!text) return "";
  const time = new Date(text);
  return time.toDateString() === new Date().toDateString() ? time.toLocaleTimeString() : time.toLocaleString();
}

// Returns the time in the given number of seconds, in the API's format.
function later(seconds) {
  return new Date(Date.now() + seconds * 1000).toISOString();
}

// Returns the end of a ban or token.
function endOf(time, otherwise) {
  if (!time) return otherwise;
  return new Date(time) < Date.now() ? element("td", "bad", "ended") : clock(time);
}

function notificationOf(notification) {
  const box = element("div");
  const counts = Object.entries(notification.counts).filter(([, count]) => count).map(([name, count]) => count + " " + name);
  box.append(element("h3", "", "Notification " + notification.id), list([
    ["State", notification.state, notification.state === "done" ? "good" : ""], ["Devices", notification.devices],
    ["By state", counts.join(", ")], ["Created", clock(notification.created_at)], ["Not before", clock(notification.not_before)],
    ["Payload", JSON.stringify(notification.payload)],
  ]), deliveries(notification.deliveries, "", () => ""));
  return box;
}

function messageOf(message) {
  const { counts } = message;
  const queued = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const lost = counts.failed + counts.expired + counts.cancelled;
  const box = element("div");
  const way = element("ol", "way");
  for (const [count, text] of [
    [queued + (message.queueing ? "…" : ""), "queued"], [counts.pending, "without a response"],
    [counts.sent + " of " + queued, "accepted" + (lost ? ", " + lost + " lost" : "")],
    [message.fetched + " of " + message.readers, "members have fetched it"],
  ]) {
    const step = element("li");
    step.append(element("b", "", count), text);
    way.append(step);
  }
  box.append(element("h3", "", "Message " + message.id), list([
    ["Room", message.room], ["By", message.name], ["Sent", clock(message.sent_at)], ["Text", message.bytes + " bytes"],
  ]), way);
  if (message.fetched_by?.length) {
    const rest = message.fetched - message.fetched_by.length;
    box.append(element("p", "hint", "Fetched by " + message.fetched_by.join(", ") + (rest > 0 ? " and " + rest + " more" : "")));
  }
  if (canModerate) {
    const [verb, , key, action] = deletion(message, () => lead(() => follow(() => showRoom(message.room))));
    box.append(button(verb, action, key));
  }
  box.append(deliveries(message.deliveries, "Fetched", (delivery) => element("td", delivery.fetched ? "good" : "", delivery.fetched ? "yes" : "not yet")));
  return box;
}

function deviceOf(device) {
  const box = element("div");
  box.append(element("h3", "", "Device " + device.token.slice(0, 8) + "…"), list([
    ["State", device.active ? "active" : "inactive: " + device.deactivated_reason, device.active ? "good" : "bad"],
    ["Token", device.token], ["App", device.app], ["User", device.user_reference], ["Tags", device.tags.join(", ")],
    ["App version", device.app_version], ["System", device.os_version], ["Model", device.device_model],
    ["Client info", device.client_info], ["Server info", device.server_info],
    ["Registered", clock(device.registered_at)], ["First seen", clock(device.created_at)], ["Last seen", clock(device.seen_at)],
    ["Inactive since", clock(device.deactivated_at)],
  ]));
  if (device.deliveries?.length) box.append(deliveries(device.deliveries, "From", origin));
  return box;
}

async function showDevices(kind, term) {
  const box = element("div");
  if (kind === "token") {
    box.append(deviceOf(await call("GET", "/v1/devices/" + encodeURIComponent(term.replace(/[<>\s]/g, "")) + "?limit=20")));
  } else {
    const page = await call("GET", "/v1/devices?" + new URLSearchParams({ [kind]: term, limit: 20 }));
    box.append(...(page.devices.length ? page.devices.map(deviceOf) : [element("p", "hint", "There is none.")]));
    if (page.next) box.append(element("p", "hint", "There are more; pushchat devices list shows all."));
  }
  return [box, true];
}

byId("kind").addEventListener("change", () => {
  byId("term").required = byId("kind").value !== "room";
});

byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const [kind, term] = [byId("kind").value, byId("term").value.trim()];
  attempt(async () => {
    const shows = { notification: () => showNotification(Number(term) || 0), message: () => showMessage(Number(term) || 0), room: () => showRooms(term) };
    byId("result").focus({ preventScroll: true });
    await follow(shows[kind] ?? (() => showDevices(kind, term)));
  });
});

// MARK: Failures and warnings

async function errors() {
  const [failures, warnings] = await Promise.all([call("GET", "/v1/failures?limit=20"), call("GET", "/v1/warnings")]);
  const none = () => element("p", "hint", "None.");
  update(byId("failures"), failures.deliveries.length
    ? table(["Settled", "App", "Token", "State", "Reason", "From"], failures.deliveries.map((delivery) => [
      clock(delivery.settled_at), delivery.app, delivery.token.slice(0, 8) + "…", state(delivery.state),
      (delivery.reason ?? "") + (delivery.hint ? " (" + delivery.hint + ")" : ""), origin(delivery),
    ])) : none());
  update(byId("warnings"), warnings.warnings.length
    ? table(["Time", "Level", "Message", ""], warnings.warnings.reverse().slice(0, 20).map(({ time, level, label, message, ...others }) => [
      clock(time), element("td", level === "warning" ? "warn" : "bad", level), (label === "relay" ? "" : label + ": ") + message,
      Object.entries(others).map(([name, value]) => name + "=" + (typeof value === "string" ? value : JSON.stringify(value))).join(" "),
    ])) : none());
}

// MARK: Start

fetch("/test/", { method: "HEAD" }).then((answer) => { byId("tests").hidden = !answer.ok; }).catch(() => {});

(async () => {
  for (let round = 0; ; round += 1) {
    if (!document.hidden && byId("door").hidden) {
      await look().then(() => (round % 3 === 0 ? errors() : undefined)).catch(() => {});
    }
    await new Promise((done) => setTimeout(done, pause));
  }
})();
