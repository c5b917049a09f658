"use strict";
// The operator's page: rooms, their members and messages, and moderation.

// The number of bans to list: the largest page of the API.
const maxBans = 500;
// Whether the relay supports removing, banning and deleting. An older one does not.
let canModerate = false;
// Refreshes the room that was shown last, if it is still open.
let refreshRoom = () => {};

const roomColumns = ["column.room", "column.members", "column.last", "column.at"];

function roomRow(room) {
  return [
    link(room.code, () => follow(() => showRoom(room.code))), room.members,
    room.last_message ? link(String(room.last_message), () => follow(() => showMessage(room.last_message))) : "",
    clock(room.last_message_at),
  ];
}

async function showRooms(prefix, cursor) {
  const page = await call("GET", "/v1/rooms?" + new URLSearchParams(
    { limit: 50, ...(prefix && { prefix }), ...(cursor && { cursor }) }));
  const box = element("div");
  if (!page.rooms.length) box.append(element("p", "hint", words("noMatch")));
  else box.append(table(roomColumns, page.rooms.map(roomRow)));
  if (page.next) box.append(button(words("more"), () => lead(() => follow(() => showRooms(prefix, page.next)))));
  return [box, true];
}

// Shows a room. `withTexts`: whether to show the texts. An operator who monitors deliveries does not need them.
async function showRoom(code, withTexts = false) {
  const shown = following;
  refreshRoom = () => shown === following && follow(() => showRoom(code, withTexts));
  const room = new URLSearchParams({ room: code, limit: 50 });
  const [members, messages, bans] = await Promise.all([
    call("GET", "/v1/members?" + room), call("GET", "/v1/messages?" + room + "&reach=true" + (withTexts ? "&text=true" : "")),
    canModerate ? call("GET", "/v1/bans?" + new URLSearchParams({ room: code, limit: maxBans })) : { bans: [] },
  ]);
  const again = (texts = withTexts) => lead(() => follow(() => showRoom(code, texts)));
  const box = element("div");
  box.append(element("h3", "", words("room.title", { room: code })), roomButtons(code, withTexts, bans.bans, again));
  const active = bans.bans.filter(isActive);
  if (active.length) box.append(banTable(active, again));
  box.append(table([
    "column.member", "column.token", "column.app", "column.joined", "column.fetchedTo", "column.at", ...(canModerate ? ["column.actions"] : []),
  ],
    members.members.map((member) => [
      member.name, member.token ? member.token.slice(0, 8) + "…" : words("none"), member.app, clock(member.joined_at),
      member.fetched_to ? messageName(member.fetched_to) : "", clock(member.fetched_at),
      ...(canModerate ? [memberActions(member, code, again)] : []),
    ])));
  if (members.next) box.append(element("p", "hint", words("room.moreMembers")));
  box.append(table(["column.message", "column.by", ...(withTexts ? ["column.text"] : []), "column.bytes", "column.reached", "column.fetched",
    "column.at", ...(canModerate ? ["column.actions"] : [])],
    messages.messages.map((message) => [
      link(String(message.id), () => follow(() => showMessage(message.id))), senderCell(message),
      ...(withTexts ? [said(message)] : []),
      message.bytes, message.sent, words("ofAll", { count: message.fetched, all: message.readers }), clock(message.sent_at), ...(canModerate ? [actions([deletion(message, again)])] : []),
    ])));
  if (messages.next) box.append(element("p", "hint", words("room.moreMessages")));
  return [box, true];
}

function senderCell(message) {
  const cell = element("td");
  cell.append(sender(message));
  return cell;
}

function said({ title, text, link }) {
  const cell = element("td", "said", [title, text, link].filter(Boolean).join("\n"));
  cell.dir = "auto";
  return cell;
}

function roomButtons(code, withTexts, bans, again) {
  const box = element("p", "buttons");
  box.append(button(words(withTexts ? "room.hideTexts" : "room.showTexts"), () => again(!withTexts)));
  const closed = bans.find((ban) => ban.closed && isActive(ban));
  if (closed) box.append(button(words("room.open"), () => endBan(closed, again), "open-room"));
  else if (canModerate) {
    box.append(button(words("sure.code"), () => recodeRoom(code), "recode-room"), button(words("room.close"), () => closeRoom(code, again), "close-room"));
  }
  return box;
}

function isActive(ban) {
  return !ban.ended && !(ban.ends_at && new Date(ban.ends_at) < Date.now());
}

// MARK: Moderation

function memberActions({ id, name }, code, again) {
  if (id === undefined) return "";
  const remove = () => ask(
    { title: words("remove.title", { name }), text: words("remove.about"), verb: words("remove.verb") },
    () => call("DELETE", "/v1/members/" + id), () => finish(again));
  const ban = () => ask({
    title: words("ban.title", { name }), text: words("ban.about", { room: code }), verb: words("ban.verb"),
    asksTime: true, asksWhere: true,
  }, (answers) => call("POST", "/v1/bans", { member: id, ...answers }), () => finish(again));
  return actions([[words("remove.verb"), name, "remove-" + id, remove], [words("ban.verb"), name, "ban-" + id, ban]]);
}

function messageName(id) {
  return words("messageName", { id: String(id) });
}

// Returns the verb, object, key and action of a message's delete button.
function deletion({ id, name, text }, then) {
  return [words("delete.verb"), messageName(id), "delete-" + id, () => ask({
    title: words("delete.title", { id: String(id) }), verb: words("delete.verb"),
    text: (text === undefined ? words("delete.by", { name }) : isolated(name) + ": " + isolated(text)) + "\n" + words("delete.about"),
  }, () => call("DELETE", "/v1/messages/" + id), () => finish(then))];
}

function closeRoom(code, again) {
  ask({
    title: words("close.title", { room: code }), text: words("close.about"), verb: words("close.verb"), asksTime: true,
  }, (answers) => call("POST", "/v1/bans", { room: code, closed: true, ...answers }), () => finish(again));
}

// Gives a room a new code, and then shows the room under it.
function recodeRoom(room) {
  let code;
  ask({
    title: words("recode.title", { room }), text: words("recode.about"), verb: words("sure.code"), asksCode: true,
  }, async (answers) => { ({ code } = await call("POST", "/v1/rooms:recode", { room, ...answers })); },
  () => finish(() => lead(() => follow(() => showRoom(code)))));
}

function endBan(ban, then) {
  const asked = ban.closed
    ? { title: words("open.title", { room: ban.room }), text: words("open.about"), verb: words("open.verb") }
    : { title: words("end.title", { name: nameOf(ban) }), text: words("end.about"), verb: words("end.verb") };
  ask(asked, () => call("DELETE", "/v1/bans/" + ban.id), () => finish(then));
}

function nameOf(ban) {
  return ban.name ?? words("end.number", { id: String(ban.id) });
}

// Shows the result of an action in its list and in the record.
async function finish(then) {
  await Promise.all([then(), showModeration()]);
}

function banTable(bans, then) {
  return table(["column.banned", "column.room", "column.reason", "column.since", "column.until", "column.actions"], bans.map((ban) => [
    ban.closed ? words("ban.closed") : [ban.name, ban.address].filter(Boolean).map(isolated).join(", "), ban.room ?? words("ban.everywhere"), ban.reason, clock(ban.created_at),
    ban.ended ? words("ended") : endOf(ban.ends_at, words("forEver")),
    isActive(ban)
      ? actions([[words(ban.closed ? "open.verb" : "end.verb"), ban.closed ? ban.room : words("end.object", { name: nameOf(ban) }), "end-" + ban.id, () => endBan(ban, then)]])
      : "",
  ]));
}

function endedInList() {
  byId("bans").focus();
  return refreshRoom();
}

// Lists the bans and the record. Hides the section if the relay does not support them.
async function showModeration() {
  let bans, record;
  try {
    [bans, record] = await Promise.all([call("GET", "/v1/bans?limit=" + maxBans), call("GET", "/v1/moderation?limit=50")]);
  } catch (error) {
    showSection("order", "bans", error);
    canModerate &&= !byId("order").hidden;
    return;
  }
  canModerate = true;
  byId("order").hidden = false;
  const none = () => element("p", "hint", words("empty"));
  const rest = (page) => (page.next ? [element("p", "hint", words("older"))] : []);
  update(byId("bans"), bans.bans.length ? banTable(bans.bans, endedInList) : none(), ...rest(bans));
  update(byId("record"), record.moderation.length
    ? table([
      "column.time", "column.action", "column.room", "column.subject", "column.by", "column.from",
    ], record.moderation.map((entry) => [
      clock(entry.at), named("action." + entry.action, entry.action), entry.room, String(entry.subject ?? ""), entry.actor, entry.from,
    ])) : none(), ...rest(record));
}

// MARK: Asking

// The question of the open dialog.
let question = null;

// Asks for confirmation of an action that cannot be undone. `act` gets the answers as members of a ban. If it fails, the dialog
// stays open and shows the error. `then` shows the result.
function ask({ title, text, verb, no = words("sure.cancel"), asksTime = false, asksWhere = false, asksCode = false, asksReason = asksTime, isHarmless = false }, act, then) {
  const opener = document.activeElement;
  byId("sure-form").reset();
  byId("sure-title").textContent = title;
  byId("sure-text").textContent = text;
  byId("sure-yes").textContent = verb;
  byId("sure-no").textContent = no;
  byId("sure-yes").className = isHarmless ? "" : "danger";
  byId("sure-time").hidden = !asksTime;
  byId("sure-why").hidden = !asksReason;
  byId("sure-where").hidden = byId("sure-address").hidden = !asksWhere;
  byId("sure-new").hidden = !asksCode;
  byId("sure-problem").hidden = true;
  question = { asksTime, asksWhere, asksCode, asksReason, act, then, opener };
  byId("sure").showModal();
  byId(asksTime ? "sure-for" : asksReason ? "sure-reason" : asksCode ? "sure-code" : "sure-no").focus();
}

function answers({ asksTime, asksWhere, asksCode, asksReason }) {
  const [time, reason] = [Number(byId("sure-for").value), byId("sure-reason").value.trim()];
  const code = byId("sure-code").value.trim();
  return {
    ...(asksTime && time && { ends_at: later(time) }), ...(asksReason && reason && { reason }),
    ...(asksWhere && byId("sure-everywhere").checked && { everywhere: true }),
    ...(asksWhere && byId("sure-with-address").checked && { address: true }),
    ...(asksCode && code && { code }),
  };
}

byId("sure-no").addEventListener("click", () => byId("sure").close());
byId("sure").addEventListener("close", () => {
  // The list may have been drawn again since, without the opener.
  if (!question.opener.isConnected) focusKey(document, question.opener.dataset.key);
});
byId("sure-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const asked = question;
  if (asked.isInProgress) return;
  asked.isInProgress = true;
  byId("sure-problem").hidden = true;
  try {
    await asked.act(answers(asked));
  } catch (error) {
    byId("sure-problem").textContent = error.message;
    byId("sure-problem").hidden = question !== asked;
    return;
  } finally {
    asked.isInProgress = false;
  }
  if (question === asked) byId("sure").close();
  attempt(asked.then);
});
