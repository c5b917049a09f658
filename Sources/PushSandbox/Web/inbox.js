"use strict";
// The inbox: the list of notifications, newest first, and the details of the chosen one.

const page = 100;
// The time between polls in milliseconds. A poll costs one small response.
const interval = 700;
const limits = { http2: 4096, binary: 2048, webpush: 3993, broadcast: 5120, fcm: 65536 };

// MARK: The list

let since = 0;
let generation = 0;
const answers = new Set(["accepted"]);

// Returns the answer for a person. The reason of a refusal is a name of the protocol.
function answerOf({ answer }) {
  return answer === "accepted" ? words("accepted") : answer;
}
// The groups of equal notifications in the list, newest first.
let groups = [];
// The maximum number of groups. The newest are kept.
const shownLimit = 500;
// A notification joins a group only within this time in milliseconds, and while the group is one of the newest.
const groupTime = 5 * 60000;
const groupsToJoin = 20;
// The maximum number of notifications in a group.
const groupLimit = 5000;
// The maximum number of receivers that the details list.
const receiversShown = 50;

function query() {
  const parts = new URLSearchParams();
  const token = byId("filter-token").value.replace(/[<>\s]/g, "");
  // An incomplete token, and one that is too long, do not filter the list.
  if (/^([0-9a-fA-F]{2}){1,100}$/.test(token)) parts.set("token", token);
  for (const name of ["text", "protocol", "answer"]) {
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
  const answer = await callJSON("GET", "/notifications?" + String(parts).replaceAll("+", "%20"));
  if (current !== generation) return false;
  // The inbox was emptied, or the sandbox was restarted.
  if (answer.next < since) {
    restart();
    return true;
  }
  const isFirst = since === 0;
  since = Math.max(since, answer.next);
  answer.notifications.forEach((notification) => add(notification, !isFirst));
  if (byId("follow").checked && groups.length && groups[0] !== chosen?.group && !isNarrow()) choose(groups[0], groups[0].first);
  else if (chosen && answer.notifications.length) showScreen().catch(showError);
  return answer.notifications.length === page;
}

function restart() {
  generation += 1;
  since = 0;
  groups = [];
  byId("list").replaceChildren();
  byId("empty").hidden = false;
}

function timeText(text) {
  return new Date(text).toLocaleTimeString(chosenLocale(), { timeStyle: "medium" });
}

function add(notification, isFresh) {
  if (!answers.has(notification.answer)) {
    answers.add(notification.answer);
    byId("filter-answer").append(new Option(answerOf(notification), notification.answer));
  }
  const key = groupOf(notification);
  const time = Date.parse(notification.received_at);
  const known = key === null ? undefined : groups.slice(0, groupsToJoin).find((group) => group.key === key
    && !group.tokens.has(notification.token) && group.tokens.size < groupLimit && time - group.time < groupTime);
  byId("empty").hidden = true;
  if (known) {
    known.tokens.add(notification.token);
    known.members.push({ id: notification.id, token: notification.token });
    known.time = time;
    showReceiver(known);
    if (known === chosen?.group) showReceivers();
    return;
  }
  const group = groupFor(notification, key, time);
  groups.unshift(group);
  byId("list").prepend(itemOf(group, isFresh));
  if (groups.length > shownLimit) groups.pop().item.remove();
}

function groupFor(notification, key, time) {
  const { token, id } = notification;
  return { key, time, first: notification, tokens: new Set([token]), members: [{ id, token }] };
}

function itemOf(group, isFresh) {
  const { first } = group;
  const item = group.item = element("li", isFresh ? "fresh" : "");
  item.dataset.id = first.id;
  const banner = element("button", "banner");
  banner.type = "button";
  const top = element("span", "top");
  const receivers = { webpush: words("inbox.browser"), fcm: "Android" };
  top.append(element("span", "", receivers[first.protocol] ?? first.topic ?? words("inbox.noTopic")),
    element("time", "", timeText(first.received_at)));
  banner.append(top);
  const content = contentOf(first);
  if (content.title !== undefined) banner.append(element("span", "heading", content.title));
  if (content.subtitle !== undefined) banner.append(element("span", "", content.subtitle));
  const body = content.body ?? (content.data || undefined);
  banner.append(body !== undefined ? element("span", "body", body)
    : element("span", "body hint", words(first.delivery ? "inbox.encrypted" : "inbox.nothing")));
  const marks = [];
  if (content.badge !== undefined) marks.push(words("inbox.badge", { badge: plain(content.badge) }));
  if (content.sound !== undefined) marks.push(words("inbox.sound", { sound: plain(content.sound) }));
  if (content.aps["content-available"]) marks.push(words("inbox.wakes"));
  if (content.aps.event !== undefined) marks.push("Live Activity: " + plain(content.aps.event));
  const last = element("span", "marks", marks.map((mark) => mark + " · ").join(""));
  last.append(element("span", "receiver"), " · ", element("span", first.answer === "accepted" ? "good" : "bad", answerOf(first)));
  banner.append(last);
  banner.addEventListener("click", () => {
    byId("follow").checked = false;
    latest(first).then((latest) => choose(group, latest, true)).catch(showError);
  });
  item.append(banner);
  showReceiver(group);
  return item;
}

function showReceiver({ item, first, members }) {
  const place = item.querySelector(".receiver");
  if (members.length > 1) place.textContent = words("inbox.devices", { count: members.length });
  else if (first.channel) place.textContent = words("inbox.channel", { name: first.channel });
  else place.textContent = words("inbox.token", { token: first.token.slice(0, 8) });
  place.classList.toggle("many", members.length > 1);
}

// Fetches a message for a real browser or a phone again, because its delivery state may have changed.
async function latest(notification) {
  return notification.delivery || notification.phones ? fetched(notification.id) : notification;
}

async function fetched(id) {
  const page = await callJSON("GET", `/notifications?limit=1&since=${id - 1}`);
  const found = page.notifications.find((each) => each.id === id);
  if (!found) throw new Error(words("inbox.gone"));
  return found;
}

// MARK: The details

// The chosen notification and its group.
let chosen = null;

function isNarrow() {
  return matchMedia("(max-width: 44rem)").matches;
}

// Shows a notification. On a phone, the details are a sheet above the list.
function choose(group, notification, byHand = false) {
  chosen = { group, notification };
  document.querySelectorAll(".banner[aria-current]").forEach((other) => other.removeAttribute("aria-current"));
  group.item.querySelector(".banner").setAttribute("aria-current", "true");
  byId("nothing").hidden = true;
  byId("chosen").hidden = false;
  byId("removed").textContent = "";
  byId("detail-answer").textContent = answerOf(notification);
  byId("detail-answer").className = notification.answer === "accepted" ? "good" : "bad";
  byId("preview").replaceChildren(preview(notification));
  showReceivers();
  showScreen().catch(showError);
  byId("facts").replaceChildren(...facts([
    [words("detail.number"), notification.id],
    [words("answer"), answerOf(notification), notification.answer === "accepted" ? "good" : "bad"],
    [words("detail.reason"), notification.message],
    [words("detail.warning"), notification.warning],
    [words("detail.delivery"), notification.delivery && [notification.delivery, notification.delivery_code].join(" ").trim()],
    [words("detail.phones"), notification.phones?.map((phone) => [phone.installation, phone.delivery, phone.receiver].filter(Boolean).join(" ")).join(", ")],
    [words("detail.arrived"), notification.received_at],
    [words("protocol"), protocolName(notification.protocol)
      + (notification.command === undefined ? "" : ", " + words("detail.command", { number: String(notification.command) }))],
    [words("detail.connection"), notification.connection],
    [words("detail.stream"), notification.stream],
    [words("detail.authentication"), notification.authentication],
    [words("token"), notification.token],
    [words("detail.channel"), notification.channel],
    ["Live Activity", notification.activity],
    [words("detail.topic"), notification.topic],
    [words("detail.recipient"), notification.target],
    [words("detail.project"), notification.project],
    [words("detail.name"), notification.name],
    ["apns-id", notification.apns_id],
    [words("detail.identifier"), notification.identifier],
  ]));
  const headers = Object.entries(notification.headers);
  byId("headers").replaceChildren(...facts(headers.length ? headers : [["", words("detail.none")]]));
  showPayload(notification);
  byId("removal").hidden = ["webpush", "broadcast", "fcm"].includes(notification.protocol);
  if (byHand && isNarrow()) openSheet();
}

function showPayload(notification) {
  const bytes = notification.payload !== undefined && notification.payload !== null
    ? new TextEncoder().encode(notification.payload)
    : Uint8Array.from(atob(notification.payload_base64 ?? ""), (character) => character.charCodeAt(0));
  const limit = notification.push_type === "voip" && notification.protocol === "http2" ? 5120 : limits[notification.protocol];
  const document_ = parsed(notification);
  // Web Push carries any text. The page's worker reads it.
  const isText = notification.protocol === "webpush" && !notification.delivery && Boolean(notification.payload);
  const kind = notification.delivery ? "detail.isEncrypted" : isText ? "detail.isText" : "detail.notJSON";
  const problem = document_ !== null ? "" : words(kind);
  byId("size").textContent = words("detail.size", { count: String(bytes.length), limit: String(limit) }) + problem;
  byId("size").className = bytes.length > limit || document_ === null && kind === "detail.notJSON" ? "bad" : "hint";
  byId("pretty").textContent = document_ === null ? notification.payload ?? words("detail.notText") : JSON.stringify(document_, null, 2);
  byId("bytes").textContent = dump(bytes);
}

// The group whose devices are listed.
let listed = null;

// Lists the devices that got an equal notification. Each is a button that shows its own one.
function showReceivers() {
  const { group, notification } = chosen;
  byId("receivers-part").hidden = group.members.length < 2;
  byId("receivers-title").textContent = words("inbox.devices", { count: group.members.length });
  const list = byId("receivers");
  if (listed !== group) list.replaceChildren();
  listed = group;
  for (const { id, token } of group.members.slice(list.childElementCount, receiversShown)) {
    const button = element("button", "quiet", token.slice(0, 8) + "…");
    button.type = "button";
    button.title = token;
    button.dataset.id = id;
    button.addEventListener("click", () => {
      byId("follow").checked = false;
      fetched(id).then((found) => choose(group, found)).catch(showError);
    });
    const item = element("li");
    item.append(button);
    list.append(item);
  }
  for (const button of list.querySelectorAll("button")) {
    if (Number(button.dataset.id) === notification.id) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
  const rest = group.members.length - receiversShown;
  byId("receivers-more").hidden = rest <= 0;
  byId("receivers-more").textContent = words("detail.more", { count: Math.max(0, rest) });
}

// MARK: The screen of the device

// The maximum number of notifications on a screen that the details list.
const onScreenShown = 20;

// Shows what the device of the chosen notification has on its screen now, and what replaced what.
async function showScreen() {
  const { notification } = chosen;
  const { token, id } = notification;
  const isKnown = token && !notification.channel && !notification.delivery;
  const { shown, past, rings } = isKnown ? await callJSON("GET", "/screen?token=" + token) : { shown: [], past: [], rings: 0 };
  if (chosen.notification !== notification) return;
  byId("screen-part").hidden = shown.length + past.length === 0;
  const ends = past.flatMap((end) => {
    if (end.notification === id) return [end.replaced_by ? ["screen.replacedBy", end.replaced_by] : ["screen.removedBy", end.removed_by]];
    if (end.replaced_by === id) return [["screen.replaced", end.notification]];
    return end.removed_by === id ? [["screen.removed", end.notification]] : [];
  });
  draw("screen-ends", ends, ([key, other]) => {
    const text = words(key, { number: String(other) });
    return actionButton(text, text, () => openNumber(other));
  });
  byId("screen-ends").hidden = ends.length === 0;
  const rest = Math.max(0, shown.length - onScreenShown);
  const lines = shown.slice(-onScreenShown).reverse();
  draw("screen", lines.map((line) => ({ ...line, isChosen: line.notification === id })), (line) => {
    const item = element("li");
    const text = [line.title, line.body].filter(Boolean).map(isolated).join(": ");
    item.append(element(line.isChosen ? "strong" : "span", "", text),
      actionButton(String(line.notification), `${words("detail.title")} ${line.notification}`, () => openNumber(line.notification)));
    return item;
  });
  byId("screen-rings").textContent = [
    shown.length === 0 && words("screen.nothing"), rest && words("detail.more", { count: rest }), words("screen.rings", { count: rings }),
  ].filter(Boolean).join(" ");
}

// Shows the notification with this number, even if it is not in the list.
async function openNumber(id) {
  byId("follow").checked = false;
  const found = await fetched(id);
  const group = groups.find(({ members }) => members.some((member) => member.id === id)) ?? groupFor(found);
  if (!group.item) itemOf(group);
  choose(group, found);
}

function dump(bytes) {
  const lines = [];
  for (let start = 0; start < bytes.length; start += 16) {
    const part = Array.from(bytes.slice(start, start + 16));
    const digits = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const text = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(start.toString(16).padStart(4, "0") + "  " + digits + "  " + text);
  }
  return lines.join("\n") || words("detail.empty");
}

// MARK: The sheet on phones

// The parts of the page behind the sheet.
const behind = [document.querySelector("body > header"), byId("inbox"), byId("tools")];

// Opens the sheet as a step in the history, so that the phone's own Back also closes it.
function openSheet() {
  if (document.body.classList.contains("sheet")) return;
  history.pushState({ sheet: true }, "");
  document.body.classList.add("sheet");
  behind.forEach((part) => { part.inert = true; });
  byId("detail").scrollTop = 0;
  byId("back").focus();
}

function closeSheet() {
  if (!document.body.classList.contains("sheet")) return;
  document.body.classList.remove("sheet");
  behind.forEach((part) => { part.inert = false; });
  (document.querySelector(".banner[aria-current]") ?? byId("clear")).focus();
}

function goBack() {
  if (history.state?.sheet) history.back();
  else closeSheet();
}

byId("back").addEventListener("click", goBack);
addEventListener("popstate", closeSheet);
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && document.body.classList.contains("sheet")) goBack();
});
matchMedia("(max-width: 44rem)").addEventListener("change", (event) => {
  if (!event.matches && document.body.classList.contains("sheet")) goBack();
});

// MARK: Keys

// The arrow keys move through the list, and from it to the details and back.
byId("list").addEventListener("keydown", (event) => {
  const item = event.target.closest("li");
  const next = { ArrowDown: item?.nextElementSibling, ArrowUp: item?.previousElementSibling }[event.key];
  if (next) {
    event.preventDefault();
    next.querySelector("button").focus();
  }
  if (event.key === "ArrowRight" && !byId("chosen").hidden && !isNarrow()) byId("detail").focus();
});
byId("detail").addEventListener("keydown", (event) => {
  if (event.key === "ArrowLeft" && event.target === byId("detail")) document.querySelector(".banner[aria-current]")?.focus();
});

// MARK: Buttons

byId("filter").addEventListener("input", restart);
byId("filter").addEventListener("submit", (event) => event.preventDefault());
byId("follow").addEventListener("change", () => {
  if (byId("follow").checked && groups.length) choose(groups[0], groups[0].first);
});
onClick("clear", async () => {
  await callJSON("DELETE", "/notifications");
  restart();
});
onClick("remove", async () => {
  await callJSON("DELETE", "/devices/" + chosen.notification.token);
  byId("removed").textContent = words("detail.removed");
  await devices();
});

// On a screen without room for three columns, these buttons select what is shown.
for (const button of byId("views").children) {
  button.addEventListener("click", () => {
    document.body.dataset.view = button.dataset.view;
    for (const each of byId("views").children) each.setAttribute("aria-pressed", String(each === button));
    scrollTo(0, 0);
  });
}

// MARK: Updates

async function showStats() {
  const { http2, binary, webpush, broadcasts, fcm, channels, feedback, proxy, inbox, refusals } = await callJSON("GET", "/stats");
  const parts = [http2, binary, webpush, broadcasts, fcm];
  const accepted = parts.reduce((sum, part) => sum + (part.answers.accepted ?? 0), 0);
  const total = parts.flatMap((part) => Object.values(part.answers)).reduce((sum, count) => sum + count, 0);
  const lost = refused([http2, binary, channels, feedback, proxy]);
  byId("figures").textContent = [
    words("figures.notifications", { count: total, accepted }),
    words("figures.connections", { http2: http2.connections.open, binary: binary.connections.open }),
    inbox.dropped && words("figures.dropped", { count: inbox.dropped }),
    lost && words("figures.refused", { count: lost }),
  ].filter(Boolean).join(" · ");
  showRefusals(refusals, lost);
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
      showError(new Error(words("unreachable")));
    }
    await new Promise((done) => setTimeout(done, interval));
  }
}

translatePage();
byId("filter-protocol").append(...["http2", "binary", "webpush", "broadcast", "fcm"].map((name) => new Option(protocolName(name), name)));
byId("fault-protocol").append(...protocols.map((name) => new Option(protocolName(name), name)));
showActions();
run();
