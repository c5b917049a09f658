"use strict";
// The operator's page: the last day, minute by minute. The relay records it, so it includes the night.

const dayLength = 86400000;

async function showDay() {
  let history;
  try {
    ({ history } = await call("GET", "/v1/stats?minutes=1440"));
  } catch (error) {
    // An older relay does not support this call. Other errors are shown above.
    byId("day").hidden = true;
    return;
  }
  byId("day").hidden = !history?.length;
  if (history?.length) drawDay(history, Date.now());
}

setInterval(() => {
  if (!document.hidden && !byId("view").hidden) showDay();
}, 60000);

function drawDay(history, now) {
  const top = (...names) => Math.max(10, ...history.flatMap((minute) => names.map((name) => minute[name])));
  const highest = (name) => Math.max(...history.map((minute) => minute[name]));
  const sumOf = (name) => history.reduce((total, minute) => total + minute[name], 0);
  const pushes = top("sent", "failed");
  setPath("day-sent", dayPath(history, "sent", pushes, now));
  setPath("day-sent-area", dayPath(history, "sent", pushes, now, true));
  setPath("day-failed", dayPath(history, "failed", pushes, now));
  setPath("day-queue", dayPath(history, "queue", top("queue"), now));
  setPath("day-queue-area", dayPath(history, "queue", top("queue"), now, true));
  setPath("day-age", dayPath(history, "oldest_age_seconds", top("oldest_age_seconds"), now));
  byId("day-pushes").textContent = sumOf("sent") + " sent, at most " + highest("sent") + " a minute; " + sumOf("failed")
    + " failed (dashed); " + sumOf("messages") + " messages";
  byId("day-depth").textContent = "at most " + highest("queue") + "; the oldest (dashed) waited up to "
    + seconds(highest("oldest_age_seconds"));
  const hours = [24, 18, 12, 6, 0].map((hours) => element("span", "", hours
    ? new Date(now - hours * 3600000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : "now"));
  for (const place of document.querySelectorAll(".hours")) place.replaceChildren(...hours.map((hour) => hour.cloneNode(true)));
}

function setPath(id, path) {
  byId(id).setAttribute("d", path);
}

// Returns a line from a day ago, on the left, until now. It has gaps for times when the relay did not run.
function dayPath(history, name, top, now, isArea = false) {
  const runs = [];
  let last = -Infinity;
  for (const minute of history) {
    const time = Date.parse(minute.at);
    if (time < now - dayLength) continue;
    if (time - last > 150000) runs.push([]);
    last = time;
    const x = 600 - ((now - time) / dayLength) * 600;
    runs.at(-1).push([x.toFixed(1), (135 - (minute[name] / top) * 125).toFixed(1)]);
  }
  return runs.map((run) => {
    const line = run.map((point) => point.join(" ")).join("L");
    // Draw a single minute as a dash, because a line of one point is invisible.
    return isArea ? "M" + run[0][0] + " 140L" + line + "L" + run.at(-1)[0] + " 140Z" : "M" + line + (run.length === 1 ? "h.5" : "");
  }).join("");
}
