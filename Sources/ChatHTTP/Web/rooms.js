"use strict";
// The rooms that this browser is in, as it remembers them.

const encoder = new TextEncoder();
// Messages that are shown when there is no connection.
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
      // Storage is full or forbidden: the page works, without it.
    }
  },
};

function random(bytes) {
  return Array.from(crypto.getRandomValues(new Uint8Array(bytes)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// In each room the browser is a member of its own. Whoever knows the udid acts as this member, so it is never shown.
let rooms = memory.get("rooms", []).map(recall);
// The room that is shown.
let current = null;

// `draft` and `unread` last as long as the page. `was` is what notifications called the room under its code before.
function recall({ udid, name, code, was }) {
  const { cursor = 0, messages = [], outbox = [] } = memory.get("room." + udid, {});
  outbox.forEach((item) => delete item.isUnderWay);
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

// Rooms that this browser was removed from. It comes back as the member that it was, because a ban is of the member.
const mostRemoved = 50;

function removedAs(code) {
  return memory.get("removed", []).find((room) => room.code === code)?.udid;
}

function rememberRemoved({ udid, code }, isRemoved) {
  const others = memory.get("removed", []).filter((room) => room.code !== code);
  memory.set("removed", [...others, ...(isRemoved ? [{ udid, code }] : [])].slice(-mostRemoved));
}

// The relay says by which code the room is known now.
function rename(room, code) {
  if (typeof code !== "string" || code === room.code) return;
  room.was = hashOf(room);
  room.code = code;
  rememberRooms();
  showRooms();
  explain("This room has a new code: " + code + ". The old one is closed.");
  if (room === current) byId("room").textContent = code;
}

// As the relay compares codes.
function composed(code) {
  return code.trim().normalize("NFC");
}

// What a notification calls the room: FNV-1a, 64 bits, of its code.
function hashOf(room) {
  const hash = encoder.encode(room.code)
    .reduce((hash, byte) => BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n), 0xcbf29ce484222325n);
  return hash.toString(16).padStart(16, "0");
}

function isNamed(room, hash) {
  return hashOf(room) === hash || room.was === hash;
}

// MARK: The list

// Rooms that are not shown have no stream: asks how many messages they have that were not shown.
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

// At the app's icon.
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
