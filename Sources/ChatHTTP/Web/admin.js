"use strict";
// What the relay's operator wants to see. Everything comes from the provider API, with the admin token where there is one.

// Between looks, in milliseconds, and how many are plotted.
const pause = 2000;
const most = 300;

let token = sessionStorage.getItem("pushchat.admin");

function call(method, path, body, headers = {}) {
  return callJSON(method, path, body, token ? { ...headers, Authorization: "Bearer " + token } : headers);
}

function complain(error) {
  byId("problem").textContent = error?.message ?? "";
  byId("problem").hidden = !error;
}

// MARK: The door

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

// MARK: Figures

const samples = [];
// Whether what is complained of is that the relay does not answer: only that goes away by itself.
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
      if (token) complain(error);
    } else if (error instanceof Refused) {
      complain(error);
    } else {
      isLost = true;
      complain(new Error("The relay does not answer; waiting for it."));
    }
    throw error;
  }
  if (isLost || byId("view").hidden) complain();
  isLost = false;
  show(true);
  draw(stats);
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
  byId("apps").replaceChildren(...stats.apps.map(appOf));
}

function plot() {
  const top = Math.max(10, ...samples.map((sample) => sample.depth));
  const points = samples.map((sample, index) => {
    const x = 600 - (samples.length - 1 - index) * (600 / (most - 1));
    return x.toFixed(1) + " " + (135 - (sample.depth / top) * 125).toFixed(1);
  });
  const first = points[0].split(" ")[0];
  byId("line").setAttribute("d", "M" + points.join("L"));
  byId("area").setAttribute("d", "M" + first + " 140L" + points.join("L") + "L600 140Z");
  byId("legend").textContent = samples.at(-1).depth + " now, " + Math.max(...samples.map((sample) => sample.depth))
    + " at most; the oldest waited " + seconds(Math.max(...samples.map((sample) => sample.age)));
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
  // Wide ones are scrolled with the keyboard, too.
  box.tabIndex = 0;
  return box;
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
    ["Gateway", app.gateway ? app.gateway + (app.address ? " at " + app.address : ", nothing to log in with") : "not configured any more",
      app.address ? "" : "warn"],
    ["Topic", app.topic],
    ["Connections", app.connections, app.address && app.connections === 0 ? "bad" : ""],
    ["Certificate", end && days + " days left", days < 30 ? "bad" : ""],
    ["Queue", `${app.due} can go, ${app.delayed} wait for their time, ${app.written} under way`],
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
  try {
    const receipt = await call("POST", "/v1/notifications", body, { "Idempotency-Key": crypto.randomUUID?.() ?? String(Math.random()) });
    complain();
    await follow(receipt.id);
  } catch (error) {
    complain(error);
  }
});

// MARK: Looking up

let following = 0;

// Shows a notification until all of it has come to its end.
async function follow(id) {
  const mine = (following += 1);
  for (let look = 0; look < 300 && mine === following; look += 1) {
    const notification = await call("GET", "/v1/notifications/" + id + "?limit=50");
    if (mine !== following) return;
    result(notificationOf(notification));
    if (["done", "cancelled"].includes(notification.state)) return;
    await new Promise((done) => setTimeout(done, 500));
  }
}

function result(...parts) {
  byId("result").replaceChildren(...parts);
}

function deliveries(list) {
  return table(["Push", "Token", "State", "Reason", "Attempts", "Queued", "Written", "Settled"], list.map((delivery) => [
    delivery.id, delivery.token.slice(0, 8) + "…", state(delivery.state),
    (delivery.reason ?? "") + (delivery.hint ? " (" + delivery.hint + ")" : ""), delivery.attempts,
    clock(delivery.queued_at), clock(delivery.written_at), clock(delivery.settled_at),
  ]));
}

function clock(text) {
  return text ? new Date(text).toLocaleString() : "";
}

function notificationOf(notification) {
  const box = element("div");
  const counts = Object.entries(notification.counts).filter(([, count]) => count).map(([name, count]) => count + " " + name);
  box.append(element("h3", "", "Notification " + notification.id), list([
    ["State", notification.state, notification.state === "done" ? "good" : ""], ["Devices", notification.devices],
    ["Of them", counts.join(", ")], ["Made", clock(notification.created_at)], ["Not before", clock(notification.not_before)],
    ["Payload", JSON.stringify(notification.payload)],
  ]), deliveries(notification.deliveries));
  return box;
}

function deviceOf(device) {
  const box = element("div");
  box.append(element("h3", "", "Device " + device.token.slice(0, 8) + "…"), list([
    ["State", device.active ? "active" : "inactive: " + device.deactivated_reason, device.active ? "good" : "bad"],
    ["Token", device.token], ["App", device.app], ["User", device.user_reference], ["Tags", device.tags.join(", ")],
    ["Client info", device.client_info], ["Server info", device.server_info],
    ["Registered", clock(device.registered_at)], ["First seen", clock(device.created_at)],
    ["Inactive since", clock(device.deactivated_at)],
  ]));
  if (device.deliveries?.length) box.append(deliveries(device.deliveries));
  return box;
}

byId("search").addEventListener("submit", async (event) => {
  event.preventDefault();
  following += 1;
  const [kind, term] = [byId("kind").value, byId("term").value.trim()];
  try {
    if (kind === "notification") await follow(Number(term) || 0);
    else if (kind === "token") {
      result(deviceOf(await call("GET", "/v1/devices/" + encodeURIComponent(term.replace(/[<>\s]/g, "")) + "?limit=20")));
    } else {
      const page = await call("GET", "/v1/devices?" + new URLSearchParams({ [kind]: term, limit: 20 }));
      result(...(page.devices.length ? page.devices.map(deviceOf) : [element("p", "hint", "There is none.")]),
        ...(page.next ? [element("p", "hint", "There are more; pushchat devices list shows all.")] : []));
    }
    complain();
    byId("result").focus({ preventScroll: true });
  } catch (error) {
    complain(error);
  }
});

// MARK: Start

fetch("/test/", { method: "HEAD" }).then((answer) => { byId("tests").hidden = !answer.ok; }).catch(() => {});

(async () => {
  for (;;) {
    if (!document.hidden && byId("door").hidden) await look().catch(() => {});
    await new Promise((done) => setTimeout(done, pause));
  }
})();
