"use strict";
// The rooms that this browser has joined, as stored in it.

const encoder = new TextEncoder();
// The number of messages per room to store for use without a connection.
const kept = 200;

const memory = {
  get(name, otherwise) {
    try {
      return JSON.parse(localStorage.getItem(storageKey(name))) ?? otherwise;
    } catch {
      return otherwise;
    }
  },
  set(name, value) {
    try {
      if (value === undefined) localStorage.removeItem(storageKey(name));
      else localStorage.setItem(storageKey(name), JSON.stringify(value));
    } catch {
      // Storage is full or forbidden. The page works without it.
    }
  },
  // Whether the browser keeps what the page stores.
  works() {
    const proof = random(8);
    this.set("works", proof);
    const isKept = this.get("works") === proof;
    this.set("works", undefined);
    return isKept;
  },
};

function random(bytes) {
  return Array.from(crypto.getRandomValues(new Uint8Array(bytes)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The browser is a separate member in each room. Anyone who knows the udid can act as this member, so it is never shown.
let rooms = memory.get("rooms", []).map(recall);
// The room on the screen.
let current = null;

// Restores a room. `unread` lasts as long as the page. `was` is the room's hash in notifications under its old code.
function recall({ udid, name, code, title, was }) {
  const { cursor = 0, messages = [], outbox: old } = memory.get("room." + udid, {});
  if (old) {
    // Version 0.4 stored the outbox with the messages. Another tab may still do so.
    const newer = memory.get("outbox." + udid, []);
    memory.set("outbox." + udid, [...old.filter(({ key }) => !newer.some((item) => item.key === key)), ...newer]);
    memory.set("room." + udid, { cursor, messages });
  }
  const outbox = storedOutbox(udid, cursor);
  outbox.forEach((item) => delete item.isInProgress);
  return { udid, name, code, title, was, cursor, messages, outbox, draft: memory.get("draft." + udid, ""), unread: 0 };
}

// Returns the stored outbox without the messages that have arrived.
function storedOutbox(udid, cursor) {
  return memory.get("outbox." + udid, []).filter((item) => item.id === undefined || item.id > cursor);
}

function remember(room) {
  if (!rooms.includes(room)) return;
  const { udid, cursor, messages } = room;
  memory.set("room." + udid, { cursor, messages: messages.slice(-kept) });
}

// Stores an item of a room's outbox, or removes it from the store if it is no longer in the outbox. Leaves the other items
// alone, because another tab may have changed them.
function rememberItem(item, room) {
  if (!rooms.includes(room)) return;
  const items = memory.get("outbox." + room.udid, []);
  const index = items.findIndex(({ key }) => key === item.key);
  const { isInProgress, ...stored } = item;
  items.splice(index < 0 ? items.length : index, 1, ...(room.outbox.includes(item) ? [stored] : []));
  memory.set("outbox." + room.udid, items);
}

function rememberRooms() {
  memory.set("rooms", rooms.map(({ udid, name, code, title, was }) => ({ udid, name, code, title, was })));
}

// The number of rooms to remember from which this browser was removed. It rejoins as the same member, because a ban applies to
// the member.
const maxRemoved = 50;

function removedAs(code) {
  return memory.get("removed", []).find((room) => room.code === code)?.udid;
}

function rememberRemoved({ udid, code }, isRemoved) {
  const others = memory.get("removed", []).filter((room) => room.code !== code);
  memory.set("removed", [...others, ...(isRemoved ? [{ udid, code }] : [])].slice(-maxRemoved));
}

// Applies a room's current code from the relay.
function rename(room, code) {
  if (typeof code !== "string" || code === room.code) return;
  room.was = hashOf(room);
  room.code = code;
  rememberRooms();
  showRooms();
  explain(words("rooms.newCode", { code }));
  if (room === current) showTitle();
}

// Applies a room's title from the relay. Undefined if it has none.
function retitle(room, title) {
  if (title === room.title) return;
  room.title = title;
  rememberRooms();
  showRooms();
  if (room === current) showTitle();
}

// Applies a room's code and title from a page of messages.
function learn(room, { code, title }) {
  rename(room, code);
  retitle(room, title);
}

// Returns the name that people see: the title, or the secret code of a room without one.
function nameOf(room) {
  return plain(room.title ?? room.code);
}

// Normalizes a code as the relay does before it compares codes.
function composed(code) {
  return code.trim().normalize("NFC");
}

// Returns the name of the room in notifications: the 64-bit FNV-1a hash of its code.
function hashOf(room) {
  const hash = encoder.encode(room.code)
    .reduce((hash, byte) => BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n), 0xcbf29ce484222325n);
  return hash.toString(16).padStart(16, "0");
}

function isNamed(room, hash) {
  return hashOf(room) === hash || room.was === hash;
}

// MARK: The list

// Counts the unread messages of a room that is not on the screen. Such rooms have no stream, because a stream marks messages as
// read. `peek` leaves them unread.
async function countUnread(room) {
  if (room === current) return;
  const since = room.cursor > 0 ? { since: room.cursor } : {};
  try {
    const page = await call(room, { cmd: "messages", limit: 100, peek: 1, ...since });
    learn(room, page);
    if (room === current) return;
    const unread = page.messages.filter((message) => !message.own).length;
    if (unread > room.unread) byId("news").textContent = words("rooms.news", { count: unread, room: nameOf(room) });
    room.unread = unread;
    room.latest = page.messages.at(-1) ?? room.latest;
    showRooms();
  } catch (error) {
    if (isGone(error)) forget(room);
  }
}

function countAllUnread() {
  rooms.forEach(countUnread);
}

// The time in milliseconds after which the page counts one more room, while it is visible and while it is hidden.
const pollWaits = { visible: 4000, hidden: 30000 };
let pollTimer = null;
let pollIndex = 0;

// Counts one room after the other. The relay's work does not grow with the number of rooms.
function pollUnread() {
  clearTimeout(pollTimer);
  pollTimer = setTimeout(async () => {
    const others = rooms.filter((room) => room !== current);
    pollIndex += 1;
    if (others.length && navigator.onLine) await countUnread(others[pollIndex % others.length]);
    pollUnread();
  }, document.hidden ? pollWaits.hidden : pollWaits.visible);
}

function showRooms() {
  const list = byId("room-list");
  const focused = list.contains(document.activeElement) ? document.activeElement.dataset.udid : null;
  list.replaceChildren(...rooms.map((room) => {
    const button = element("button", "quiet");
    const title = element("span", "about-room");
    title.append(element("bdi", "code", nameOf(room)), lastLine(room));
    button.append(faceOf(nameOf(room)), title);
    button.type = "button";
    button.dataset.udid = room.udid;
    if (room === current) button.setAttribute("aria-current", "true");
    if (room.unread > 0) {
      const badge = element("span", "unread-count");
      const count = element("span", "", room.unread > 99 ? "99+" : room.unread);
      count.setAttribute("aria-hidden", "true");
      badge.append(count, element("span", "only-spoken", words("rooms.unread", { count: room.unread })));
      button.append(badge);
    }
    button.addEventListener("click", () => {
      closeList();
      open(room);
    });
    const item = element("li");
    item.append(button);
    return item;
  }));
  if (focused) list.querySelector(`[data-udid="${focused}"]`)?.focus();

  const total = unreadInAll();
  const elsewhere = total - (current?.unread ?? 0);
  byId("elsewhere").hidden = elsewhere === 0;
  byId("elsewhere").textContent = elsewhere > 99 ? "99+" : elsewhere;
  document.title = (total ? "(" + total + ") " : "") + (current ? nameOf(current) + " – " : "") + "PushChat";
  showBadge();
}

// Returns the start of a room's last message.
function lastLine(room) {
  const last = room.messages.at(-1);
  const { own, name, title, text, program, markdown } = (last?.id ?? 0) > (room.latest?.id ?? 0) ? last : room.latest ?? {};
  const line = element("bdi", "last-line");
  if (text !== undefined) {
    if (program) line.append(programMark(), " ");
    line.append(words("rooms.last", { name: own ? words("messages.you") : name, text: (title || (markdown === true ? markdownText(text) : text)).slice(0, 80) }));
  }
  return line;
}

// Closes the list of rooms on narrow screens. On wide ones it is a column.
function closeList() {
  if (byId("rooms").matches(":popover-open")) byId("rooms").hidePopover();
}

// Returns the mark of a program beside its name, in a frame that no name has.
function programMark() {
  const mark = element("span", "mark");
  const sign = element("span", "", "⚙");
  sign.setAttribute("aria-hidden", "true");
  mark.append(sign, element("span", "only-spoken", words("messages.program")));
  return mark;
}

// Returns the first letter of a name on the name's color. A program has a sign on a square, which no member's face is.
function faceOf(name, isProgram) {
  const [letter] = new Intl.Segmenter().segment(name.trim().toUpperCase());
  const face = element("span", "face " + toneOf(name) + (isProgram ? " is-program" : ""), isProgram ? "⚙" : letter?.segment ?? "");
  face.setAttribute("aria-hidden", "true");
  return face;
}

// Returns the class of a name's color.
function toneOf(name) {
  return "tone-" + encoder.encode(name).reduce((sum, byte) => (sum * 31 + byte) % 8, 7);
}

function unreadInAll() {
  return rooms.reduce((sum, room) => sum + room.unread, 0);
}

// Shows the number of unread messages on the app's icon.
function showBadge() {
  const total = unreadInAll();
  (total ? navigator.setAppBadge?.(total) : navigator.clearAppBadge?.())?.catch(() => {});
}

// Another tab has changed a room's outbox. Both tabs send an item with the same idempotency key, so it arrives once.
addEventListener("storage", (event) => {
  const room = rooms.find((room) => event.key === storageKey("outbox." + room.udid));
  if (!room) return;
  const known = new Map(room.outbox.map((item) => [item.key, item]));
  room.outbox = storedOutbox(room.udid, room.cursor).map((item) => Object.assign(known.get(item.key) ?? {}, item));
  if (room === current) showOutbox();
});

// Another tab has joined or left a room.
addEventListener("storage", (event) => {
  if (event.key !== storageKey("rooms")) return;
  rooms = memory.get("rooms", []).map((room) => {
    const known = rooms.find((known) => known.udid === room.udid);
    return known ? Object.assign(known, { code: room.code, title: room.title, was: room.was }) : recall(room);
  });
  if (current) showTitle();
  if (current && !rooms.includes(current)) vacate();
  showRooms();
});
