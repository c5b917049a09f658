"use strict";
// Shows the state that the control API returns: notifications (newest first), devices, browsers and faults.

const page = 100;
// The time between polls in milliseconds. A poll costs one small response.
const interval = 700;
const limits = { http2: 4096, binary: 2048, webpush: 3993, broadcast: 5120, fcm: 65536 };
const protocols = { http2: "HTTP/2", binary: "binary", webpush: "Web Push", broadcast: "broadcast", channels: "channel management", fcm: "FCM", fcm_token: "FCM access tokens" };

// Runs a button's action, and shows its error.
function onClick(id, action) {
  byId(id).addEventListener("click", async () => {
    byId(id).disabled = true;
    try {
      await action();
      showError();
    } catch (error) {
      showError(error);
    } finally {
      byId(id).disabled = false;
    }
  });
}

// MARK: The inbox

let since = 0;
let chosen = null;
let generation = 0;
const answers = new Set(["accepted"]);
// The maximum number of notifications in the list. The newest are kept.
const shownLimit = 500;

function query() {
  const parts = new URLSearchParams();
  const token = byId("filter-token").value.replace(/[<>\s]/g, "");
  // An incomplete token does not filter the list.
  if (/^([0-9a-fA-F]{2})+$/.test(token)) parts.set("token", token);
  for (const name of ["protocol", "answer"]) {
    const value = byId("filter-" + name).value;
    if (value) parts.set(name, value);
  }
  return parts;
}

async function poll() {
  const current = generation;
  const parts = query();
  parts.set("since", since);
  parts.set("limit", page);
  const answer = await callJSON("GET", "/notifications?" + parts);
  if (current !== generation) return false;
  // The inbox was emptied, or the sandbox was restarted.
  if (answer.next < since) {
    restart();
    return true;
  }
  const isFirst = since === 0;
  since = Math.max(since, answer.next);
  answer.notifications.forEach((notification) => add(notification, !isFirst));
  return answer.notifications.length === page;
}

function restart() {
  generation += 1;
  since = 0;
  byId("list").replaceChildren();
  byId("empty").hidden = false;
}

function parsed(notification) {
  try {
    return JSON.parse(notification.payload);
  } catch {
    return null;
  }
}

function timeText(text) {
  return new Date(text).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

function add(notification, isFresh) {
  if (!answers.has(notification.answer)) {
    answers.add(notification.answer);
    byId("filter-answer").append(new Option(notification.answer, notification.answer));
  }
  const item = element("li", isFresh ? "fresh" : "");
  item.dataset.id = notification.id;
  const banner = element("button", "banner");
  banner.type = "button";
  const top = element("span", "top");
  const receivers = { webpush: "a browser", fcm: "Android" };
  top.append(element("span", "", receivers[notification.protocol] ?? notification.topic ?? "no topic"), element("time", "", timeText(notification.received_at)));
  banner.append(top);
  const content = parsed(notification);
  // A declarative Web Push message and FCM have the same content under other names.
  const android = notification.protocol === "fcm" ? content?.message : undefined;
  const shown = android ? { ...android.notification, ...android.android?.notification } : content?.notification;
  const aps = content?.aps ?? (shown ? { alert: shown, badge: shown.app_badge } : {});
  const alert = aps.alert;
  const texts = typeof alert === "object" && alert !== null ? alert : { body: alert };
  const heading = texts.title ?? texts["title-loc-key"];
  if (heading !== undefined) banner.append(element("span", "heading", String(heading)));
  if (texts.subtitle !== undefined) banner.append(element("span", "", String(texts.subtitle)));
  const body = texts.body ?? texts["loc-key"] ?? (android?.data && Object.entries(android.data).map((pair) => pair.join(": ")).join("\n"));
  banner.append(body !== undefined ? element("span", "body", String(body)) : element("span", "body hint", notification.delivery ? "(only the browser can read it)" : "(nothing to show)"));
  const marks = [];
  if (aps.badge !== undefined) marks.push("badge " + aps.badge);
  if (aps.sound !== undefined) marks.push("sound " + (aps.sound?.name ?? aps.sound));
  if (aps["content-available"]) marks.push("wakes the app");
  if (aps.event !== undefined) marks.push("Live Activity: " + aps.event);
  marks.push("to " + (notification.channel ? "channel " + notification.channel : notification.token.slice(0, 8) + "…"));
  const last = element("span", "marks", marks.join(" · ") + " · ");
  last.append(element("span", notification.answer === "accepted" ? "good" : "bad", notification.answer));
  banner.append(last);
  banner.addEventListener("click", () => latest(notification).then((latest) => choose(latest, banner)).catch(showError));
  item.append(banner);
  byId("list").prepend(item);
  byId("empty").hidden = true;
  if (byId("list").childElementCount > shownLimit) byId("list").lastElementChild.remove();
}

// Fetches a message for a real browser again, because its delivery state may have changed.
async function latest(notification) {
  if (!notification.delivery) return notification;
  const page = await callJSON("GET", `/notifications?limit=1&since=${notification.id - 1}`);
  return page.notifications.find((each) => each.id === notification.id) ?? notification;
}

function choose(notification, banner) {
  chosen = notification;
  document.querySelectorAll(".banner[aria-current]").forEach((other) => other.removeAttribute("aria-current"));
  banner.setAttribute("aria-current", "true");
  byId("nothing").hidden = true;
  byId("chosen").hidden = false;
  byId("removed").textContent = "";
  byId("facts").replaceChildren(...facts([
    ["Answer", notification.answer, notification.answer === "accepted" ? "good" : "bad"],
    ["Reason", notification.message],
    ["Warning", notification.warning],
    ["Delivery", notification.delivery && [notification.delivery, notification.delivery_code].join(" ").trim()],
    ["Arrived", notification.received_at],
    ["Protocol", protocols[notification.protocol] + (notification.command === undefined ? "" : ", command " + notification.command)],
    ["Connection", notification.connection],
    ["Stream", notification.stream],
    ["Authentication", notification.authentication],
    ["Token", notification.token],
    ["Channel", notification.channel],
    ["Live Activity", notification.activity],
    ["Topic", notification.topic],
    ["Recipient", notification.target],
    ["Project", notification.project],
    ["Name", notification.name],
    ["apns-id", notification.apns_id],
    ["Identifier", notification.identifier],
  ]));
  const headers = Object.entries(notification.headers);
  byId("headers").replaceChildren(...facts(headers.length ? headers : [["", "none"]]));
  const bytes = notification.payload !== undefined && notification.payload !== null
    ? new TextEncoder().encode(notification.payload)
    : Uint8Array.from(atob(notification.payload_base64 ?? ""), (character) => character.charCodeAt(0));
  const limit = notification.push_type === "voip" && notification.protocol === "http2" ? 5120 : limits[notification.protocol];
  const document_ = parsed(notification);
  byId("removal").hidden = ["webpush", "broadcast", "fcm"].includes(notification.protocol);
  byId("size").textContent = bytes.length + " bytes of " + limit + (document_ !== null ? "" : notification.delivery ? "; encrypted" : "; not JSON");
  byId("size").className = bytes.length > limit || document_ === null && !notification.delivery ? "bad" : "hint";
  byId("pretty").textContent = document_ === null ? notification.payload ?? "(not UTF-8)" : JSON.stringify(document_, null, 2);
  byId("bytes").textContent = dump(bytes);
  // On a narrow page, the details are below the list.
  if (matchMedia("(max-width: 44rem)").matches) {
    byId("detail").scrollIntoView();
    byId("detail").focus({ preventScroll: true });
  }
}

function dump(bytes) {
  const lines = [];
  for (let start = 0; start < bytes.length; start += 16) {
    const part = Array.from(bytes.slice(start, start + 16));
    const digits = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const text = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(start.toString(16).padStart(4, "0") + "  " + digits + "  " + text);
  }
  return lines.join("\n") || "(empty)";
}

byId("filter").addEventListener("input", restart);
byId("filter").addEventListener("submit", (event) => event.preventDefault());
onClick("clear", async () => {
  await callJSON("DELETE", "/notifications");
  restart();
});
onClick("remove", async () => {
  await callJSON("DELETE", "/devices/" + chosen.token);
  byId("removed").textContent = "Removed. Pushes to this device are rejected from now on, and the feedback service lists it.";
  await devices();
});

// MARK: Devices

// Shows the newest 50 devices or browsers, each with a button that removes it.
async function showList(name, action, idOf) {
  const list = [];
  let next = 0;
  do {
    const answer = await callJSON("GET", `/${name}?limit=1000&since=${next}`);
    list.push(...answer[name]);
    next = answer[name].length === 1000 ? answer.next : 0;
  } while (next);
  byId(name).replaceChildren(...list.slice(-50).reverse().map((each) => {
    const line = element("li");
    const token = element("code", "", each.token);
    token.title = each.token;
    line.append(token);
    if (each.channel_id) line.append(element("span", "hint", "real browser"));
    if (each.removed_at) {
      line.append(element("span", "bad", "removed"));
    } else {
      const remove = element("button", "quiet", action);
      remove.type = "button";
      remove.setAttribute("aria-label", `${action}: ${each.token.slice(0, 8)}`);
      const ended = () => callJSON("DELETE", `/${name}/${idOf(each)}`).then(() => showList(name, action, idOf));
      remove.addEventListener("click", () => ended().catch(showError));
      line.append(remove);
    }
    return line;
  }));
}

const devices = () => showList("devices", "Remove the app", (device) => device.token);
const browsers = () => showList("browsers", "End", (browser) => browser.id);
const installations = () => showList("installations", "Remove the app", (installation) => installation.id);

onClick("make", async () => {
  await callJSON("POST", "/devices", {});
  await devices();
});

onClick("make-browser", async () => {
  const browser = await callJSON("POST", "/browsers", {});
  byId("subscription-text").textContent = JSON.stringify(browser.subscription);
  byId("subscription").hidden = false;
  byId("copied").textContent = "";
  await browsers();
});
onClick("copy", async () => {
  await navigator.clipboard.writeText(byId("subscription-text").textContent);
  byId("copied").textContent = "Copied.";
});

// MARK: Live Activities

// Shows the newest 20 activities with their contents, and the channels.
async function activities() {
  const { activities } = await callJSON("GET", "/stats");
  const total = activities.active + activities.ended;
  const list = total ? await newest("activities", 20) : [];
  byId("activities").replaceChildren(...list.reverse().map(activityItem));
  const channels = await newest("channels", 50);
  byId("channel-list").hidden = channels.length === 0;
  byId("channels").replaceChildren(...channels.reverse().map((channel) => {
    const line = element("li");
    line.append(element("code", "", channel.id), element("span", "hint", `${channel.app} · policy ${channel.policy} · broadcasts: ${channel.broadcasts}`));
    return line;
  }));
}

// Returns the newest `count` elements of a list.
async function newest(name, count) {
  let list = [];
  let next = 0;
  for (;;) {
    const answer = await callJSON("GET", `/${name}?limit=1000&since=${next}`);
    list = list.concat(answer[name]).slice(-count);
    if (answer[name].length < 1000) return list;
    next = answer.next;
  }
}

function activityItem(activity) {
  const item = element("li");
  const line = element("div", "line");
  const name = element("code", "", activity.token ?? activity.channel ?? "no token");
  name.title = name.textContent;
  line.append(element("span", "", `${activity.id}. ${activity.attributes_type ?? activity.app}`), name);
  if (activity.ended_at) {
    line.append(element("span", "hint", "ended"));
  } else {
    const end = element("button", "quiet", "End");
    end.type = "button";
    end.setAttribute("aria-label", `End activity ${activity.id}`);
    end.addEventListener("click", () => callJSON("DELETE", "/activities/" + activity.id).then(activities).catch(showError));
    line.append(end);
  }
  const states = element("ol");
  for (const state of activity.states.slice(-10)) {
    const words = `${timeText(state.received_at)} ${state.event ?? "?"} ${state.content_state ?? ""}`;
    states.append(element("li", state.shown ? "" : "ignored", state.shown ? words : words + " (ignored)"));
  }
  item.append(line, states);
  return item;
}

onClick("make-installation", async () => {
  const installation = await callJSON("POST", "/installations", {});
  byId("installation-text").textContent = installation.registration_token;
  byId("installation").hidden = false;
  await installations();
});

onClick("make-activity", async () => {
  await callJSON("POST", "/activities", {});
  await activities();
});

// MARK: Faults

// The label of each action, then its additional fields by protocol (name, label, type, example), then the protocols that
// have the action. Without such a list, all protocols have it.
const actions = {
  status: ["responds with an error", {
    http2: [["reason", "Reason", "text", "Unregistered"]], binary: [["status", "Status", "number", "8"]],
    webpush: [["status", "Status", "number", "503"], ["retry_after", "Retry after seconds", "number", "5"]],
    broadcast: [["reason", "Reason", "text", "ChannelNotRegistered"]],
    channels: [["reason", "Reason", "text", "CannotCreateChannelConfig"]],
    fcm: [["reason", "errorCode", "text", "UNREGISTERED"]], fcm_token: [["reason", "Error", "text", "invalid_grant"]],
  }],
  close: ["closes the connection"],
  reset: ["resets the connection", "http2 binary broadcast channels"],
  stop_reading: ["stops reading", { all: [["delay_ms", "Duration in milliseconds", "number", "5000"]] }, "http2 binary broadcast channels"],
  delay: ["responds late", { all: [["delay_ms", "Delay in milliseconds", "number", "2000"]] }],
  drop: ["drops the notification"],
  close_accepted: ["accepts the notification and closes", "http2 broadcast channels"],
  no_update_token: ["starts an activity without update token", "http2"],
  keep_token: ["keeps an ended activity's token", "http2"],
  lose: ["accepts the broadcast and loses it", "broadcast"],
  reorder: ["delivers the broadcast after the next one", "broadcast"],
  goaway: ["sends GOAWAY", "http2 broadcast channels"],
  stream_limit: ["limits the streams", { http2: [["limit", "Streams", "number", "10"]] }, "http2"],
  reset_stream: ["resets the stream", "http2"],
  refuse_stream: ["refuses the stream", "http2"],
  expire_token: ["says that the token has expired", "http2 fcm"],
};

function showActions() {
  const protocol = byId("fault-protocol").value;
  byId("fault-action").replaceChildren(...Object.entries(actions)
    .filter(([, parts]) => parts.length === 1 || typeof parts.at(-1) === "object" || parts.at(-1).includes(protocol))
    .map(([name, [label]]) => new Option(label, name)));
  showFields();
}

function showFields() {
  const wanted = actions[byId("fault-action").value].find((part) => typeof part === "object");
  const fields = wanted?.[byId("fault-protocol").value] ?? wanted?.all ?? [];
  byId("fault-more").replaceChildren(...fields.map(([name, label, kind, example]) => {
    const box = element("div");
    const title = element("label", "", label);
    title.htmlFor = "fault-" + name;
    const field = element("input");
    Object.assign(field, { id: "fault-" + name, name, type: kind, value: example, required: true });
    box.append(title, field);
    return box;
  }));
}

byId("fault-protocol").addEventListener("change", showActions);
byId("fault-action").addEventListener("change", showFields);
byId("fault").addEventListener("submit", async (event) => {
  event.preventDefault();
  const fault = {
    protocol: byId("fault-protocol").value,
    action: byId("fault-action").value,
    times: Number(byId("fault-times").value),
    after: Number(byId("fault-after").value),
  };
  const token = byId("fault-token").value.trim();
  if (token) fault.token = token;
  for (const field of byId("fault-more").querySelectorAll("input")) {
    fault[field.name] = field.type === "number" ? Number(field.value) : field.value;
  }
  try {
    await callJSON("POST", "/faults", fault);
    await faults();
    showError();
  } catch (error) {
    showError(error);
  }
});

async function faults() {
  const { faults } = await callJSON("GET", "/faults");
  byId("faults").replaceChildren(...faults.slice().reverse().map((fault) => {
    const words = [protocols[fault.protocol], actions[fault.action]?.[0] ?? fault.action];
    if (fault.reason ?? fault.status) words.push(fault.reason ?? fault.status);
    if (fault.token) words.push("for " + fault.token.slice(0, 8) + "…");
    const line = element("li");
    line.append(element("span", "", words.join(" ")), element("span", "hint", fault.hit + " of " + fault.times));
    return line;
  }));
  byId("clear-faults").hidden = faults.length === 0;
}

onClick("clear-faults", async () => {
  await callJSON("DELETE", "/faults");
  await faults();
});

// MARK: Updates

async function showStats() {
  const { http2, binary, webpush, broadcasts, fcm, channels, feedback, inbox, refusals } = await callJSON("GET", "/stats");
  const accepted = [http2, binary, webpush, broadcasts, fcm].reduce((sum, part) => sum + (part.answers.accepted ?? 0), 0);
  const total = [http2, binary, webpush, broadcasts, fcm].flatMap((part) => Object.values(part.answers)).reduce((sum, count) => sum + count, 0);
  byId("figures").textContent = `${total} notifications, ${accepted} accepted · open connections: ${http2.connections.open} HTTP/2, `
    + `${binary.connections.open} binary` + (inbox.dropped ? ` · ${inbox.dropped} dropped because the inbox is full` : "")
    + (refused([http2, binary, channels, feedback]) ? ` · ${refused([http2, binary, channels, feedback])} connections refused` : "");
  showRefusals(refusals);
}

function refused(listeners) {
  const counts = ["handshakes_failed", "no_alpn", "no_preface", "refused"];
  return listeners.flatMap(({ connections }) => counts.map((name) => connections[name] ?? 0)).reduce((sum, count) => sum + count);
}

function showRefusals(refusals) {
  byId("refused").hidden = refusals.length === 0;
  byId("refusals").replaceChildren(...refusals.slice().reverse().map((refusal) => {
    const line = element("li");
    const listener = protocols[refusal.listener] ?? refusal.listener;
    line.append(element("span", "hint", `${timeText(refusal.refused_at)} ${listener}`), element("span", "", refusal.message));
    return line;
  }));
}

async function run() {
  let isLost = false;
  for (let round = 0; ; round += 1) {
    try {
      if (!document.hidden) {
        while (await poll());
        await showStats();
        await faults();
        if (round % 5 === 0) {
          await devices();
          await browsers();
          await installations();
        }
        if (round % 2 === 0) await activities();
      }
      if (isLost) showError();
      isLost = false;
    } catch {
      isLost = true;
      showError(new Error("The sandbox does not respond. Waiting for it."));
    }
    await new Promise((done) => setTimeout(done, interval));
  }
}

showActions();
run();
