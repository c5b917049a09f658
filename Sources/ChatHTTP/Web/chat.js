"use strict";
// The tutorial's three screens: login, chat, compose. The messages come from the relay by `messages` and `/events`, and
// each is shown once, by its id.

const limit = Number(document.querySelector("meta[name=text-limit]").content);
const encoder = new TextEncoder();
// Messages that are shown when there is no connection.
const kept = 200;

// MARK: Local storage

const memory = {
  get(name, otherwise) {
    try {
      return JSON.parse(localStorage.getItem("pushchat." + name)) ?? otherwise;
    } catch {
      return otherwise;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem("pushchat." + name, JSON.stringify(value));
    } catch {
      // Storage is full or forbidden: the page works, without it.
    }
  },
};

function random(bytes) {
  return Array.from(crypto.getRandomValues(new Uint8Array(bytes)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// This member: made once, and kept. Whoever knows the udid acts as this member, so it is never shown.
const member = memory.get("member", null) ?? { udid: random(20), name: "", code: "", joined: false };
let outbox = memory.get("outbox", []);
let messages = [];
let cursor = 0;

function remember() {
  memory.set("member", member);
  memory.set("outbox", outbox);
  memory.set("room", { code: member.code, cursor, messages: messages.slice(-kept) });
}

// MARK: Calls

// A session token of the operator's own system, where the relay requires one: in the fragment of the link to this page.
// The tab keeps it until it is closed.
let session = new URLSearchParams(location.hash.slice(1)).get("token");
try {
  if (session) sessionStorage.setItem("pushchat.session", session);
  session ??= sessionStorage.getItem("pushchat.session");
} catch {
  // Storage is forbidden: the page works until it is loaded again.
}

function call(fields, headers = {}, path = "/api.php") {
  if (session) headers.Authorization = "Bearer " + session;
  return fetchJSON(path, {
    method: "POST",
    headers: { Accept: "application/json", ...headers },
    body: new URLSearchParams({ ...fields, udid: member.udid }),
  }, 20000);
}

// MARK: Login

const invited = new URLSearchParams(location.hash.slice(1)).get("code");
byId("name").value = member.name;
byId("code").value = invited ?? member.code;

function complainAtLogin(text) {
  byId("login-error").textContent = text;
  byId("login-error").hidden = !text;
}

// Characters of a code below which the page warns: a few hundred guesses an hour can find it.
const shortCode = 8;

byId("code").addEventListener("input", () => {
  const length = [...byId("code").value.trim()].length;
  byId("code-warning").hidden = length === 0 || length >= shortCode;
});

byId("login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [name, code] = [byId("name").value.trim(), byId("code").value.trim()];
  byId("enter").disabled = true;
  complainAtLogin("");
  try {
    await call({ cmd: "join", token: "0", name, code });
    if (code !== member.code || !member.joined) forget();
    Object.assign(member, { name, code, joined: true });
    remember();
    open();
    byId("text").focus();
  } catch (error) {
    complainAtLogin(error instanceof Refused ? error.message : "The server cannot be reached. Are you online?");
  } finally {
    byId("enter").disabled = false;
  }
});

function forget() {
  messages = [];
  outbox = [];
  cursor = 0;
  byId("log").replaceChildren();
  showOutbox();
}

function open() {
  // The code must not stay in the address bar and in the history.
  if (location.hash) history.replaceState(null, "", location.pathname);
  document.title = member.code + " – PushChat";
  byId("room").textContent = member.code;
  byId("members").textContent = "\u00A0";
  byId("login").hidden = true;
  byId("chat").hidden = false;
  showOutbox();
  toEnd();
  count();
  connect();
}

function close(reason) {
  disconnect();
  member.joined = false;
  forget();
  remember();
  document.title = "PushChat";
  byId("chat").hidden = true;
  byId("login").hidden = false;
  byId("code").value = member.code;
  complainAtLogin(reason ?? "");
  byId("code").focus();
}

byId("leave").addEventListener("click", async () => {
  byId("leave").disabled = true;
  try {
    await call({ cmd: "leave" });
    close();
  } catch (error) {
    say(error instanceof Refused ? error.message : "You cannot leave now: the server cannot be reached.");
  } finally {
    byId("leave").disabled = false;
  }
});

// MARK: The connection

let stream = null;
let retry = null;
let attempt = 0;

function say(text) {
  byId("status").textContent = text;
  byId("status").hidden = !text;
}

function disconnect() {
  clearTimeout(retry);
  stream?.close();
  stream = null;
}

// First the missed messages, then the stream, which begins where the list ends. A ticket stands for the udid in the
// stream's address, because addresses are written into logs.
async function connect() {
  disconnect();
  const mine = (stream = { close() {} });
  let ticket;
  try {
    for (;;) {
      const fields = cursor > 0 ? { cmd: "messages", since: cursor, limit: 500 } : { cmd: "messages", limit: 500 };
      const page = await call(fields);
      if (stream !== mine) return;
      page.messages.forEach((message) => take(message));
      // A relay with another database may have lower ids.
      cursor = page.messages.length ? cursor : Math.max(cursor, page.next);
      if (page.messages.length < 500) break;
    }
    ({ ticket } = await call({}, {}, "/events/ticket"));
    if (stream !== mine) return;
  } catch (error) {
    if (stream === mine) lost(error);
    return;
  }
  remember();
  const source = new EventSource("/events?" + new URLSearchParams({ ticket, since: cursor }));
  stream = source;
  source.addEventListener("open", () => {
    attempt = 0;
    say("");
  });
  source.addEventListener("message", (event) => take(JSON.parse(event.data), true));
  source.addEventListener("room", (event) => {
    const { members } = JSON.parse(event.data);
    byId("members").textContent = members === 1 ? "Only you are here" : members + " members";
  });
  source.addEventListener("left", () => close("You are not in the room any more."));
  source.addEventListener("error", () => {
    if (stream === source) lost();
  });
}

// Always reconnects with the list first, which fills the gap whatever the reason was.
function lost(error) {
  disconnect();
  if (error instanceof Refused && error.status === 404) return close("You are not in the room any more.");
  // Where sessions are needed: only the operator's own pages can give another one.
  if (error instanceof Refused && error.status === 401) {
    return say("Your session has ended. Open the chat again from where you came from.");
  }
  attempt += 1;
  if (attempt > 1 || !navigator.onLine) {
    say(navigator.onLine ? "Connecting… Messages will be here when the server is back." : "You are offline.");
  }
  const wait = Math.min(15000, 300 * 2 ** Math.min(attempt, 6)) * (0.75 + Math.random() / 2);
  retry = setTimeout(connect, wait);
}

addEventListener("online", () => member.joined && connect());
addEventListener("offline", () => member.joined && say("You are offline."));
// After a sleep the old connection may be dead without an event.
let hiddenSince = null;
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    hiddenSince = Date.now();
    return;
  }
  if (member.joined && hiddenSince && Date.now() - hiddenSince > 30000) connect();
  hiddenSince = null;
  seen();
});

// MARK: Messages

const timeOf = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit" });
const dayOf = new Intl.DateTimeFormat([], { weekday: "long", day: "numeric", month: "long" });
let unread = 0;

function take(message, isLive = false) {
  if (message.id <= cursor) return;
  cursor = message.id;
  const stays = nearEnd();
  show(message, messages.at(-1));
  messages.push(message);
  if (messages.length > 2 * kept) trim();
  if (message.own) settle(message);
  if (isLive) {
    remember();
    if (!message.own && document.hidden) note();
  }
  if (stays || message.own) toEnd();
  else byId("newest").hidden = false;
}

function show(message, before) {
  const log = byId("log");
  const date = new Date(message.sent_at);
  if (!before || new Date(before.sent_at).toDateString() !== date.toDateString()) {
    log.append(element("div", "line", dayOf.format(date)));
  }
  if (!message.own && document.hidden && unread === 0) {
    log.querySelector(".unread")?.remove();
    log.append(element("div", "line unread", "New"));
  }
  const item = element("div", message.own ? "own" : "other");
  if (!message.own && (before?.name !== message.name || before?.own || log.lastElementChild?.classList.contains("line"))) {
    const name = element("bdi", "name", message.name);
    item.append(name);
  } else {
    item.append(element("span", "only-spoken", (message.own ? "You" : message.name) + ": "));
  }
  const bubble = element("span", "bubble", message.text);
  bubble.dir = "auto";
  const time = element("time", "time", timeOf.format(date));
  time.dateTime = message.sent_at;
  if (message.own) item.append(time, bubble);
  else item.append(bubble, time);
  log.append(item);
}

// Keeps the memory bounded.
function trim() {
  messages = messages.slice(-kept);
  byId("log").replaceChildren();
  messages.forEach((message, index) => show(message, messages[index - 1]));
}

function note() {
  unread += 1;
  document.title = "(" + unread + ") " + member.code + " – PushChat";
}

function seen() {
  unread = 0;
  if (member.joined) document.title = member.code + " – PushChat";
}

function nearEnd() {
  const scroll = byId("scroll");
  return scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
}

function toEnd() {
  const scroll = byId("scroll");
  scroll.scrollTo({ top: scroll.scrollHeight, behavior: "instant" });
  byId("newest").hidden = true;
}

byId("newest").addEventListener("click", toEnd);
byId("scroll").addEventListener("scroll", () => {
  if (nearEnd()) byId("newest").hidden = true;
});

// MARK: Compose

const field = byId("text");

function count() {
  const left = limit - encoder.encode(field.value.trim()).length;
  byId("left").textContent = left;
  byId("left").classList.toggle("over", left < 0);
  byId("left").setAttribute("aria-label", left + " bytes left");
  byId("send").disabled = left < 0 || !field.value.trim();
  field.style.height = "auto";
  field.style.height = field.scrollHeight + 2 + "px";
}

field.addEventListener("input", count);
field.addEventListener("keydown", (event) => {
  // Not the Enter with which an input method accepts a suggestion.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("compose").requestSubmit(byId("send"));
});

byId("compose").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = field.value.trim();
  if (!text || encoder.encode(text).length > limit) return;
  const item = { key: random(16), text, problem: null };
  outbox.push(item);
  field.value = "";
  count();
  byId("log").querySelector(".unread")?.remove();
  deliver(item);
  toEnd();
  field.focus();
});

// With an idempotency key, so that a repeated request makes no second message.
async function deliver(item) {
  item.problem = null;
  item.isUnderWay = true;
  showOutbox();
  remember();
  try {
    const answer = await call({ cmd: "message", text: item.text }, { "Idempotency-Key": item.key });
    item.id = answer.id;
    if (answer.id <= cursor) drop(item);
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return close("You are not in the room any more.");
    item.problem = error instanceof Refused ? error.message : "Not sent: the server cannot be reached.";
  }
  item.isUnderWay = false;
  showOutbox();
  remember();
}

// Our own message has arrived: removes it from the outbox.
function settle(message) {
  const item = outbox.find((item) => item.id === message.id)
    ?? outbox.find((item) => item.isUnderWay && item.text.replaceAll("\r", "") === message.text.replaceAll("\r", ""));
  if (item) drop(item);
}

function drop(item) {
  outbox = outbox.filter((other) => other !== item);
  showOutbox();
}

function showOutbox() {
  const stays = nearEnd();
  byId("outbox").replaceChildren(...outbox.map((item) => {
    const line = element("li");
    const bubble = element("span", "bubble", item.text);
    bubble.dir = "auto";
    line.append(bubble);
    if (item.problem) {
      line.append(element("span", "problem", item.problem));
      const again = element("button", "quiet", "Send again");
      again.type = "button";
      again.addEventListener("click", () => deliver(item));
      const away = element("button", "quiet", "Delete");
      away.type = "button";
      away.addEventListener("click", () => {
        drop(item);
        remember();
      });
      line.append(again, away);
    }
    return line;
  }));
  byId("outbox").hidden = outbox.length === 0;
  if (stays) toEnd();
}

// MARK: Invitation

byId("invite").addEventListener("click", () => {
  const link = location.origin + "/#code=" + encodeURIComponent(member.code);
  byId("link").value = link;
  byId("copied").textContent = "\u00A0";
  byId("share").hidden = !navigator.share;
  const code = qrCode(encoder.encode(link));
  byId("qr").hidden = !code;
  if (code) byId("qr").replaceChildren(drawing(code));
  byId("invitation").showModal();
});

function drawing(rows) {
  const space = "http://www.w3.org/2000/svg";
  const size = rows.length + 8;
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 " + size + " " + size);
  svg.setAttribute("shape-rendering", "crispEdges");
  const path = document.createElementNS(space, "path");
  let d = "";
  rows.forEach((row, y) => row.forEach((isDark, x) => {
    if (isDark) d += "M" + (x + 4) + " " + (y + 4) + "h1v1h-1z";
  }));
  path.setAttribute("d", d);
  path.setAttribute("fill", "#000");
  svg.append(path);
  return svg;
}

byId("copy").addEventListener("click", async () => {
  byId("link").select();
  try {
    await navigator.clipboard.writeText(byId("link").value);
    byId("copied").textContent = "Copied";
  } catch {
    byId("copied").textContent = "Copy the marked link";
  }
});
byId("share").addEventListener("click", () => {
  navigator.share({ title: "PushChat", url: byId("link").value }).catch(() => {});
});
byId("close").addEventListener("click", () => byId("invitation").close());

// MARK: Start

if ("serviceWorker" in navigator) navigator.serviceWorker.register("/worker.js").catch(() => {});

if (member.joined && (!invited || invited === member.code)) {
  const room = memory.get("room", {});
  if (room.code === member.code) {
    (room.messages ?? []).forEach((message, index, all) => {
      show(message, all[index - 1]);
      messages.push(message);
    });
    cursor = room.cursor ?? 0;
  }
  // Messages that were being sent when the page was closed: the key makes it safe to send them again.
  const waiting = outbox.slice();
  open();
  waiting.filter((item) => !item.problem).forEach(deliver);
}
