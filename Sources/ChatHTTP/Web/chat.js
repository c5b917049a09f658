"use strict";
// The tutorial's three screens: login, chat, compose. Messages arrive by `messages` and `/events`. Each is shown once, by its
// id.

const limit = Number(document.querySelector("meta[name=text-limit]").content);

// Returns an address of the relay from its configuration. The default is below the page's own address.
function setting(name, path) {
  return document.querySelector("meta[name=" + name + "]").content || root.href.slice(0, -1) + path;
}

// MARK: Calls

// A session token of the operator's own system, if the relay requires one. It is in the fragment of the link to this page, and
// the tab keeps it until it is closed.
let session = null;

function takeSession(token) {
  session = token ?? session ?? tabMemory.get("session");
  if (token) tabMemory.set("session", token);
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

// Whether the relay does not know the member, or no longer does. A proxy's 404 has no code, and deletes nothing.
function isGone(error) {
  return error instanceof Refused && error.code === "not_joined";
}

// MARK: Login

function showLoginError(text) {
  byId("login-error").textContent = text;
  byId("login-error").hidden = !text;
}

// Shows the login. The browser stays in its rooms.
function showLogin(code = "", reason = "", title = "") {
  byId("chat").hidden = true;
  byId("login").hidden = false;
  byId("back").hidden = rooms.length === 0;
  byId("name").value = current?.name ?? memory.get("name", "");
  byId("code").value = code;
  byId("code-warning").hidden = byId("new-hint").hidden = true;
  // An invited person only chooses a name.
  byId("about").hidden = byId("code-entry").hidden = code !== "";
  byId("invited").hidden = code === "";
  byId("invited").textContent = words("login.invited", { room: title || code });
  byId("enter").disabled = !memory.works();
  showLoginError(reason || (byId("enter").disabled ? words("login.storage") : ""));
}

function joinAnother() {
  showLogin();
  byId("code").focus();
}

byId("another").addEventListener("click", () => {
  byId("menu").hidePopover();
  joinAnother();
});
byId("add-room").addEventListener("click", () => {
  closeList();
  joinAnother();
});

// Digits and letters that people do not confuse: 32 characters, so each has 5 bits.
const codeCharacters = "23456789abcdefghijkmnpqrstuvwxyz";

byId("new-room").addEventListener("click", () => {
  const characters = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => codeCharacters[byte % 32]);
  byId("code").value = characters.join("").match(/.{4}/g).join("-");
  byId("code-warning").hidden = true;
  byId("new-hint").hidden = false;
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
  byId("new-hint").hidden = true;
});

byId("login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [name, code] = [byId("name").value.trim(), composed(byId("code").value)];
  const room = rooms.find((room) => room.code === code) ?? recall({ udid: removedAs(code) ?? random(20), name, code });
  byId("enter").disabled = true;
  // Without its udid the browser would be another member after each reload.
  if (!memory.works()) return showLoginError(words("login.storage"));
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
    byId("code-entry").hidden = false;
    showLoginError(error instanceof Refused ? error.message : words("unreachable"));
  } finally {
    byId("enter").disabled = false;
  }
});

function open(room) {
  // The code must not stay in the address bar or in the history.
  if (location.hash) history.replaceState(null, "", location.pathname);
  if (current) {
    current.draft = field.value;
    if (current !== room) readAll();
  }
  current = room;
  memory.set("current", room.udid);
  showTitle();
  byId("members").textContent = "\u00A0";
  byId("login").hidden = true;
  byId("chat").hidden = false;
  say("");
  attempt = 0;
  field.value = room.draft;
  showRefusal();
  showLog();
  showOutbox();
  toEnd();
  count();
  connect();
  seen();
}

function showTitle() {
  byId("room").textContent = byId("room").title = nameOf(current);
}

// Deletes everything about a room that this browser has left.
function forget(room, reason) {
  rooms = rooms.filter((other) => other !== room);
  for (const part of ["room.", "outbox.", "draft."]) memory.set(part + room.udid, undefined);
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
  showLogin("", reason);
  if (!reason) byId("code").value = code;
  byId("code").focus();
}

// The room that the dialog asks about. A notification may open another room before the answer.
let leaving = null;

// Leaving deletes the history, so a dialog asks first.
byId("leave").addEventListener("click", () => {
  byId("menu").hidePopover();
  leaving = current;
  byId("leaving-title").textContent = words("leave.title", { room: nameOf(leaving) });
  byId("leaving").showModal();
});
byId("stay").addEventListener("click", () => byId("leaving").close());

byId("really-leave").addEventListener("click", async () => {
  byId("leaving").close();
  const room = leaving;
  if (!rooms.includes(room)) return;
  byId("leave").disabled = true;
  room.isLeft = true;
  try {
    await call(room, { cmd: "leave" });
    forget(room);
  } catch (error) {
    room.isLeft = false;
    say(error instanceof Refused ? error.message : words("leave.failed"));
  } finally {
    byId("leave").disabled = false;
  }
});

// Reasons why the member is no longer in the room.
const reasons = { left: words("left.left"), removed: words("left.removed") };

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
      const page = await call(room, { cmd: "messages", limit: 500, changes: 1, ...since });
      if (stream !== mine) return;
      learn(room, page);
      const changes = page.changes ?? [];
      const isFull = page.messages.length + changes.length >= 500;
      vanish(missing(again, page.messages, isFull ? page.next : Infinity));
      again = [];
      takeAll(page.messages);
      amend(changes);
      // A relay with another database may have lower ids.
      room.cursor = page.messages.length ? room.cursor : Math.max(room.cursor, page.next);
      if (!isFull) break;
    }
    ({ ticket } = await call(room, {}, {}, "/events/ticket"));
    if (stream !== mine) return;
  } catch (error) {
    if (stream === mine) lost(error);
    return;
  }
  remember(room);
  showRooms();
  showEmpty();
  const source = new EventSource(at("/events?") + new URLSearchParams({ ticket, since: room.cursor }));
  stream = source;
  source.addEventListener("open", () => {
    attempt = 0;
    say("");
    rooms.forEach(sendOutbox);
  });
  source.addEventListener("message", (event) => {
    const message = JSON.parse(event.data);
    if (message.id > room.cursor) take(message, true);
    else if (stream === source) startAgain(room);
  });
  source.addEventListener("room", (event) => {
    const { members, title } = JSON.parse(event.data);
    retitle(room, title);
    byId("members").textContent = words("status.members", { count: members });
  });
  source.addEventListener("receipt", (event) => {
    room.receipt = JSON.parse(event.data);
    showReceipt();
  });
  for (const kind of ["edited", "cleared", "resolved", "deleted"]) {
    source.addEventListener(kind, ({ data, lastEventId }) => amend([{ id: Number(lastEventId), event: kind, message: JSON.parse(data) }]));
  }
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

// Reads the whole room again. A stream sends only messages after the requested one, so the relay has another database.
function startAgain(room) {
  Object.assign(room, { cursor: 0, messages: [], unreadFrom: undefined });
  showLog();
  connect();
}

// Reconnects. Reading the list first fills the gap, whatever the reason was.
function lost(error) {
  disconnect();
  if (isGone(error)) return forget(current, reasons.left);
  // The relay requires a session, and only the operator's own pages can provide another one.
  if (error instanceof Refused && error.status === 401) {
    return say(words("status.sessionEnded"));
  }
  attempt += 1;
  if (error instanceof Refused && error.status === 403) say(error.message);
  else if (attempt > 1 || !navigator.onLine) {
    say(words(navigator.onLine ? "status.connecting" : "status.offline"));
  }
  const wait = Math.min(15000, 300 * 2 ** Math.min(attempt, 6)) * (0.75 + Math.random() / 2);
  retry = setTimeout(connect, wait);
}

addEventListener("online", () => current && connect());
addEventListener("offline", () => current && say(words("status.offline")));
// After the computer has slept, the old connection may be dead without an event.
let hiddenSince = null;
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    // A push may have set the badge while this page showed its message.
    showBadge();
    readAll();
    hiddenSince = Date.now();
    return;
  }
  if (current && hiddenSince && Date.now() - hiddenSince > 30000) connect();
  hiddenSince = null;
  seen();
  countAllUnread();
  pollUnread();
});

// MARK: Messages

const timeOf = new Intl.DateTimeFormat(chosenLocale(), { timeStyle: "short" });
const dayOf = new Intl.DateTimeFormat(chosenLocale(), { weekday: "long", day: "numeric", month: "long" });

function take(message, isLive = false) {
  takeAll([message], isLive);
}

// Shows new messages, oldest first. Looks at the layout once, because each look costs a layout of the whole list.
function takeAll(list, isLive = false) {
  const fresh = list.filter((message) => message.id > current.cursor);
  if (fresh.length === 0) return;
  const { messages } = current;
  const stays = nearEnd();
  // Most of a long list would leave the window at once.
  const isLong = fresh.length > kept;
  const isAtEnd = windowEnd === messages.length;
  for (const message of fresh) {
    current.cursor = message.id;
    // After the first visit, messages that arrive while the page is hidden are below the divider.
    if (!message.own && (isLive ? !isSeen() : messages.length > 0)) current.unreadFrom ??= message.id;
    if (isAtEnd && !isLong) show(message, messages.at(-1));
    messages.push(message);
    if (isAtEnd && !isLong) windowEnd = messages.length;
    if (message.own) settle(message);
  }
  byId("empty").hidden = true;
  const surplus = messages.length > inMemory + kept ? messages.length - inMemory : 0;
  messages.splice(0, surplus);
  [windowStart, windowEnd] = [windowStart, windowEnd].map((index) => Math.max(0, index - surplus));
  // A member who reads further up keeps the place.
  if (isAtEnd && (isLong || stays && windowEnd - windowStart > 2 * kept)) showLog();
  else placeDivider();
  const isOwn = fresh.some((message) => message.own);
  placeTabStop();
  if (isOwn) showReceipt();
  if (isLive) {
    remember(current);
    if (!fresh.at(-1).own && !isSeen()) note();
    else showRooms();
  }
  if (stays || isOwn) toEnd();
  else byId("newest").hidden = false;
}

// Without messages, the cursor is the start of the member's history. 0 is the start of the room.
function showEmpty() {
  byId("empty").hidden = current.messages.length > 0;
  byId("empty-text").textContent = words(current.cursor > 0 ? "empty.earlier" : "empty.none");
}

// Shows a line above the first unread message, with the number of unread ones. It stays until the member has read them, and
// leaves the room or the page.
function placeDivider() {
  const unread = current.unreadFrom === undefined ? []
    : current.messages.filter((message) => message.id >= current.unreadFrom && !message.own);
  const item = unread.length ? byId("log").querySelector(`[data-id="${unread[0].id}"]`) : null;
  let line = byId("log").querySelector(".unread");
  if (!item) return line?.remove();
  line ??= element("div", "line unread");
  line.textContent = words("messages.unread", { count: unread.length });
  if (item.previousElementSibling !== line) item.before(line);
}

// Ends the divider if the newest messages are in view.
function readAll() {
  if (!current || byId("chat").hidden || !nearEnd()) return;
  current.unreadFrom = undefined;
  placeDivider();
}

// Adds a message to the end of the log, or of a fragment for it.
function show(message, before, log = byId("log")) {
  const date = new Date(message.sent_at);
  if (!before || new Date(before.sent_at).toDateString() !== date.toDateString()) {
    log.append(element("div", "line", dayOf.format(date)));
  }
  const item = element("div", message.own ? "own" : "other");
  item.dataset.id = message.id;
  if (message.program) item.classList.add("card");
  if (isEmoji(message)) item.classList.add("large");
  const name = element("span");
  name.append(element("bdi", "", message.own ? words("messages.you") : plain(message.name)));
  if (message.program) name.append(" ", element("span", "program", words("messages.program")));
  const time = element("time", "time", timeText(message));
  time.dateTime = message.sent_at;
  const box = element("div", "box");
  box.append(name, element("span", "only-spoken", ": "), bubbleOf(message), time);
  if (!message.own) item.append(faceOf(plain(message.name), message.program));
  item.append(box);
  log.append(item);
  if (message.own) box.append(eraser(message));
  showName(item, message, before);
}

// Returns the time of a message, and its last change.
function timeText(message) {
  const marks = { edited_at: words("messages.edited"), cleared_at: words("messages.cleared"), resolved_at: words("messages.resolved") };
  const changes = Object.entries(marks).filter(([name]) => message[name]).map(([, mark]) => mark);
  return [timeOf.format(new Date(message.sent_at)), ...changes].join(" · ");
}

// Whether a message consists of a few emoji.
function isEmoji({ title, text }) {
  return !title && text.length <= 40
    && /^(?:\p{Extended_Pictographic}[\u{1F3FB}-\u{1F3FF}\uFE0F\u200D]*|\p{Regional_Indicator}{2}|\s)+$/u.test(text);
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
  const readers = [...names.map(isolated), ...(rest > 0 ? [words("receipt.more", { count: rest })] : [])];
  const list = new Intl.ListFormat(chosenLocale(), { style: "short", type: "unit" }).format(readers);
  return [
    reached > 0 && words("receipt.reached", { count: reached }), read > 0 && words("receipt.read", { names: list }),
  ].filter(Boolean).join(" · ");
}

// Shows the name above the first of several messages from the same sender. Above the others only screen readers read it.
function showName(item, message, before) {
  const isFirst = before?.name !== message.name || before.program !== message.program || before.own !== message.own
    || item.previousElementSibling?.classList.contains("line");
  item.classList.toggle("first", isFirst);
  item.querySelector(".box").firstChild.className = isFirst && !message.own ? "name " + toneOf(message.name) : "only-spoken";
}

// Programs' messages may have a title and a link, and Markdown.
function bubbleOf({ title, text, link, markdown }) {
  const [tag, kind, nodes] = markdown === true
    ? ["div", " formatted", markdownBlocks(text.split(/\r?\n/))] : ["span", "", linked(text)];
  const bubble = element(tag, "bubble" + (title || link ? "" : kind));
  bubble.dir = "auto";
  if (!title && !link) {
    bubble.append(...nodes);
    return bubble;
  }
  const address = webAddress(link, ["tel:", "mailto:", "geo:"]);
  const head = title && element("strong", "title", address ? null : title);
  if (title && address) head.append(anchor(address, title));
  const body = element(tag, "body" + kind);
  body.append(...nodes);
  const parts = [head, body, !title && address && element("span", "host")].filter(Boolean);
  if (!title && address) parts.at(-1).append(anchor(address, address.host || address.href));
  parts.forEach((part) => { part.dir = "auto"; });
  bubble.append(...parts);
  return bubble;
}

// Returns the URL of a link. Null unless it is an HTTP or HTTPS address, or has one of the other schemes.
function webAddress(link, others = []) {
  const address = typeof link === "string" && URL.canParse(link) ? new URL(link) : null;
  return ["http:", "https:", ...others].includes(address?.protocol) ? address : null;
}

// HTTP and HTTPS addresses in a text, without characters that change the direction of what follows.
const addresses = /https?:\/\/[^\s<>"\u200e\u200f\u202a-\u202e\u2066-\u2069]+/gi;

// Returns the text as nodes, with its addresses as links.
function linked(text) {
  const nodes = [];
  let end = 0;
  for (const { 0: found, index } of text.matchAll(addresses)) {
    const shown = withoutPunctuation(found);
    const address = webAddress(shown);
    // A user name in front of the host is a trick to hide the host.
    if (!address || address.username || address.password) continue;
    nodes.push(text.slice(end, index), anchor(address, shown));
    end = index + shown.length;
  }
  return [...nodes, text.slice(end)].filter(Boolean);
}

// Returns an address without the punctuation of the sentence around it. Brackets stay if the address opens them.
function withoutPunctuation(address) {
  for (;;) {
    const last = address.at(-1);
    const opening = { ")": "(", "]": "[", "}": "{" }[last];
    const isSurplus = opening && address.split(last).length > address.split(opening).length;
    if (!isSurplus && !".,;:!?'’”»*_".includes(last)) return address;
    address = address.slice(0, -1);
  }
}

function anchor(address, text) {
  const made = element("a", "", text);
  made.href = address.href;
  made.target = "_blank";
  made.rel = "noopener noreferrer";
  made.append(element("span", "only-spoken", words("messages.newTab")));
  return made;
}

// Returns the ids of known messages that are missing from the relay's list, up to the id at which it ends. Those older than the
// list do not count as deleted, because retention may have removed them.
function missing(known, list, end) {
  const there = new Set(list.map((message) => message.id));
  return new Set(known.map((message) => message.id).filter((id) => id > list[0]?.id && id <= end && !there.has(id)));
}

// Applies changes of messages: each has the newest form of its message. Changes nothing else in the log.
function amend(changes) {
  // The messages that are gone, and those without a notification from now on.
  const [gone, over] = [new Set(), new Set()];
  const { messages } = current;
  for (const { id, event, message } of changes) {
    current.cursor = Math.max(current.cursor, id);
    const index = messages.findIndex((each) => each.id === message.id);
    // The notification of a message that was resolved with a last text shows this text.
    if (event === "cleared" || event === "resolved" && messages[index]?.text === message.text) over.add(message.id);
    if (event === "deleted") gone.add(message.id);
    else if (index >= 0) {
      messages[index] = message;
      renewItem(message);
    }
  }
  vanish(gone);
  if (changes.length === 0) return;
  remember(current);
  showRooms();
  closeNotifications(({ tag }) => over.has(messageOf(tag)));
}

// Shows the newest form of a message in its place.
function renewItem(message) {
  const item = byId("log").querySelector(`[data-id="${message.id}"]`);
  if (!item) return;
  const bubble = item.querySelector(".bubble");
  if (bubble.contains(document.activeElement)) byId("scroll").focus();
  bubble.replaceWith(bubbleOf(message));
  item.querySelector(".time").textContent = timeText(message);
  item.classList.toggle("large", isEmoji(message));
}

// Returns the id of a notification's message. NaN for other notifications.
function messageOf(tag) {
  return Number(/^message-(\d+)$/.exec(tag)?.[1]);
}

// Removes deleted messages. Changes nothing else in the log, so that a screen reader does not read the others again.
function vanish(ids) {
  if (ids.size === 0) return;
  const { messages } = current;
  const unread = current.unread ? messages.filter((message) => !message.own).slice(-current.unread) : [];
  current.unread -= unread.filter((message) => ids.has(message.id)).length;
  current.messages = messages.filter((message) => !ids.has(message.id));
  [windowStart, windowEnd] = [windowStart, windowEnd]
    .map((end) => messages.slice(0, end).filter((message) => !ids.has(message.id)).length);
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
  current.messages.slice(windowStart, windowEnd).forEach((message, index) => {
    const item = log.querySelector(`[data-id="${message.id}"]`);
    if (item) showName(item, message, current.messages[windowStart + index - 1]);
  });
  placeDivider();
  showReceipt();
  showRooms();
  closeNotifications(({ tag }) => ids.has(messageOf(tag)));
  placeTabStop();
  if (nearEnd()) byId("newest").hidden = true;
}

// MARK: Deleting one's own message

// The message of the dialog, and its room.
let erasing = null;

// Returns the button that deletes one's own message.
function eraser(message) {
  const button = element("button", "eraser");
  button.type = "button";
  button.tabIndex = -1;
  button.title = words("erase.delete");
  button.setAttribute("aria-label", words("erase.label", { text: message.text.slice(0, 60) }));
  // Screen readers do not read the button together with a new message.
  button.setAttribute("aria-live", "off");
  button.append(byId("bin").content.cloneNode(true));
  button.addEventListener("click", () => {
    erasing = { message, room: current };
    byId("erasing-text").textContent = message.text;
    byId("erase-problem").hidden = true;
    byId("erasing").showModal();
  });
  return button;
}

// Only one of the buttons is in the tab order, usually that of the newest message. The arrow keys lead to the others.
let tabStop = null;

function placeTabStop() {
  if (!tabStop?.isConnected || tabStop !== document.activeElement) stopAt([...byId("log").querySelectorAll(".eraser")].at(-1));
}

function stopAt(button) {
  if (tabStop) tabStop.tabIndex = -1;
  tabStop = button;
  if (button) button.tabIndex = 0;
}

byId("log").addEventListener("keydown", (event) => {
  const all = [...byId("log").querySelectorAll(".eraser")];
  const index = all.indexOf(event.target);
  const next = { ArrowUp: all[index - 1], ArrowDown: all[index + 1], Home: all[0], End: all.at(-1) }[event.key];
  if (index < 0 || !next) return;
  event.preventDefault();
  stopAt(next);
  next.focus();
});

byId("keep").addEventListener("click", () => byId("erasing").close());
byId("really-erase").addEventListener("click", async () => {
  const { message, room } = erasing;
  byId("really-erase").disabled = true;
  try {
    await call(room, { cmd: "delete", id: message.id });
  } catch (error) {
    // Another tab may have deleted it already.
    if (error.code !== "not_found") {
      byId("erase-problem").textContent = error instanceof Refused ? error.message : words("unreachable");
      byId("erase-problem").hidden = false;
      return;
    }
  } finally {
    byId("really-erase").disabled = false;
  }
  byId("erasing").close();
  if (room === current) vanish(new Set([message.id]));
  // The button that opened the dialog is gone, at the latest now.
  if (document.activeElement === document.body) byId("scroll").focus();
  byId("news").textContent = words("erase.done");
});

// The page keeps the newest messages, but has elements only for a part of them, the window, so that scrolling stays quick.
// The maximum number of messages in memory, rounded to `kept`.
const inMemory = 5000;
// The indexes of the first message in the window, and of the first one after it.
let windowStart = 0;
let windowEnd = 0;

// The number of messages by which scrolling moves the window.
const windowStep = 25;

// Returns the elements of the messages between two indexes.
function shownBetween(start, end) {
  const fragment = document.createDocumentFragment();
  for (let index = start; index < end; index += 1) show(current.messages[index], current.messages[index - 1], fragment);
  return fragment;
}

// Shows the newest messages.
function showLog() {
  showWindow(current.messages.length - kept, current.messages.length);
}

// Shows the messages between two indexes, as far as there are any.
function showWindow(start, end) {
  windowEnd = Math.min(current.messages.length, end);
  windowStart = Math.max(0, start);
  byId("log").replaceChildren(shownBetween(windowStart, windowEnd));
  placeDivider();
  placeTabStop();
  showReceipt();
  byId("empty").hidden = true;
}

function itemAt(index) {
  return byId("log").querySelector(`[data-id="${current.messages[index].id}"]`);
}

// Moves the window when a member scrolls to an edge of it. The first message in view stays where it is.
function moveWindow() {
  if (!current) return;
  const [scroll, log] = [byId("scroll"), byId("log")];
  const below = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight;
  const goesUp = scroll.scrollTop < 2 * scroll.clientHeight && windowStart > 0;
  const goesDown = !goesUp && below < 2 * scroll.clientHeight && windowEnd < current.messages.length;
  // A message that a search has found may leave with the focus.
  const isHeld = log.contains(document.activeElement) && !document.activeElement.matches(".found");
  if (!goesUp && !goesDown || isHeld) return;
  const edge = scroll.getBoundingClientRect().top;
  const anchor = [...log.querySelectorAll("[data-id]")].find((item) => item.getBoundingClientRect().bottom > edge);
  if (!anchor) return;
  const top = anchor.getBoundingClientRect().top;
  // Screen readers must not read the messages again.
  log.setAttribute("aria-live", "off");
  if (goesUp) {
    const start = Math.max(0, windowStart - windowStep);
    log.prepend(shownBetween(start, windowStart));
    windowStart = start;
    windowEnd = Math.min(windowEnd, start + 2 * kept);
    const last = itemAt(windowEnd - 1);
    while (log.lastElementChild !== last) log.lastElementChild.remove();
  } else {
    const end = Math.min(current.messages.length, windowEnd + windowStep);
    log.append(shownBetween(windowEnd, end));
    windowEnd = end;
    windowStart = Math.max(windowStart, end - 2 * kept);
    // The line with the date belongs to the message below it.
    let first = itemAt(windowStart);
    while (first.previousElementSibling?.classList.contains("line")) first = first.previousElementSibling;
    while (log.firstElementChild !== first) log.firstElementChild.remove();
  }
  placeDivider();
  placeTabStop();
  showReceipt();
  scroll.scrollTop += anchor.getBoundingClientRect().top - top;
  setTimeout(() => log.setAttribute("aria-live", "polite"), 1000);
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
  if (current && windowEnd < current.messages.length) return false;
  const scroll = byId("scroll");
  return scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
}

function toEnd() {
  const scroll = byId("scroll");
  if (current && windowEnd < current.messages.length) showLog();
  followsEnd = true;
  scroll.scrollTo({ top: scroll.scrollHeight, behavior: "instant" });
  byId("newest").hidden = true;
}

byId("newest").addEventListener("click", toEnd);

// Whether the newest messages are in view. They stay in view when a keyboard, a rotation or a long text shrinks the list.
let followsEnd = true;
let viewSize = "";

function sizeOfView() {
  return byId("scroll").clientWidth + "x" + byId("scroll").clientHeight;
}

byId("scroll").addEventListener("scroll", () => {
  // The browser also scrolls when it changes the size.
  if (sizeOfView() === viewSize) followsEnd = nearEnd();
  if (nearEnd()) byId("newest").hidden = true;
  else moveWindow();
});
new ResizeObserver(() => {
  viewSize = sizeOfView();
  if (followsEnd) toEnd();
}).observe(byId("scroll"));

// MARK: Compose

const field = byId("text");

function count() {
  const left = limit - encoder.encode(field.value.trim()).length;
  const isNear = left < limit / 4;
  byId("left").textContent = !isNear ? "" : left < 0 ? words("compose.over", { count: -left })
    : words("compose.left", { count: left });
  byId("left").classList.toggle("over", left < 0);
  byId("send").disabled = left < 0 || !field.value.trim();
  field.style.height = "auto";
  field.style.height = field.scrollHeight + 2 + "px";
}

// Puts a text into a room's input, and keeps it for a reload.
function setDraft(text, room) {
  room.draft = text;
  if (rooms.includes(room)) memory.set("draft." + room.udid, text || undefined);
  if (room !== current) return;
  if (field.value !== text) field.value = text;
  count();
}

// Shows why the server has refused the text in the input.
function showRefusal() {
  byId("refusal").textContent = current.refusal ?? "";
  byId("refusal").hidden = !current.refusal;
}

field.addEventListener("input", () => {
  setDraft(field.value, current);
  current.refusal = null;
  showRefusal();
});
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
  rememberItem(item, current);
  setDraft("", current);
  current.refusal = null;
  showRefusal();
  current.unreadFrom = undefined;
  placeDivider();
  sendOutbox(current);
  toEnd();
  field.focus();
});

// The wait in milliseconds before the page sends again while the server cannot be reached. A new connection sends at once.
const outboxWait = 15000;

// Sends a room's unsent messages in their order, until the server cannot be reached. Skips messages that it has refused.
async function sendOutbox(room) {
  clearTimeout(room.outboxTimer);
  if (room.isSending) return;
  room.isSending = true;
  for (;;) {
    const item = room.outbox.find((item) => !item.isRefused && item.id === undefined);
    if (!item || !rooms.includes(room)) break;
    if (await deliver(item, room)) continue;
    room.outboxTimer = setTimeout(sendOutbox, outboxWait, room);
    break;
  }
  room.isSending = false;
}

// Sends a message with an idempotency key, so that a retry creates no second message. Returns false if the server cannot be
// reached: the message may then be sent again without asking.
async function deliver(item, room) {
  item.isRefused = false;
  item.problem = null;
  item.isInProgress = true;
  showOutbox();
  rememberItem(item, room);
  let status;
  try {
    const answer = await call(room, { cmd: "message", text: item.text }, { "Idempotency-Key": item.key });
    item.id = answer.id;
    if (room !== current || answer.id <= room.cursor) drop(item, room);
  } catch (error) {
    status = error.status;
    if (isGone(error)) {
      forget(room, reasons.left);
      return true;
    }
    // An equal message of the same member, from another app, has settled this one.
    if (item.isSettled && !room.outbox.includes(item)) room.outbox.unshift(item);
    delete item.isSettled;
    item.isRefused = isRefusal(error);
    item.problem = error instanceof Refused ? error.message : words("outbox.unreachable");
  }
  item.isInProgress = false;
  // A new session sends a message that was refused without one (401). Other refused messages wait until the input is empty.
  item.needsSession = item.isRefused && status === 401;
  if (item.isRefused && !item.needsSession && !(room === current ? field.value : room.draft).trim()) edit(item, room);
  showOutbox();
  rememberItem(item, room);
  return !item.problem || item.isRefused;
}

// The statuses with which a proxy refuses a message for its content or its size, whenever it is sent.
const refusalsOfProxies = [400, 403, 413, 415, 422];

// Whether sending the same message again makes no sense. The relay's errors have a code, and a proxy's errors do not. At 429 the
// relay accepts the message later.
function isRefusal(error) {
  if (!(error instanceof Refused)) return false;
  return error.code === undefined ? refusalsOfProxies.includes(error.status) : error.status < 500 && error.status !== 429;
}

// Puts a refused message back into the input, in front of what the member has written since.
function edit(item, room) {
  drop(item, room);
  room.refusal = item.problem;
  const draft = room === current ? field.value : room.draft;
  setDraft(item.text + (draft.trim() ? "\n" + draft : ""), room);
  if (room === current) showRefusal();
}

// Removes our own message from the outbox, because it has arrived.
function settle(message) {
  const { outbox } = current;
  const item = outbox.find((item) => item.id === message.id)
    ?? outbox.find((item) => item.isInProgress && item.text.replaceAll("\r", "") === message.text.replaceAll("\r", ""));
  if (!item) return;
  item.isSettled = true;
  drop(item, current);
}

function drop(item, room) {
  room.outbox = room.outbox.filter((other) => other !== item);
  rememberItem(item, room);
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
    if (item.problem) line.append(element("span", "problem", item.problem));
    if (item.problem || !item.isInProgress && item.id === undefined) {
      const isFinal = item.isRefused && !item.needsSession;
      const again = element("button", "quiet", words(isFinal ? "outbox.edit" : "outbox.again"));
      again.type = "button";
      again.addEventListener("click", () => {
        if (isFinal) {
          edit(item, room);
          return field.focus();
        }
        item.isRefused = false;
        sendOutbox(room);
      });
      const away = element("button", "quiet", words("outbox.delete"));
      away.type = "button";
      away.addEventListener("click", () => {
        drop(item, room);
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
  byId("menu").hidePopover();
  showInvitation();
});
byId("empty-invite").addEventListener("click", showInvitation);

function showInvitation() {
  const plain = setting("public-url", "") + "/#code=" + encodeURIComponent(current.code);
  const titled = current.title ? plain + "&title=" + encodeURIComponent(current.title) : plain;
  // The picture has room for some hundred characters.
  const link = qrCode(encoder.encode(titled)) ? titled : plain;
  byId("link").value = link;
  byId("invite-code").textContent = current.code;
  byId("copied").textContent = "\u00A0";
  byId("share").hidden = !navigator.share;
  byId("only-here").hidden = !isOnlyHere(link);
  const code = qrCode(encoder.encode(link));
  byId("qr").hidden = !code;
  if (code) byId("qr").replaceChildren(drawing(code));
  byId("invitation").showModal();
}

// Whether an address leads to this computer, wherever it is opened.
function isOnlyHere(address) {
  return /^(localhost|.*\.localhost|127\.[\d.]+|\[::1\])$/.test(new URL(address).hostname);
}

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
    status.textContent = words("copied", { name });
  } catch {
    status.textContent = words("copySelected");
  }
}

byId("copy").addEventListener("click", () => copyFrom(byId("link"), byId("copied"), words("invite.link")));
byId("share").addEventListener("click", () => {
  navigator.share({ title: current.title ?? "PushChat", url: byId("link").value }).catch(() => {});
});
byId("close").addEventListener("click", () => byId("invitation").close());

// MARK: Start

// Returns a title from a link without control characters.
function plainTitle(title) {
  return plain(title).replace(/[\u0000-\u001f\u007f-\u009f]/g, "").trim().slice(0, 255);
}

// The fragment of the address: an invitation's code, a notification's room, a session, the lines for another app.
function arrive() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  takeSession(fragment.get("token"));
  // A new session sends the messages that the relay has refused without one.
  const isWaiting = (item) => item.needsSession ?? true;
  if (fragment.get("token")) rooms.flatMap((room) => room.outbox).filter(isWaiting).forEach((item) => { item.isRefused = false; });
  const [code, hash] = [fragment.get("code"), fragment.get("room")];
  const udid = memory.get("current", "");
  const room = code !== null
    ? rooms.find((room) => room.code === composed(code))
    : rooms.find((room) => isNamed(room, hash)) ?? current ?? rooms.find((room) => room.udid === udid) ?? rooms[0];
  if (room) open(room);
  else showLogin(code ?? "", "", plainTitle(fragment.get("title") ?? ""));
  showAppLink(fragment);
}

translatePage();
addEventListener("hashchange", () => location.hash && arrive());
arrive();
countAllUnread();
pollUnread();
renew();
