"use strict";
// The operator's page. All data comes from the admin API, with the admin token if one is configured.

// The time between two samples, in milliseconds, and the maximum number of samples to plot.
const pause = 2000;
const most = 300;

translatePage();

// Returns the text for a name of the API, or the name if it has no text.
function named(key, name) {
  return key in textsByLanguage.en ? words(key) : name;
}

// Returns a value of a table or card as text. Other values, such as elements, stay as they are.
function formatted(value) {
  if (typeof value === "number") return new Intl.NumberFormat(chosenLocale()).format(value);
  return typeof value === "string" ? plain(value) : value;
}

// Returns the sender of a message. A program has a mark outside of its name, because any member could have a name with a mark.
function sender({ name, program }) {
  const box = element("span");
  box.append(element("bdi", "", plain(name)));
  if (program) box.append(" ", element("span", "mark", words("room.program")));
  return box;
}

let token = tabMemory.get("admin");

function call(method, path, body, headers = {}) {
  return callJSON(method, path, body, token ? { ...headers, Authorization: "Bearer " + token } : headers);
}

// MARK: Login

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  showFormError(null, byId("login"));
  look().then(() => tabMemory.set("admin", token)).catch(() => {});
});

byId("forget").addEventListener("click", () => {
  tabMemory.set("admin", null);
  location.reload();
});

function show(isIn) {
  byId("door").hidden = isIn;
  byId("inside").hidden = !isIn;
  byId("closed").hidden = true;
  byId("forget").hidden = !isIn || !token;
}

// Shows how to reach the relay if a proxy in front of it closes the admin API.
function showTunnel() {
  byId("tunnel").textContent = "ssh -N -L 44447:127.0.0.1:44447 " + location.hostname;
  byId("tunnel-end").href = "http://localhost:44447/admin";
  byId("tunnel-end").textContent = byId("tunnel-end").href;
  byId("closed").hidden = false;
}

// MARK: Metrics

const samples = [];
let latestStats = null;
let activeDevices = 0;
let lastWarnings = [];
let lastFailures = [];
// Whether the error on the screen says that the metrics cannot be read. Only that error disappears without user action.
let isLost = false;

function seconds(count) {
  if (count === null || count === undefined) return words("none");
  if (count < 60) return words("time.seconds", { count: Math.round(count) });
  if (count < 5400) return words("time.minutes", { count: Math.round(count / 60) });
  if (count < 172800) return words("time.hours", { count: Math.round(count / 3600) });
  return words("time.days", { count: Math.round(count / 86400) });
}

async function look() {
  let [stats, ready] = [];
  try {
    [stats, ready] = await Promise.all([call("GET", "/v1/stats"), readiness()]);
  } catch (error) {
    if (error instanceof Refused && error.status === 401) {
      show(false);
      if (token) showFormError(error, byId("login"));
    } else {
      if (error instanceof Refused && error.status === 404 && byId("inside").hidden) {
        showTunnel();
        throw error;
      }
      isLost = true;
      showError(error instanceof Refused ? error : new Error(words(byId("door").hidden ? "unreachable" : "noAnswer")));
    }
    throw error;
  }
  const isNew = isLost || byId("inside").hidden;
  if (isNew) {
    showError();
    // Draw the day before the view appears, so that nothing moves. The first verdict needs the webhooks.
    await Promise.all([showDay(), readWebhooks()]);
  }
  isLost = false;
  show(true);
  draw(stats, ready);
  if (isNew) showLists();
}

// Returns the checks of the relay. They come with status 503 if one fails.
async function readiness() {
  try {
    const response = await fetch(at("/readyz"), { headers: token ? { Authorization: "Bearer " + token } : {}, signal: AbortSignal.timeout(8000) });
    return await response.json();
  } catch {
    // A proxy may close this address. The other checks remain.
    return null;
  }
}

// Fetches the lists once rather than periodically, because each call adds a line to the log.
function showLists() {
  return Promise.all([showTokens(), showWebhooks(), showModeration(), errors()]).then(showTab).catch(showError);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden || byId("inside").hidden) return;
  showDay();
  showLists();
});

// Shows a section whose list cannot be read. Hides it if the relay is older and lacks it. Shows the error otherwise, for example
// if the token has no access.
function showSection(section, list, error) {
  const isMissing = error instanceof Refused && [404, 405].includes(error.status);
  byId(section).hidden = isMissing;
  const tab = document.querySelector(`#tabs a[href="#${byId(section).dataset.tab}"]`);
  if (section !== "usage") tab.hidden = isMissing;
  if (!isMissing) update(byId(list), element("p", "hint", error.message));
}

function sum(stats, name) {
  return stats.apps.reduce((total, app) => total + app[name], 0);
}

function recent(stats, state) {
  return stats.apps.flatMap((app) => app.outcomes).filter((outcome) => outcome.state === state)
    .reduce((total, outcome) => total + outcome.last_minute, 0);
}

function draw(stats, ready) {
  byId("about").textContent = words("page.version", { version: stats.version, time: seconds(stats.uptime_seconds) });
  offerApps(stats.apps.map((app) => app.app));
  const depth = sum(stats, "due") + sum(stats, "delayed") + sum(stats, "written");
  const ages = stats.apps.map((app) => app.oldest_age_seconds).filter((age) => age !== null);
  const [age, failed] = [ages.length ? Math.max(...ages) : 0, recent(stats, "failed")];
  activeDevices = stats.devices.active;
  const cards = [
    ["card.queue", depth, "queue"], ["card.oldest", ages.length ? seconds(age) : "–", "queue", age > oldPush],
    ["card.sent", recent(stats, "sent"), "queue"], ["card.failed", failed, "log", failed > 0],
    ["column.devices", stats.devices.total > stats.devices.active
      ? words("ofAll", { count: stats.devices.active, all: stats.devices.total }) : stats.devices.active, "devices"],
    ["column.members", stats.members, "rooms"], ["tabs.rooms", stats.rooms, "rooms"], ["card.messages", stats.messages, "rooms"],
    ["tabs.notifications", stats.notifications, "notifications"],
  ];
  update(byId("figures"), ...cards.map(([name, value, tab, isBad]) => {
    const card = element("a", isBad ? "card is-bad" : "card");
    card.href = "#" + tab;
    card.dataset.key = "card-" + name;
    card.append(element("span", "", words(name)), " ", element("b", "", formatted(value)));
    return card;
  }));
  samples.push({ time: Date.now(), depth, age });
  if (samples.length > most) samples.shift();
  plot();
  update(byId("apps"), ...stats.apps.map(appOf));
  showVerdict(stats, ready, lastWarnings);
  latestStats = stats;
}

// Returns a line through the samples, with the newest on the right and the top of the axis just below the edge.
function line(name, top) {
  return samples.map((sample, index) => xOf(index).toFixed(1) + " " + (135 - (sample[name] / top) * 125).toFixed(1)).join("L");
}

function xOf(index) {
  return 600 - (samples.length - 1 - index) * (600 / (most - 1));
}

function plot() {
  const highest = (name) => Math.max(...samples.map((sample) => sample[name]));
  const [top, topAge] = [roundTop(highest("depth")), roundTime(highest("age"))];
  const points = line("depth", top);
  byId("line").setAttribute("d", "M" + points);
  byId("area").setAttribute("d", "M" + points.split(" ")[0] + " 135L" + points + "L600 135Z");
  byId("age").setAttribute("d", "M" + line("age", topAge));
  byId("legend").textContent = words("chart.liveSum", {
    count: samples.at(-1).depth, most: highest("depth"), time: seconds(highest("age")),
  });
  drawAxes("live", {
    left: [top, top / 2, 0], right: [seconds(topAge), seconds(topAge / 2), 0], times: [words("chart.ago", { count: 10 }), words("chart.ago", { count: 5 }), words("chart.now")],
    points: samples.map((sample, index) => ({ x: xOf(index), text: words("chart.at", {
      time: new Date(sample.time).toLocaleTimeString(chosenLocale()),
      text: words("chart.queueAt", { count: sample.depth, time: seconds(sample.age) }),
    }) })),
  });
}

// Returns a list of facts. Each row has the key of its name, a value and, optionally, a class.
function list(rows) {
  const list = element("dl", "facts");
  list.append(...facts(rows.map(([key, value, className]) => [words(key), formatted(value), className])));
  return list;
}

// Returns a table. Each column's name is a key, a key with values, or an element.
function table(head, rows) {
  const names = head.map((name) => (typeof name === "string" ? name && words(name) : Array.isArray(name) ? words(...name) : name));
  const box = element("div", "table");
  const made = element("table");
  const line = element("tr");
  names.forEach((name, column) => {
    if (name instanceof Node) return line.append(name);
    const cell = element(name ? "th" : "td", typeof rows[0]?.[column] === "number" ? "number" : "", name);
    if (name) cell.scope = "col";
    line.append(cell);
  });
  const top = element("thead");
  top.append(line);
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr");
    row.forEach((value, column) => {
      const cell = value instanceof Node ? value : element("td", typeof value === "number" ? "number" : "", formatted(value) ?? "");
      // On a phone a row is a card, with the names before the values.
      const name = names[column] instanceof Node ? "" : names[column];
      if (name) cell.dataset.column = name;
      if (value === "" || value === null || value === undefined) cell.classList.add("empty");
      line.append(cell);
    });
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
  const made = button(plain(text), () => lead(action));
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
    made.append(element("span", "only-spoken", " " + plain(object)));
    return made;
  }));
  cell.append(box);
  return cell;
}

const looks = { sent: "good", failed: "bad", expired: "bad", cancelled: "warn" };

function state(text) {
  return element("td", looks[text] ?? "", named("state." + text, text));
}

// Returns the number of a notification's pushes in each state.
function countsOf(notification) {
  return Object.entries(notification.counts).filter(([, count]) => count)
    .map(([state, count]) => words("stateCount", { count, state: named("state." + state, state) })).join(", ");
}

// Returns the app's gateway and its address. The app for browsers has many push services, so it has no address.
function gatewayOf(app) {
  if (!app.gateway) return words("app.noGateway");
  if (app.address) return words("app.gateway", { gateway: app.gateway, address: app.address });
  return app.waits_for === "credentials" ? words("app.noCredentials", { gateway: app.gateway }) : app.gateway;
}

function appOf(app) {
  const box = element("div", "panel");
  box.append(element("h3", "", app.app));
  const end = app.certificate_expires_at && new Date(app.certificate_expires_at);
  const days = end && Math.floor((end - Date.now()) / 86400000);
  const lacksKey = app.waits_for === "credentials";
  box.append(list([
    ["column.gateway", gatewayOf(app), app.gateway && !lacksKey ? "" : "warn"],
    ["column.topic", app.topic],
    ["column.connections", app.connections, app.address && app.connections === 0 ? "bad" : ""],
    ["column.certificate", end && (days < 0 ? words("app.expired") : words("app.daysLeft", { count: days })), days < 30 ? "bad" : ""],
    ["tabs.queue", words("app.queue", { due: app.due, delayed: app.delayed, written: app.written })],
    ["column.waits", app.oldest_queued_at && seconds(app.oldest_age_seconds)],
    ["column.paused", app.paused_at && words("app.paused", pauseOf(app)) + reasonAfter(app.pause_reason), "warn"],
  ]));
  if (app.gateway) {
    const buttons = element("p", "buttons");
    buttons.append(app.paused_at ? button(words("app.resume"), () => changePause("resume", app), "overview-resume-" + app.app)
      : button(words("app.pause"), () => changePause("pause", app), "overview-pause-" + app.app));
    box.append(buttons);
  }
  if (app.outcomes.length) {
    box.append(table(["column.outcome", "column.reason", "column.minute", "column.total"], app.outcomes
      .toSorted((one, other) => other.total - one.total)
      .map((outcome) => [state(outcome.state), outcome.reason, outcome.last_minute, outcome.total])));
  }
  return box;
}

// MARK: Sending

const whomLabels = { tokens: "column.token", users: "send.reference", tags: "column.tag", room: "send.code" };

byId("to").addEventListener("change", () => {
  const to = byId("to").value;
  byId("whom-box").hidden = to === "all";
  if (to !== "all") byId("whom-label").textContent = words(whomLabels[to]);
});

byId("send").addEventListener("submit", (event) => {
  event.preventDefault();
  const to = byId("to").value;
  const whom = byId("whom").value.trim();
  const body = { to: { [to]: to === "all" ? true : to === "room" ? whom : [whom] } };
  if (byId("alert").value) body.alert = byId("alert").value;
  if (byId("badge").value) body.badge = Number(byId("badge").value);
  if (byId("sound").value) body.sound = byId("sound").value;
  const key = crypto.randomUUID?.() ?? String(Math.random());
  let receipt;
  const send = async () => { receipt = await call("POST", "/v1/notifications", body, { "Idempotency-Key": key }); };
  const watch = () => Promise.all([sent.show(), follow(() => showNotification(receipt.id))]);
  if (to !== "all") {
    attempt(async () => {
      await send();
      await watch();
    }, byId("send"));
    return;
  }
  const text = (body.alert ?? words("send.noText")) + "\n" + words("send.reach", { count: activeDevices });
  ask({ title: words("send.sure"), text, verb: words("send.go") }, send, () => lead(watch));
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
    if (!isOver && look === 300) made.append(element("p", "hint", words("search.stale")));
    byId("found").hidden = false;
    update(byId("result"), made);
    if (isOver || look === 300) return;
    await new Promise((done) => setTimeout(done, 500));
  }
}

function closeResult() {
  following += 1;
  byId("found").hidden = true;
  byId("result").replaceChildren();
}

byId("close-result").addEventListener("click", () => {
  closeResult();
  byId("term").focus();
});

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
  byId("found").hidden = false;
  byId("result").focus();
  return attempt(action);
}

// Shows an error beside the form that caused it, or above the page if there is none.
async function attempt(action, form) {
  showError();
  if (form) showFormError(null, form);
  try {
    await action();
  } catch (error) {
    if (form) showFormError(error, form);
    else showError(error);
  }
}

// Shows an error in a form and focuses its field, if the error names one of them. `null` removes the error.
function showFormError(error, form) {
  const place = byId(form.id + "-problem");
  place.textContent = error?.message ?? "";
  place.hidden = !error;
  for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  if (!error) return;
  const name = error.field?.split(/[.[]/)[0];
  const field = (name && form.querySelector(`[data-field~="${CSS.escape(name)}"]`)) || form.querySelector("input, select");
  if (name && field.matches("[data-field]")) field.setAttribute("aria-invalid", "true");
  if (!field.closest("[hidden]")) field.focus();
}

// Returns the origin of a push: a notification, a message, or neither if another program enqueued it.
function origin(delivery) {
  if (delivery.notification) return link(words("notificationName", { id: String(delivery.notification) }), () => follow(() => showNotification(delivery.notification)));
  if (delivery.message) return link(messageName(delivery.message), () => follow(() => showMessage(delivery.message)));
  return "";
}

function deliveries(list, head, cell) {
  return table([
    "column.push", "column.token", "column.state", "column.reason", "column.attempts", "column.queued", "column.settled", head,
  ], list.map((delivery) => [
    String(delivery.id), delivery.token.slice(0, 8) + "…", state(delivery.state),
    (delivery.reason ?? "") + (delivery.hint ? " (" + delivery.hint + ")" : ""), delivery.attempts,
    clock(delivery.queued_at), clock(delivery.settled_at), cell(delivery),
  ]));
}

// The one format of times on this page.
const timeFormat = new Intl.DateTimeFormat(chosenLocale(), { dateStyle: "medium", timeStyle: "medium" });

function clock(text) {
  return text ? timeFormat.format(new Date(text)) : "";
}

// Returns the time in the given number of seconds, in the API's format.
function later(seconds) {
  return new Date(Date.now() + seconds * 1000).toISOString();
}

// Returns the end of a ban or token.
function endOf(time, otherwise) {
  if (!time) return otherwise;
  return new Date(time) < Date.now() ? element("td", "bad", words("ended")) : clock(time);
}

function notificationOf(notification) {
  const box = element("div");
  box.append(element("h3", "", words("notification.title", { id: String(notification.id) })), list([
    ["column.state", named("state." + notification.state, notification.state), notification.state === "done" ? "good" : ""],
    ["column.devices", notification.devices], ["column.byState", countsOf(notification)],
    ["column.created", clock(notification.created_at)], ["column.notBefore", clock(notification.not_before)],
    ["column.payload", JSON.stringify(notification.payload)],
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
    [formatted(queued) + (message.queueing ? "…" : ""), words("way.queued")], [formatted(counts.pending), words("way.pending")],
    [words("ofAll", { count: counts.sent, all: queued }), lost ? words("way.lost", { count: lost }) : words("way.accepted")],
    [words("ofAll", { count: message.fetched, all: message.readers }), words("way.fetched")],
  ]) {
    const step = element("li");
    step.append(element("b", "", count), text);
    way.append(step);
  }
  box.append(element("h3", "", words("message.title", { id: String(message.id) })), list([
    ["column.room", message.room], ["column.by", sender(message)], ["column.sent", clock(message.sent_at)],
    ["column.text", words("message.bytes", { count: message.bytes })],
  ]), way);
  if (message.fetched_by?.length) {
    const rest = message.fetched - message.fetched_by.length;
    const names = message.fetched_by.map(isolated).join(", ");
    box.append(element("p", "hint", words("message.fetched", { names: rest > 0 ? words("andMore", { names, count: rest }) : names })));
  }
  if (canModerate) {
    const [verb, , key, action] = deletion(message, () => lead(() => follow(() => showRoom(message.room))));
    box.append(button(verb, action, key));
  }
  box.append(deliveries(message.deliveries, "column.fetched", (delivery) => element("td", delivery.fetched ? "good" : "", words(delivery.fetched ? "yes" : "notYet"))));
  return box;
}

function deviceOf(device) {
  const box = element("div");
  box.append(element("h3", "", words("device.title", { token: device.token.slice(0, 8) })), list([
    ["column.state", device.active ? words("device.active") : words("device.inactive") + reasonAfter(device.deactivated_reason),
      device.active ? "good" : "bad"],
    ["column.token", device.token], ["column.app", device.app], ["column.user", device.user_reference],
    ["column.tags", device.tags.join(", ")], ["column.version", device.app_version], ["column.system", device.os_version],
    ["column.model", device.device_model], ["column.clientInfo", device.client_info], ["column.serverInfo", device.server_info],
    ["column.registered", clock(device.registered_at)], ["column.firstSeen", clock(device.created_at)],
    ["column.seen", clock(device.seen_at)], ["column.inactiveSince", clock(device.deactivated_at)],
  ]));
  if (device.deliveries?.length) box.append(deliveries(device.deliveries, "column.from", origin));
  return box;
}

async function showDevices(kind, term) {
  const box = element("div");
  if (kind === "token") {
    box.append(deviceOf(await call("GET", "/v1/devices/" + encodeURIComponent(term.replace(/[<>\s]/g, "")) + "?limit=20")));
  } else {
    const page = await call("GET", "/v1/devices?" + new URLSearchParams({ [kind]: term, limit: 20 }));
    box.append(...(page.devices.length ? page.devices.map(deviceOf) : [element("p", "hint", words("noMatch"))]));
    if (page.next) box.append(element("p", "hint", words("tokens.more", { command: "pushchat devices list" })));
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
    await follow(shows[kind] ?? (() => showDevices(kind, term)));
    byId("result").focus({ preventScroll: true });
  }, byId("search"));
});

// MARK: Failures and warnings

async function errors() {
  const [failures, warnings] = await Promise.all([call("GET", "/v1/failures?limit=20"), call("GET", "/v1/warnings"), readWebhooks()]);
  lastWarnings = warnings.warnings;
  lastFailures = failures.deliveries;
  showReasons(failures.deliveries);
  const none = () => element("p", "hint", words("empty"));
  update(byId("failures"), failures.deliveries.length
    ? table([
      "column.settled", "column.app", "column.token", "column.state", "column.reason", "column.from",
    ], failures.deliveries.map((delivery) => [
      clock(delivery.settled_at), delivery.app, delivery.token.slice(0, 8) + "…", state(delivery.state),
      (delivery.reason ?? "") + (delivery.hint ? " (" + delivery.hint + ")" : ""), origin(delivery),
    ])) : none());
  update(byId("warnings"), warnings.warnings.length
    ? table(["column.time", "column.level", "column.message", ""], warnings.warnings.toReversed().slice(0, 50).map(({ time, level, label, message, ...others }) => [
      clock(time), element("td", level === "warning" ? "warn" : "bad", level), (label === "relay" ? "" : label + ": ") + message,
      Object.entries(others).map(([name, value]) => name + "=" + (typeof value === "string" ? value : JSON.stringify(value))).join(" "),
    ])) : none());
}

// Groups the latest failures by reason.
function showReasons(failures) {
  const groups = new Map();
  for (const failure of failures) {
    const key = [failure.app, failure.state, failure.reason].join("\n");
    groups.set(key, { ...(groups.get(key) ?? failure), count: (groups.get(key)?.count ?? 0) + 1 });
  }
  update(byId("reasons"), groups.size ? table(["column.reason", "column.app", "pushes.title", "column.latest", ""], [...groups.values()].map((group) => [
    reasonOf(group), group.app, group.count, clock(group.settled_at),
    actions([[words("show"), group.reason ?? group.state, "show-" + [...groups.keys()].length + (group.reason ?? group.state).replace(/\W/g, ""), () => {
      byId("pushes-app").value = group.app;
      byId("pushes-state").value = group.state;
      byId("pushes-reason").value = group.state === "failed" ? group.reason ?? "" : "";
      byId("pushes-age").value = "";
      location.hash = "queue";
    }]]),
  ])) : element("p", "hint", words("overview.noFailures")));
  byId("known-reasons").replaceChildren(...[...new Set(failures.map((failure) => failure.reason).filter(Boolean))].map((reason) => {
    const option = element("option");
    option.value = reason;
    return option;
  }));
}

// MARK: Start

fetch(at("/test/"), { method: "HEAD" }).then((answer) => { byId("tests").hidden = !answer.ok; }).catch(() => {});

(async () => {
  for (let round = 0; ; round += 1) {
    if (!document.hidden && byId("door").hidden && byId("closed").hidden) {
      await look().then(() => (round % 3 === 0 ? Promise.all([errors(), refreshTab()]) : undefined)).catch(() => {});
    }
    await new Promise((done) => setTimeout(done, pause));
  }
})();
