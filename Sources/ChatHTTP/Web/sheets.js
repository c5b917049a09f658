"use strict";
// The sheets of the menu: the members of the room, and the search in its messages.

// Runs an action of a sheet, and shows its error there.
async function attemptInSheet(button, status, action) {
  button.disabled = true;
  status.textContent = "\u00A0";
  try {
    await action();
  } catch (error) {
    status.textContent = error instanceof Refused ? error.message : words("unreachable");
  } finally {
    button.disabled = false;
  }
}

// MARK: Members

let peopleRoom = null;
let peopleCursor = null;

byId("show-people").addEventListener("click", () => {
  byId("menu").hidePopover();
  peopleRoom = current;
  peopleCursor = null;
  byId("people-list").replaceChildren();
  byId("programs").hidden = byId("receivers").hidden = byId("people-more").hidden = true;
  byId("people").showModal();
  listPeople();
});

function listPeople() {
  return attemptInSheet(byId("people-more"), byId("people-status"), async () => {
    const room = peopleRoom;
    const page = await call(room, { cmd: "members", limit: 100, ...(peopleCursor === null ? {} : { cursor: peopleCursor }) });
    if (room !== peopleRoom) return;
    byId("people-list").append(...page.members.map((person) => personLine(person, person.own ? words("people.you") : null)));
    if (page.programs.length) {
      byId("programs").hidden = false;
      byId("program-list").replaceChildren(...page.programs.map((program) =>
        personLine(program, words(program.operator ? "people.operator" : "messages.program"), true)));
    }
    if (page.webhooks.length) {
      byId("receivers").hidden = false;
      byId("receiver-list").replaceChildren(...page.webhooks.map(receiverLine));
    }
    peopleCursor = page.next;
    byId("people-more").hidden = page.next === null;
  });
}

function personLine({ name, last_seen: seen }, mark, isProgram) {
  const line = element("li");
  const text = element("span", "person");
  text.append(element("bdi", "", plain(name)));
  if (mark) text.append(" ", element("span", "mark", mark));
  line.append(faceOf(plain(name), isProgram), text, element("span", "hint", agoOf(new Date(seen))));
  return line;
}

// A program that gets the room's messages. A bot also answers them.
function receiverLine({ origin, bot }) {
  const line = element("li");
  const text = element("span", "person");
  text.append(element("bdi", "", bot ? plain(bot) : origin));
  if (bot) text.append(" ", element("span", "mark", words("people.bot")), " ", element("span", "hint", origin));
  line.append(text);
  return line;
}

// The relay rounds the times to hours.
function agoOf(date) {
  const hours = Math.floor((Date.now() - date) / 3600000);
  if (hours < 2) return words("people.recently");
  const format = new Intl.RelativeTimeFormat(chosenLocale(), { numeric: "auto" });
  return hours < 24 ? format.format(-hours, "hour") : format.format(-Math.floor(hours / 24), "day");
}

byId("people-more").addEventListener("click", listPeople);
byId("people-close").addEventListener("click", () => byId("people").close());

// MARK: Search

// The number of results to look for at a time.
const resultsPerPage = 20;

let query = null;

byId("show-search").addEventListener("click", () => {
  byId("menu").hidePopover();
  if (query?.room !== current) {
    query = null;
    byId("search-text").value = "";
    byId("found").replaceChildren();
    byId("search-status").textContent = "\u00A0";
    byId("search-more").hidden = true;
  }
  byId("search").showModal();
  byId("search-text").select();
});

byId("search-form").addEventListener("submit", (event) => {
  event.preventDefault();
  query = { room: current, text: byId("search-text").value.trim(), cursor: null, count: 0 };
  byId("found").replaceChildren();
  byId("search-more").hidden = true;
  if (query.text) findMore();
});

// One call examines a limited number of messages, so it may find fewer than there are, or none.
function findMore() {
  const mine = query;
  return attemptInSheet(byId("search-go"), byId("search-status"), async () => {
    let missing = resultsPerPage;
    try {
      do {
        const page = await call(mine.room, {
          cmd: "search", text: mine.text, limit: missing, ...(mine.cursor === null ? {} : { cursor: mine.cursor }) });
        if (mine !== query) return;
        byId("found").append(...page.messages.map(resultLine));
        missing -= page.messages.length;
        mine.count += page.messages.length;
        mine.cursor = page.next;
      } while (missing > 0 && mine.cursor !== null);
    } finally {
      // In a long history, the limit on searches may end the loop. The person can then continue from there.
      if (mine === query) byId("search-more").hidden = mine.cursor === null;
    }
    byId("search-status").textContent = mine.count
      ? words("search.found", { count: mine.count }) + (mine.cursor === null ? "" : " …") : words("search.nothing");
  });
}

function resultLine(message) {
  const button = element("button", "result");
  button.type = "button";
  const head = element("span", "head");
  const time = element("time", "", dateOf.format(new Date(message.sent_at)));
  time.dateTime = message.sent_at;
  const name = element("span");
  name.append(element("bdi", "", message.own ? words("messages.you") : plain(message.name)));
  if (message.program) name.append(" ", programMark());
  head.append(name, " ", time);
  const text = element("span", "excerpt");
  text.dir = "auto";
  text.append(...marked([message.title, message.text].filter(Boolean).join("\n")));
  button.append(head, text);
  button.addEventListener("click", () => showFound(message.id));
  const line = element("li");
  line.append(button);
  return line;
}

// Returns the part of a text around the words that were searched for, with a mark.
function marked(text) {
  const start = text.toLocaleLowerCase().indexOf(query.text.toLocaleLowerCase());
  if (start < 0) return [text.slice(0, 200)];
  const [from, end] = [Math.max(0, start - 60), start + query.text.length];
  return [(from > 0 ? "…" : "") + text.slice(from, start), element("mark", "", text.slice(start, end)), text.slice(end, end + 160)];
}

// Shows a message in the chat. Loads the messages since then, if there are not too many.
async function showFound(id) {
  const room = query.room;
  await attemptInSheet(byId("search-go"), byId("search-status"), async () => {
    const isOld = () => !room.messages.some((message) => message.id === id);
    if (isOld() && !await loadSince(room, id)) {
      byId("search-status").textContent = words("search.tooOld");
      return;
    }
    if (room !== current || isOld()) return;
    const index = room.messages.findIndex((message) => message.id === id);
    byId("search").close();
    followsEnd = false;
    if (index < windowStart || index >= windowEnd) showWindow(index - kept / 2, index + kept / 2);
    const item = itemAt(index);
    item.tabIndex = -1;
    item.focus({ preventScroll: true });
    item.scrollIntoView({ block: "center", behavior: "instant" });
    byId("log").querySelectorAll(".found").forEach((other) => other.classList.remove("found"));
    item.classList.add("found");
  });
}

// Loads a message and those between it and the messages on the page. Returns false if there are too many.
async function loadSince(room, id) {
  const older = [];
  const end = room.messages[0]?.id ?? Infinity;
  for (let since = id - 1; ;) {
    const page = await call(room, { cmd: "messages", peek: 1, limit: 500, since });
    const before = page.messages.filter((message) => message.id < end);
    older.push(...before);
    if (before.length < 500) break;
    if (room.messages.length + older.length > inMemory) return false;
    since = page.next;
  }
  if (room !== current || room.messages[0]?.id < older[0]?.id) return true;
  room.messages.unshift(...older);
  if (windowEnd > 0) [windowStart, windowEnd] = [windowStart + older.length, windowEnd + older.length];
  return true;
}

byId("search-more").addEventListener("click", findMore);
byId("search-close").addEventListener("click", () => byId("search").close());
