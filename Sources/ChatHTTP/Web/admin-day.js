"use strict";
// The operator's page: the last day, minute by minute. The relay records it, so it includes the night.

const dayLength = 86400000;
let dayHistory = [];

async function showDay() {
  let history;
  try {
    ({ history } = await call("GET", "/v1/stats?minutes=1440"));
  } catch (error) {
    // An older relay does not support this call. Other errors are shown above.
  }
  for (const id of ["day-pushes-chart", "day-queue-chart"]) byId(id).hidden = history === undefined;
  if (history !== undefined) drawDay(history, Date.now());
  dayHistory = history ?? [];
}

setInterval(() => {
  if (!document.hidden && !byId("inside").hidden) showDay();
}, 60000);

function drawDay(history, now) {
  const top = (...names) => roundTop(Math.max(0, ...history.flatMap((minute) => names.map((name) => minute[name]))));
  const highest = (name) => Math.max(0, ...history.map((minute) => minute[name]));
  const sumOf = (name) => history.reduce((total, minute) => total + minute[name], 0);
  const [pushes, queue, age] = [top("sent", "failed"), top("queue"), roundTime(highest("oldest_age_seconds"))];
  setPath("day-sent", dayPath(history, "sent", pushes, now));
  setPath("day-sent-area", dayPath(history, "sent", pushes, now, true));
  setPath("day-failed", dayPath(history, "failed", pushes, now));
  setPath("day-queue", dayPath(history, "queue", queue, now));
  setPath("day-queue-area", dayPath(history, "queue", queue, now, true));
  setPath("day-age", dayPath(history, "oldest_age_seconds", age, now));
  byId("day-pushes").textContent = history.length
    ? words("chart.pushesSum", { sent: sumOf("sent"), most: highest("sent"), failed: sumOf("failed"), messages: sumOf("messages") })
    : words("chart.empty");
  byId("day-depth").textContent = history.length
    ? words("chart.queueSum", { most: highest("queue"), time: seconds(highest("oldest_age_seconds")) }) : words("chart.empty");
  const times = [24, 18, 12, 6, 0].map((hours) => (hours ? hourOf(now - hours * 3600000) : words("chart.now")));
  const points = (text) => history.filter((minute) => Date.parse(minute.at) >= now - dayLength).map((minute) => ({
    x: 600 - ((now - Date.parse(minute.at)) / dayLength) * 600, text: words("chart.at", { time: hourOf(minute.at), text: text(minute) }),
  }));
  drawAxes("day-pushes-chart", {
    left: [pushes, pushes / 2, 0], times,
    points: points((minute) => words("chart.pushesAt", minute)),
  });
  drawAxes("day-queue-chart", {
    left: [queue, queue / 2, 0], right: [seconds(age), seconds(age / 2), 0], times,
    points: points((minute) => words("chart.queueAt", { count: minute.queue, time: seconds(minute.oldest_age_seconds) })),
  });
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
    return isArea ? "M" + run[0][0] + " 135L" + line + "L" + run.at(-1)[0] + " 135Z" : "M" + line + (run.length === 1 ? "h.5" : "");
  }).join("");
}
