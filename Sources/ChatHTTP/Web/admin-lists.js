"use strict";
// The operator's page: tabs, and lists that can be browsed and filtered.

const tabs = [...document.querySelectorAll("#tabs a")].map((link) => link.hash.slice(1));
// Fetches the list of a tab. The log and the overview are refreshed with the metrics.
const tabLists = {
  rooms: () => rooms.show(), devices: () => Promise.all([devices.show(), showUsage()]), notifications: () => sent.show(),
  queue: () => showQueue(), tokens: () => Promise.all([showTokens(), showWebhooks()]), moderation: () => showModeration(),
};

// The metrics on which a tab's lists depend. The page reads a list again when they change, because each call adds a line to the log.
const tabMetrics = {
  rooms: (stats) => [stats.rooms, stats.members, stats.messages],
  devices: (stats) => stats.devices,
  notifications: (stats) => [stats.notifications, settledOf(stats)],
  queue: (stats) => [stats.apps.map((app) => [app.app, app.due, app.delayed, app.written, app.paused_at]), settledOf(stats)],
};
const tabRefreshes = {
  rooms: () => rooms.refresh(), devices: () => devices.refresh(), notifications: () => sent.refresh(), queue: () => refreshQueue(),
};
let refreshedFor = "";

function settledOf(stats) {
  return stats.apps.flatMap((app) => app.outcomes.map((outcome) => outcome.total));
}

async function refreshTab() {
  const current = currentTab();
  const metrics = JSON.stringify([current, tabMetrics[current]?.(latestStats)]);
  if (metrics === refreshedFor || byId("sure").open) return;
  refreshedFor = metrics;
  await tabRefreshes[current]?.();
}

let shownTab = null;

function currentTab() {
  const name = location.hash.slice(1);
  return tabs.includes(name) ? name : "overview";
}

function showTab() {
  const current = currentTab();
  // A record belongs to the tab in which it was opened.
  if (shownTab !== null && shownTab !== current) closeResult();
  shownTab = current;
  for (const section of document.querySelectorAll("[data-tab]")) section.classList.toggle("away", section.dataset.tab !== current);
  for (const link of document.querySelectorAll("#tabs a")) {
    if (link.hash.slice(1) === current) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView?.({ block: "nearest", inline: "nearest" });
    } else link.removeAttribute("aria-current");
  }
  if (!byId("inside").hidden) attempt(async () => { await tabLists[current]?.(); });
}

addEventListener("hashchange", showTab);
showTab();

// The largest number of rows that are read again without a request of the operator.
const maxRefreshed = 200;

// The pages of a list. `fetchPage` gets a cursor, and returns [rows, next]. `draw` gets all rows that were fetched, the next
// cursor, and whether the list starts again.
function paging(fetchPage, draw) {
  let [shown, next, round] = [[], null, 0];
  async function more() {
    const [mine, cursor] = [round, next];
    const [rows, following] = await fetchPage(cursor);
    // The filter has changed in the meantime, or the button was pressed twice.
    if (mine !== round || cursor !== next) return;
    [shown, next] = [[...shown, ...rows], following];
    draw(shown, next, false);
  }
  async function show() {
    const mine = (round += 1);
    const [rows, following] = await fetchPage(null);
    // The filter has changed in the meantime.
    if (mine !== round) return;
    [shown, next] = [rows, following];
    draw(shown, next, true);
  }
  // Reads the rows again that are shown, unless the operator has gone through many.
  async function refresh() {
    const [mine, count] = [round, shown.length];
    if (count > maxRefreshed) return;
    let [rows, following] = await fetchPage(null);
    while (following && rows.length < count) {
      const [others, after] = await fetchPage(following);
      [rows, following] = [[...rows, ...others], after];
    }
    if (mine !== round || shown.length !== count) return;
    [shown, next] = [rows, following];
    draw(shown, next, false);
  }
  return { show, more, refresh };
}

// A list with a filter and pages.
function browsing(place, form, head, fetchPage, empty) {
  const pages = paging(fetchPage, (rows, next) => {
    const made = [rows.length ? table(head, rows) : element("p", "hint", empty())];
    if (next) made.push(button(words("more"), () => attempt(pages.more, form), place + "-more"));
    update(byId(place), ...made);
  });
  if (form) onFilter(form, pages.show);
  return pages;
}

// Filters while the operator types, and at once after a choice.
function onFilter(form, show) {
  let timer;
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => attempt(show, form), 250);
  });
  const now = () => {
    clearTimeout(timer);
    attempt(show, form);
  };
  form.addEventListener("change", (event) => {
    if (event.target.matches("select")) now();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    now();
  });
}

// Returns the parameters of a call, without empty ones.
function query(values) {
  return new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined));
}

// Offers the apps of the relay in each filter.
function offerApps(names) {
  for (const choice of document.querySelectorAll(".app-choice")) {
    const known = [...choice.options].slice(1).map((option) => option.value);
    if (known.join("\n") === names.join("\n")) continue;
    const chosen = choice.value;
    choice.replaceChildren(choice.options[0], ...names.map((name) => {
      const option = element("option", "", name);
      option.value = name;
      return option;
    }));
    choice.value = names.includes(chosen) ? chosen : "";
  }
}

const rooms = browsing("room-list", byId("filter-rooms"), roomColumns, async (cursor) => {
  const prefix = byId("rooms-prefix").value;
  const page = await call("GET", "/v1/rooms?" + query({ limit: 50, prefix, cursor }));
  return [page.rooms.map(roomRow), page.next];
}, () => (byId("rooms-prefix").value ? words("rooms.noMatch") : words("rooms.none")));

const devices = browsing("device-list", byId("filter-devices"), [
  "column.device", "column.app", "column.state", "column.user", "column.tags", "column.version", "column.model", "column.seen",
], async (cursor) => {
  const page = await call("GET", "/v1/devices?" + query({
    limit: 50, cursor, app: byId("devices-app").value, active: byId("devices-active").value,
    user_reference: byId("devices-user").value.trim(), tag: byId("devices-tag").value.trim(),
  }));
  return [page.devices.map((device) => [
    link(device.token.slice(0, 8) + "…", () => follow(() => showDevices("token", device.token))), device.app,
    element("td", device.active ? "good" : "bad", words(device.active ? "device.active" : "device.inactive")), device.user_reference, device.tags.join(", "),
    device.app_version, device.device_model, clock(device.seen_at),
  ]), page.next];
}, () => words("devices.none"));

const sent = browsing("notification-list", null, [
  "column.notification", "column.to", "column.text", "column.state", "column.devices", "column.result", "column.created",
], async (cursor) => {
  const page = await call("GET", "/v1/notifications?" + query({ limit: 25, cursor }));
  return [page.notifications.map((notification) => [
    link(String(notification.id), () => follow(() => showNotification(notification.id))), toText(notification.to),
    alertText(notification.payload), state(notification.state), notification.devices,
    countsOf(notification),
    clock(notification.created_at),
  ]), page.next];
}, () => words("notifications.none"));

const tokens = browsing("token-list", null, [
  "column.name", "column.scopes", "column.room", "column.to", "column.expires", "column.used", "column.from", "column.actions",
], async (cursor) => {
  const page = await call("GET", "/v1/tokens?" + query({ limit: 200, cursor }));
  return [page.tokens.map(tokenRow), page.next];
}, () => words("noMatch"));

function toText(to) {
  if (to.all) return words("to.all");
  const [kind, value] = Object.entries(to)[0];
  const all = kind === "tokens" ? value.map((token) => token.slice(0, 8) + "…") : [value].flat();
  return words("to." + kind, { names: listed(all.map(isolated)) });
}

// Returns the first names of a list, and the number of the others.
function listed(all) {
  const names = all.slice(0, 3).join(", ");
  return all.length > 3 ? words("andMore", { names, count: all.length - 3 }) : names;
}

function alertText(payload) {
  const alert = payload?.aps?.alert;
  return typeof alert === "string" ? alert : [alert?.title, alert?.body].filter(Boolean).join(": ");
}
