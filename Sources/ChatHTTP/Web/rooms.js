"use strict";
// The rooms that this browser has joined, as stored in it.

const encoder = new TextEncoder();
// The number of messages per room to store for use without a connection.
const kept = 200;

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
      if (value === undefined) localStorage.removeItem("pushchat." + name);
      else localStorage.setItem("pushchat." + name, JSON.stringify(value));
    } catch {
      // Storage is full or forbidden. The page works without it.
    }
  },
};

function random(bytes) {
  return Array.from(crypto.getRandomValues(new Uint8Array(bytes)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The browser is a separate member in each room. Anyone who knows the udid can act as this member, so it is never shown.
let rooms = memory.get("rooms", []).map(recall);
// The room on the screen.
let current = null;

// Restores a room. `draft` and `unread` last as long as the page. `was` is the room's hash in notifications under its old code.
function recall({ udid, name, code, was }) {
  const { cursor = 0, messages = [], outbox = [] } = memory.get("room." + udid, {});
  outbox.forEach((item) => delete item.isInProgress);
  return { udid, name, code, was, cursor, messages, outbox, draft: "", unread: 0 };
}

function remember(room) {
  if (!rooms.includes(room)) return;
  const { udid, cursor, messages, outbox } = room;
  memory.set("room." + udid, { cursor, messages: messages.slice(-kept), outbox });
}

function rememberRooms() {
  memory.set("rooms", rooms.map(({ udid, name, code, was }) => ({ udid, name, code, was })));
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
  explain("This room has a new code: " + code + ". The old one is closed.");
  if (room === current) byId("room").textContent = code;
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

// Counts the unread messages of a room that is not on the screen, because such rooms have no stream.
async function countUnread(room) {
  if (room === current) return;
  const since = room.cursor > 0 ? { since: room.cursor } : {};
  try {
    const page = await call(room, { cmd: "messages", limit: 100, ...since });
    rename(room, page.code);
    if (room === current) return;
    const unread = page.messages.filter((message) => !message.own).length;
    if (unread > room.unread) byId("news").textContent = unread + " unread in " + room.code;
    room.unread = unread;
    showRooms();
  } catch (error) {
    if (isGone(error)) forget(room);
  }
}

function countAllUnread() {
  rooms.forEach(countUnread);
}

function showRooms() {
  const list = byId("room-list");
  const focused = list.contains(document.activeElement) ? document.activeElement.dataset.udid : null;
  list.replaceChildren(...rooms.map((room) => {
    const button = element("button", "quiet", room.code);
    button.type = "button";
    button.dataset.udid = room.udid;
    if (room === current) button.setAttribute("aria-current", "true");
    if (room.unread > 0) {
      button.append(element("span", "unread-count", room.unread > 99 ? "99+" : room.unread));
      button.lastChild.append(element("span", "only-spoken", " unread"));
    }
    button.addEventListener("click", () => open(room));
    const item = element("li");
    item.append(button);
    return item;
  }));
  list.hidden = rooms.length < 2;
  list.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  if (focused) list.querySelector(`[data-udid="${focused}"]`)?.focus();

  const total = unreadInAll();
  document.title = (total ? "(" + total + ") " : "") + (current ? current.code + " – " : "") + "PushChat";
  showBadge();
}

function unreadInAll() {
  return rooms.reduce((sum, room) => sum + room.unread, 0);
}

// Shows the number of unread messages on the app's icon.
function showBadge() {
  const total = unreadInAll();
  (total ? navigator.setAppBadge?.(total) : navigator.clearAppBadge?.())?.catch(() => {});
}

// Another tab has joined or left a room.
addEventListener("storage", (event) => {
  if (event.key !== "pushchat.rooms") return;
  rooms = memory.get("rooms", []).map((room) => {
    const known = rooms.find((known) => known.udid === room.udid);
    return known ? Object.assign(known, { code: room.code, was: room.was }) : recall(room);
  });
  if (current) byId("room").textContent = current.code;
  if (current && !rooms.includes(current)) vacate();
  showRooms();
});
