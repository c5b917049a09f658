"use strict";
// The operator's page: the usage of the apps by day. Each chart has its numbers beside it, in a table.

const usageDays = 30;
const usageKinds = { app_version: "column.version", os_version: "column.system", device_model: "column.model" };
// The number of lines of a table. Rarer values are combined as others.
const usageLines = 8;
// The parts that the user opened or closed. They stay that way when the charts are drawn again.
const openUsage = new Map();

async function showUsage() {
  let usage;
  try {
    ({ usage } = await call("GET", "/v1/stats?days=" + usageDays));
  } catch (error) {
    return showSection("usage", "usage-apps", error);
  }
  // An older relay has no usage metrics.
  byId("usage").hidden = usage === undefined;
  if (usage === undefined) return;
  if (!usage) return update(byId("usage-apps"), element("p", "hint", words("usage.off")));
  update(byId("usage-apps"), ...(usage.apps.length
    ? usage.apps.map((app) => usageOf(app, usage.days)) : [element("p", "hint", words("usage.none"))]));
}

function usageOf(app, days) {
  const box = element("div");
  box.append(element("h3", "", app.app), usageTable("column.devices", [[words("usage.all"), app.devices]], days));
  for (const [kind, name] of Object.entries(usageKinds)) box.append(usageKind(app, kind, name, days));
  return box;
}

function usageKind(app, kind, name, days) {
  const { values, others, unknown } = app[kind];
  const add = (one, other) => one.map((count, day) => count + other[day]);
  const rows = [
    ...values.slice(0, usageLines).map(({ value, devices }) => [value, devices]),
    [words("usage.others"), values.slice(usageLines).map(({ devices }) => devices).reduce(add, others)], [words("usage.unknown"), unknown],
  ];
  const part = element("details");
  const key = app.app + " " + kind;
  part.open = openUsage.get(key) ?? kind === "app_version";
  part.addEventListener("toggle", () => openUsage.set(key, part.open));
  const today = values.filter(({ devices }) => devices.at(-1) > 0).length;
  part.append(element("summary", "", words("usage.today", { name: words(name), count: today })),
    usageTable(name, rows.filter(([, counts]) => counts.some(Boolean)), days));
  return part;
}

function usageTable(name, rows, days) {
  const top = Math.max(1, ...rows.flatMap(([, counts]) => counts));
  return table([
    name, ["usage.days", { count: days.length }], "usage.now", "usage.yesterday", "usage.week", "usage.most",
  ], rows.map(([value, counts]) => {
    const cell = element("td", "plot");
    cell.append(usagePlot(counts, days, top));
    return [element("td", "used", value), cell, counts.at(-1), counts.at(-2) ?? 0, counts.at(-8) ?? 0, Math.max(...counts)];
  }));
}

// Returns a bar chart with one bar per day, the newest on the right, scaled to the table's highest number.
function usagePlot(counts, days, top) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 " + counts.length * 4 + " 24");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "bars");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", words("usage.read", { first: days[0], last: days.at(-1), counts: counts.join(", ") }));
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", counts.map((count, day) => {
    const height = count === 0 ? 0 : Math.max(1, (count / top) * 22);
    return "M" + (day * 4 + 0.5) + " 24v-" + height.toFixed(1) + "h3V24Z";
  }).join(""));
  svg.append(path);
  return svg;
}
