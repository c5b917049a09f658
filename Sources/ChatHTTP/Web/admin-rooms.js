"use strict";
// The operator's page: rooms, their members and messages, and moderation.

// The number of bans to list: the largest page of the API.
const maxBans = 500;
// Whether the relay supports removing, banning and deleting. An older one does not.
let canModerate = false;
// Refreshes the room that was shown last, if it is still open.
let refreshRoom = () => {};

async function showRooms(prefix, cursor) {
  const page = await call("GET", "/v1/rooms?" + new URLSearchParams(
    { limit: 50, ...(prefix && { prefix }), ...(cursor && { cursor }) }));
  const box = element("div");
  if (!page.rooms.length) box.append(element("p", "hint", "There is none."));
  else {
    box.append(table(["Room", "Members", "Last message", "At"], page.rooms.map((room) => [
      link(room.code, () => follow(() => showRoom(room.code))), room.members,
      room.last_message ? link(String(room.last_message), () => follow(() => showMessage(room.last_message))) : "",
      clock(room.last_message_at),
    ])));
  }
  if (page.next) box.append(button("More", () => lead(() => follow(() => showRooms(prefix, page.next)))));
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
  box.append(element("h3", "", "Room " + code), roomButtons(code, withTexts, bans.bans, again));
  const active = bans.bans.filter(isActive);
  if (active.length) box.append(banTable(active, again));
  box.append(table(["Member", "Token", "App", "Joined", "Fetched up to", "At", ...(canModerate ? ["Actions"] : [])],
    members.members.map((member) => [
      member.name, member.token ? member.token.slice(0, 8) + "…" : "none", member.app, clock(member.joined_at),
      member.fetched_to ? "message " + member.fetched_to : "", clock(member.fetched_at),
      ...(canModerate ? [memberActions(member, code, again)] : []),
    ])));
  if (members.next) box.append(element("p", "hint", "There are more members."));
  box.append(table(["Message", "By", ...(withTexts ? ["Text"] : []), "Bytes", "Reached", "Fetched", "At",
    ...(canModerate ? ["Actions"] : [])],
    messages.messages.map((message) => [
      link(String(message.id), () => follow(() => showMessage(message.id))), message.name + (message.program ? " (program)" : ""),
      ...(withTexts ? [said(message)] : []),
      message.bytes, message.sent, message.fetched + " of " + message.readers, clock(message.sent_at), ...(canModerate ? [actions([deletion(message, again)])] : []),
    ])));
  if (messages.next) box.append(element("p", "hint", "There are older messages."));
  return [box, true];
}

function said({ title, text, link }) {
  const cell = element("td", "said", [title, text, link].filter(Boolean).join("\n"));
  cell.dir = "auto";
  return cell;
}

function roomButtons(code, withTexts, bans, again) {
  const box = element("p", "buttons");
  box.append(button(withTexts ? "Hide texts" : "Show texts", () => again(!withTexts)));
  const closed = bans.find((ban) => ban.closed && isActive(ban));
  if (closed) box.append(button("Open the room", () => endBan(closed, again), "open-room"));
  else if (canModerate) {
    box.append(button("New code", () => recodeRoom(code), "recode-room"), button("Close the room", () => closeRoom(code, again), "close-room"));
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
    { title: "Remove " + name + "?", text: "The member may join again.", verb: "Remove" },
    () => call("DELETE", "/v1/members/" + id), () => finish(again));
  const ban = () => ask({
    title: "Ban " + name + "?", text: "The member is removed from " + code + " and cannot join again until the ban ends.", verb: "Ban",
    asksTime: true, asksWhere: true,
  }, (answers) => call("POST", "/v1/bans", { member: id, ...answers }), () => finish(again));
  return actions([["Remove", name, "remove-" + id, remove], ["Ban", name, "ban-" + id, ban]]);
}

// Returns the verb, object, key and action of a message's delete button.
function deletion({ id, name, text }, then) {
  return ["Delete", "message " + id, "delete-" + id, () => ask({
    title: "Delete message " + id + "?", verb: "Delete",
    text: (text === undefined ? "By " + name + "." : name + ": " + text) + "\nIt disappears from the history and from open pages.",
  }, () => call("DELETE", "/v1/messages/" + id), () => finish(then))];
}

function closeRoom(code, again) {
  ask({
    title: "Close " + code + "?", text: "All members are removed. No one can join until the room is open again.", verb: "Close", asksTime: true,
  }, (answers) => call("POST", "/v1/bans", { room: code, closed: true, ...answers }), () => finish(again));
}

// Gives a room a new code, and then shows the room under it.
function recodeRoom(room) {
  let code;
  ask({
    title: "Give " + room + " a new code?", verb: "New code", asksCode: true,
    text: "All members except banned ones move to it, with all messages. Tell it to everyone else who should join. The old code is closed.",
  }, async (answers) => { ({ code } = await call("POST", "/v1/rooms:recode", { room, ...answers })); },
  () => finish(() => lead(() => follow(() => showRoom(code)))));
}

function endBan(ban, then) {
  const [title, text, verb] = ban.closed
    ? ["Open " + ban.room + "?", "Everyone who knows the code may join again.", "Open"]
    : ["End the ban of " + (ban.name ?? "number " + ban.id) + "?", "They may join again.", "End"];
  ask({ title, text, verb }, () => call("DELETE", "/v1/bans/" + ban.id), () => finish(then));
}

// Shows the result of an action in its list and in the record.
async function finish(then) {
  await Promise.all([then(), showModeration()]);
}

function banTable(bans, then) {
  return table(["Banned", "Room", "Reason", "Since", "Until", "Actions"], bans.map((ban) => [
    ban.closed ? "the room is closed" : [ban.name, ban.address].filter(Boolean).join(", "), ban.room ?? "every room", ban.reason, clock(ban.created_at),
    ban.ended ? "ended" : endOf(ban.ends_at, "for ever"),
    isActive(ban)
      ? actions([[ban.closed ? "Open" : "End", ban.closed ? ban.room : "the ban of " + (ban.name ?? ban.id), "end-" + ban.id, () => endBan(ban, then)]])
      : "",
  ]));
}

function endedInList() {
  byId("bans").focus();
  return refreshRoom();
}

const actionNames = {
  remove: "removed", ban: "banned", unban: "ban ended", delete: "message deleted", close: "room closed", open: "room opened",
  recode: "new code",
};

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
  const none = () => element("p", "hint", "None.");
  const rest = (page) => (page.next ? [element("p", "hint", "There are older ones.")] : []);
  update(byId("bans"), bans.bans.length ? banTable(bans.bans, endedInList) : none(), ...rest(bans));
  update(byId("record"), record.moderation.length
    ? table(["Time", "Action", "Room", "Subject", "By", "From"], record.moderation.map((entry) => [
      clock(entry.at), actionNames[entry.action] ?? entry.action, entry.room, String(entry.subject ?? ""), entry.actor, entry.from,
    ])) : none(), ...rest(record));
}

// MARK: Asking

// The question of the open dialog.
let question = null;

// Asks for confirmation of an action that cannot be undone. `act` gets the answers as members of a ban. If it fails, the dialog
// stays open and shows the error. `then` shows the result.
function ask({ title, text, verb, asksTime = false, asksWhere = false, asksCode = false }, act, then) {
  const opener = document.activeElement;
  byId("sure-form").reset();
  byId("sure-title").textContent = title;
  byId("sure-text").textContent = text;
  byId("sure-yes").textContent = verb;
  byId("sure-time").hidden = byId("sure-why").hidden = !asksTime;
  byId("sure-where").hidden = byId("sure-address").hidden = !asksWhere;
  byId("sure-new").hidden = !asksCode;
  byId("sure-problem").hidden = true;
  question = { asksTime, asksWhere, asksCode, act, then, opener };
  byId("sure").showModal();
  byId(asksTime ? "sure-for" : asksCode ? "sure-code" : "sure-no").focus();
}

function answers({ asksTime, asksWhere, asksCode }) {
  const [time, reason] = [Number(byId("sure-for").value), byId("sure-reason").value.trim()];
  const code = byId("sure-code").value.trim();
  return {
    ...(asksTime && time && { ends_at: later(time) }), ...(asksTime && reason && { reason }),
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
