"use strict";
// The tutorial's three screens: login, chat, compose. Messages arrive by `messages` and `/events`. Each is shown once, by its
// id.

const limit = Number(document.querySelector("meta[name=text-limit]").content);

// Returns an address of the relay from its configuration. The default is below the page's own address.
function setting(name, path) {
  return document.querySelector("meta[name=" + name + "]").content || location.origin + path;
}

// MARK: Calls

// A session token of the operator's own system, if the relay requires one. It is in the fragment of the link to this page, and
// the tab keeps it until it is closed.
let session = null;

function takeSession(token) {
  session = token ?? session;
  try {
    if (token) sessionStorage.setItem("pushchat.session", token);
    session ??= sessionStorage.getItem("pushchat.session");
  } catch {
    // Storage is forbidden. The page works until it is reloaded.
  }
}

function callRelay(path, fields, headers = {}) {
  if (session) headers.Authorization = "Bearer " + session;
  return fetchJSON(path, {
    method: "POST",
    headers: { Accept: "application/json", ...headers },
    body: new URLSearchParams(fields),
  }, 20000);
}

// Calls the relay as the member of a room.
function call(room, fields, headers = {}, path = "/api.php") {
  return callRelay(path, { ...fields, udid: room.udid }, headers);
}

// Whether the relay does not know the member, or no longer does.
function isGone(error) {
  return error instanceof Refused && error.status === 404;
}

// MARK: Login

function showLoginError(text) {
  byId("login-error").textContent = text;
  byId("login-error").hidden = !text;
}

// Shows the login. The browser stays in its rooms.
function showLogin(code = "", reason = "") {
  byId("chat").hidden = true;
  byId("login").hidden = false;
  byId("back").hidden = rooms.length === 0;
  byId("name").value = current?.name ?? memory.get("name", "");
  byId("code").value = code;
  showLoginError(reason);
}

byId("another").addEventListener("click", () => {
  showLogin();
  byId("code").focus();
});

byId("back").addEventListener("click", () => {
  open(current ?? rooms[0]);
  byId("text").focus();
});

// The page warns about codes with fewer characters: a few hundred guesses an hour can find them.
const shortCode = 8;

byId("code").addEventListener("input", () => {
  const length = [...byId("code").value.trim()].length;
  byId("code-warning").hidden = length === 0 || length >= shortCode;
});

byId("login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [name, code] = [byId("name").value.trim(), composed(byId("code").value)];
  const room = rooms.find((room) => room.code === code) ?? recall({ udid: removedAs(code) ?? random(20), name, code });
  byId("enter").disabled = true;
  showLoginError("");
  try {
    await call(room, { cmd: "join", token: "0", name, code });
    room.name = name;
    memory.set("name", name);
    if (!rooms.includes(room)) rooms.push(room);
    rememberRooms();
    rememberRemoved(room, false);
    open(room);
    byId("text").focus();
    change(() => sendSubscription(room));
  } catch (error) {
    showLoginError(error instanceof Refused ? error.message : "The server cannot be reached. Are you online?");
  } finally {
    byId("enter").disabled = false;
  }
});

function open(room) {
  // The code must not stay in the address bar or in the history.
  if (location.hash) history.replaceState(null, "", location.pathname);
  if (current) current.draft = field.value;
  current = room;
  memory.set("current", room.udid);
  byId("room").textContent = room.code;
  byId("members").textContent = "\u00A0";
  byId("login").hidden = true;
  byId("chat").hidden = false;
  say("");
  attempt = 0;
  field.value = room.draft;
  showLog();
  showOutbox();
  toEnd();
  count();
  connect();
  seen();
  // Resend the messages that were in progress when the page was closed. The idempotency key makes that safe.
  room.outbox.filter((item) => !item.problem && !item.isInProgress).forEach((item) => deliver(item, room));
}

// Deletes everything about a room that this browser has left.
function forget(room, reason) {
  rooms = rooms.filter((other) => other !== room);
  memory.set("room." + room.udid, undefined);
  rememberRooms();
  if (!room.isLeft) rememberRemoved(room, true);
  // The stream may report that the member left before the call returns.
  if (room === current) vacate(room.isLeft ? undefined : reason);
  showRooms();
}

// Replaces the room that was shown, which is gone, with another one or the login.
function vacate(reason) {
  const { code } = current;
  disconnect();
  current = null;
  byId("log").replaceChildren();
  byId("outbox").replaceChildren();
  field.value = "";
  if (rooms.length && !reason) return open(rooms[0]);
  // A removed member must not rejoin with a single click.
  if (reason) memory.set("name", undefined);
  showLogin(reason ? "" : code, reason);
  byId("code").focus();
}

byId("leave").addEventListener("click", async () => {
  const room = current;
  byId("leave").disabled = true;
  room.isLeft = true;
  try {
    await call(room, { cmd: "leave" });
    forget(room);
  } catch (error) {
    room.isLeft = false;
    say(error instanceof Refused ? error.message : "You cannot leave now: the server cannot be reached.");
  } finally {
    byId("leave").disabled = false;
  }
});

// Reasons why the member is no longer in the room.
const reasons = { left: "You are no longer in the room.", removed: "You were removed from this room." };

// MARK: The connection

let stream = null;
let retry = null;
let attempt = 0;
// The number of messages to read again after a gap.
const reread = 100;

function say(text) {
  byId("status").textContent = text;
  byId("status").hidden = !text;
}

function disconnect() {
  clearTimeout(retry);
  stream?.close();
  stream = null;
}

// Reads the missed messages, then opens the stream where the list ends. A ticket replaces the udid in the stream's address,
// because servers write addresses into logs.
async function connect() {
  disconnect();
  const mine = (stream = { close() {} });
  const room = current;
  // Read the latest messages again, because some may have been deleted since.
  let again = room.messages.slice(-reread);
  let ticket;
  try {
    for (;;) {
      const since = again.length ? { since: again[0].id - 1 } : room.cursor > 0 ? { since: room.cursor } : {};
      const page = await call(room, { cmd: "messages", limit: 500, ...since });
      if (stream !== mine) return;
      rename(room, page.code);
      vanish(missing(again, page.messages));
      again = [];
      page.messages.forEach((message) => take(message));
      // A relay with another database may have lower ids.
      room.cursor = page.messages.length ? room.cursor : Math.max(room.cursor, page.next);
      if (page.messages.length < 500) break;
    }
    ({ ticket } = await call(room, {}, {}, "/events/ticket"));
    if (stream !== mine) return;
  } catch (error) {
    if (stream === mine) lost(error);
    return;
  }
  remember(room);
  showEmpty();
  const source = new EventSource("/events?" + new URLSearchParams({ ticket, since: room.cursor }));
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
  source.addEventListener("receipt", (event) => {
    room.receipt = JSON.parse(event.data);
    showReceipt();
  });
  source.addEventListener("deleted", (event) => vanish(new Set([JSON.parse(event.data).id])));
  // This event ends the stream. A random delay keeps the clients from reconnecting all at once.
  source.addEventListener("code", (event) => {
    rename(room, JSON.parse(event.data).code);
    if (stream !== source) return;
    disconnect();
    retry = setTimeout(connect, Math.random() * 2000);
  });
  source.addEventListener("left", (event) => forget(room, reasons[JSON.parse(event.data || "{}").reason] ?? reasons.left));
  source.addEventListener("error", () => {
    if (stream === source) lost();
  });
}

// Reconnects. Reading the list first fills the gap, whatever the reason was.
function lost(error) {
  disconnect();
  if (isGone(error)) return forget(current, reasons.left);
  // The relay requires a session, and only the operator's own pages can provide another one.
  if (error instanceof Refused && error.status === 401) {
    return say("Your session has ended. Open the chat again from where you came from.");
  }
  attempt += 1;
  if (error instanceof Refused && error.status === 403) say(error.message);
  else if (attempt > 1 || !navigator.onLine) {
    say(navigator.onLine ? "Connecting… Messages will be here when the server is back." : "You are offline.");
  }
  const wait = Math.min(15000, 300 * 2 ** Math.min(attempt, 6)) * (0.75 + Math.random() / 2);
  retry = setTimeout(connect, wait);
}

addEventListener("online", () => current && connect());
addEventListener("offline", () => current && say("You are offline."));
// After the computer has slept, the old connection may be dead without an event.
let hiddenSince = null;
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    // A push may have set the badge while this page showed its message.
    showBadge();
    hiddenSince = Date.now();
    return;
  }
  if (current && hiddenSince && Date.now() - hiddenSince > 30000) connect();
  hiddenSince = null;
  seen();
  countAllUnread();
});

// MARK: Messages

const timeOf = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit" });
const dayOf = new Intl.DateTimeFormat([], { weekday: "long", day: "numeric", month: "long" });

function take(message, isLive = false) {
  const { messages } = current;
  if (message.id <= current.cursor) return;
  current.cursor = message.id;
  const stays = nearEnd();
  show(message, messages.at(-1));
  messages.push(message);
  if (messages.length > 2 * kept) trim();
  if (message.own) {
    settle(message);
    showReceipt();
  }
  if (isLive) {
    remember(current);
    if (!message.own && !isSeen()) note();
  }
  if (stays || message.own) toEnd();
  else byId("newest").hidden = false;
}

// Without messages, the cursor is the start of the member's history. 0 is the start of the room.
function showEmpty() {
  if (current.messages.length || byId("log").childElementCount) return;
  byId("log").append(element("div", "line empty", current.cursor > 0
    ? "Messages from before you joined are not shown" : "No messages yet"));
}

function show(message, before) {
  const log = byId("log");
  log.querySelector(".empty")?.remove();
  const date = new Date(message.sent_at);
  if (!before || new Date(before.sent_at).toDateString() !== date.toDateString()) {
    log.append(element("div", "line", dayOf.format(date)));
  }
  if (!message.own && !isSeen() && current.unread === 0) {
    log.querySelector(".unread")?.remove();
    log.append(element("div", "line unread", "New"));
  }
  const item = element("div", message.own ? "own" : "other");
  item.dataset.id = message.id;
  const name = element("bdi", "", message.own ? "You" : message.name);
  if (message.program) name.append(" ", element("span", "program", "program"));
  item.append(name, element("span", "only-spoken", ": "));
  const time = element("time", "time", timeOf.format(date));
  time.dateTime = message.sent_at;
  if (message.own) item.append(time, bubbleOf(message));
  else item.append(bubbleOf(message), time);
  log.append(item);
  showName(item, message, before);
}

// Shows the receipt below the member's own last message. Screen readers do not announce its changes.
function showReceipt() {
  const last = current.messages.findLast((message) => message.own);
  const { receipt } = current;
  const stays = nearEnd();
  byId("log").querySelector(".receipt")?.remove();
  if (!receipt || receipt.id !== last?.id) return;
  const line = element("span", "receipt", receiptText(receipt));
  line.setAttribute("aria-live", "off");
  byId("log").querySelector(`[data-id="${receipt.id}"]`)?.append(line);
  if (stays) toEnd();
}

function receiptText({ reached, read, read_by: names }) {
  const rest = read - names.length;
  const readers = [...names, ...(rest > 0 ? [rest + " more"] : [])];
  const list = new Intl.ListFormat("en", { style: "short", type: "unit" }).format(readers);
  return [
    reached > 0 && "Reached " + reached + (reached === 1 ? " device" : " devices"), read > 0 && "Read by " + list,
  ].filter(Boolean).join(" · ");
}

// Shows the name above the first of several messages from the same sender. Above the others only screen readers read it.
function showName(item, message, before) {
  const isShown = !message.own
    && (before?.name !== message.name || before.program !== message.program || before.own || item.previousElementSibling?.classList.contains("line"));
  item.firstChild.className = isShown ? "name" : "only-spoken";
}

// Programs' messages may have a title and a link.
function bubbleOf({ title, text, link }) {
  const bubble = element("span", "bubble", title || link ? null : text);
  bubble.dir = "auto";
  if (!title && !link) return bubble;
  const address = webAddress(link);
  const head = title && element("strong", "title", address ? null : title);
  if (title && address) head.append(anchor(address, title));
  const body = element("span", "body", text);
  const parts = [head, body, !title && address && element("span", "host")].filter(Boolean);
  if (!title && address) parts.at(-1).append(anchor(address, address.host));
  parts.forEach((part) => { part.dir = "auto"; });
  bubble.append(...parts);
  return bubble;
}

// Returns the URL of a link. Null unless it is an HTTP or HTTPS address.
function webAddress(link) {
  const address = typeof link === "string" && URL.canParse(link) ? new URL(link) : null;
  return ["http:", "https:"].includes(address?.protocol) ? address : null;
}

function anchor(address, text) {
  const made = element("a", "", text);
  made.href = address.href;
  made.target = "_blank";
  made.rel = "noopener noreferrer";
  made.append(element("span", "only-spoken", " (opens a new tab)"));
  return made;
}

// Returns the ids of known messages that are missing from the relay's list. Those older than the list do not count as deleted,
// because retention may have removed them.
function missing(known, list) {
  const there = new Set(list.map((message) => message.id));
  return new Set(known.map((message) => message.id).filter((id) => id > list[0]?.id && !there.has(id)));
}

// Removes deleted messages. Changes nothing else in the log, so that a screen reader does not read the others again.
function vanish(ids) {
  if (ids.size === 0) return;
  const { messages } = current;
  const unread = current.unread ? messages.filter((message) => !message.own).slice(-current.unread) : [];
  current.unread -= unread.filter((message) => ids.has(message.id)).length;
  current.messages = messages.filter((message) => !ids.has(message.id));
  current.outbox.filter((item) => ids.has(item.id)).forEach((item) => drop(item, current));
  remember(current);
  const log = byId("log");
  for (const item of log.querySelectorAll("[data-id]")) {
    if (!ids.has(Number(item.dataset.id))) continue;
    if (item.contains(document.activeElement)) byId("scroll").focus();
    item.remove();
  }
  // Remove lines that have no message below them.
  for (const line of [...log.querySelectorAll(".line")].reverse()) {
    let next = line.nextElementSibling;
    while (next?.classList.contains("unread")) next = next.nextElementSibling;
    if (!next || (next.classList.contains("line") && !line.classList.contains("unread"))) line.remove();
  }
  current.messages.forEach((message, index, all) => {
    const item = log.querySelector(`[data-id="${message.id}"]`);
    if (item) showName(item, message, all[index - 1]);
  });
  showReceipt();
  showRooms();
  closeNotifications((notification) => ids.has(Number(/^message-(\d+)$/.exec(notification.tag)?.[1])));
  if (nearEnd()) byId("newest").hidden = true;
}

function showLog() {
  byId("log").replaceChildren();
  current.messages.forEach((message, index, all) => show(message, all[index - 1]));
  showReceipt();
}

// Limits the number of messages in memory.
function trim() {
  current.messages = current.messages.slice(-kept);
  showLog();
}

function isSeen() {
  return !document.hidden && !byId("chat").hidden;
}

function note() {
  current.unread += 1;
  showRooms();
}

function seen() {
  if (!current || !isSeen()) return;
  current.unread = 0;
  showRooms();
  const room = current;
  closeNotifications((notification) => isNamed(room, notification.data?.room));
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
  // Ignore the Enter with which an input method accepts a suggestion.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("compose").requestSubmit(byId("send"));
});

byId("compose").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = field.value.trim();
  if (!text || encoder.encode(text).length > limit) return;
  const item = { key: random(16), text, problem: null };
  current.outbox.push(item);
  field.value = "";
  count();
  byId("log").querySelector(".unread")?.remove();
  deliver(item, current);
  toEnd();
  field.focus();
});

// Sends a message with an idempotency key, so that a retry creates no second message.
async function deliver(item, room) {
  item.problem = null;
  item.isInProgress = true;
  showOutbox();
  remember(room);
  try {
    const answer = await call(room, { cmd: "message", text: item.text }, { "Idempotency-Key": item.key });
    item.id = answer.id;
    if (room !== current || answer.id <= room.cursor) drop(item, room);
  } catch (error) {
    if (isGone(error)) return forget(room, reasons.left);
    item.problem = error instanceof Refused ? error.message : "Not sent: the server cannot be reached.";
  }
  item.isInProgress = false;
  showOutbox();
  remember(room);
}

// Removes our own message from the outbox, because it has arrived.
function settle(message) {
  const { outbox } = current;
  const item = outbox.find((item) => item.id === message.id)
    ?? outbox.find((item) => item.isInProgress && item.text.replaceAll("\r", "") === message.text.replaceAll("\r", ""));
  if (item) drop(item, current);
}

function drop(item, room) {
  room.outbox = room.outbox.filter((other) => other !== item);
  showOutbox();
}

function showOutbox() {
  const room = current;
  if (!room) return;
  const stays = nearEnd();
  byId("outbox").replaceChildren(...room.outbox.map((item) => {
    const line = element("li");
    const bubble = element("span", "bubble", item.text);
    bubble.dir = "auto";
    line.append(bubble);
    if (item.problem) {
      line.append(element("span", "problem", item.problem));
      const again = element("button", "quiet", "Send again");
      again.type = "button";
      again.addEventListener("click", () => deliver(item, room));
      const away = element("button", "quiet", "Delete");
      away.type = "button";
      away.addEventListener("click", () => {
        drop(item, room);
        remember(room);
      });
      line.append(again, away);
    }
    return line;
  }));
  byId("outbox").hidden = room.outbox.length === 0;
  if (stays) toEnd();
}

// MARK: Invitation

byId("invite").addEventListener("click", () => {
  const link = setting("public-url", "") + "/#code=" + encodeURIComponent(current.code);
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

// Copies a field, and reports the result in an element. Without permission the user copies the selected text.
async function copyFrom(field, status, name) {
  field.select();
  try {
    await navigator.clipboard.writeText(field.value);
    status.textContent = name + " copied";
  } catch {
    status.textContent = "Copy the selected text";
  }
}

byId("copy").addEventListener("click", () => copyFrom(byId("link"), byId("copied"), "Link"));
byId("share").addEventListener("click", () => {
  navigator.share({ title: "PushChat", url: byId("link").value }).catch(() => {});
});
byId("close").addEventListener("click", () => byId("invitation").close());

// MARK: Start

// The fragment of the address: an invitation's code, a notification's room, a session, the lines for another app.
function arrive() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  takeSession(fragment.get("token"));
  const [code, hash] = [fragment.get("code"), fragment.get("room")];
  const udid = memory.get("current", "");
  const room = code !== null
    ? rooms.find((room) => room.code === composed(code))
    : rooms.find((room) => isNamed(room, hash)) ?? current ?? rooms.find((room) => room.udid === udid) ?? rooms[0];
  if (room) open(room);
  else showLogin(code ?? "");
  showAppLink(fragment);
}

addEventListener("hashchange", () => location.hash && arrive());
arrive();
countAllUnread();
renew();
