"use strict";
// The operator's page: charts with axes. A pointer or the arrow keys read their values.

// The points that each chart shows, with x from 0 to 600 and their texts, by the id of its figure. Whether they are being read.
const charts = new Map();

// The next larger of 10, 20, 50, 100 and so on, so that the axis has round numbers.
function roundTop(highest) {
  let top = 10;
  for (let step = 0; top < highest; step += 1) top *= step % 3 === 1 ? 2.5 : 2;
  return top;
}

// The next larger of some times, in seconds.
function roundTime(highest) {
  return [10, 60, 120, 600, 1200, 3600, 4 * 3600, 12 * 3600, 48 * 3600].find((time) => time >= highest) ?? Math.ceil(highest / 345600) * 345600;
}

function hourOf(time) {
  return new Date(time).toLocaleTimeString(chosenLocale(), { timeStyle: "short" });
}

// Draws a chart's axes and remembers its values. `tops`: the texts of the left axis and, optionally, of the right one, from the
// top. `times`: the texts below. `points`: the values to read, oldest first.
function drawAxes(id, { left, right = [], times, points }) {
  const figure = byId(id);
  const axis = (place, texts) => place.replaceChildren(...texts.map((text) => element("span", "", formatted(text))));
  const [first, second] = figure.querySelectorAll(".axis");
  axis(first, left);
  axis(second, right);
  axis(figure.querySelector(".hours"), times);
  figure.querySelector(".no-data").hidden = points.length > 0;
  const reader = figure.querySelector(".reader");
  reader.disabled = points.length === 0;
  const known = charts.get(id);
  const isAtEnd = !known || Number(reader.value) >= known.points.length - 1;
  reader.max = Math.max(0, points.length - 1);
  if (isAtEnd) reader.value = reader.max;
  charts.set(id, { points, isRead: known?.isRead ?? false });
  readChart(figure);
}

// Shows the values at the reader's position, while a pointer or the focus is on the chart.
function readChart(figure) {
  const { points, isRead } = charts.get(figure.id);
  const reader = figure.querySelector(".reader");
  const point = points[Number(reader.value)];
  const marker = figure.querySelector(".marker");
  const place = figure.querySelector(".reading");
  marker.hidden = !isRead || !point;
  place.textContent = isRead && point ? point.text : "\u00A0";
  if (!point) return;
  marker.style.setProperty("inset-inline-start", (point.x / 6).toFixed(2) + "%");
  reader.setAttribute("aria-valuetext", point.text);
}

function setRead(figure, isRead) {
  const chart = charts.get(figure.id);
  if (!chart) return;
  chart.isRead = isRead;
  readChart(figure);
}

for (const figure of document.querySelectorAll("figure.chart")) {
  const reader = figure.querySelector(".reader");
  reader.addEventListener("input", () => setRead(figure, true));
  reader.addEventListener("focus", () => setRead(figure, true));
  reader.addEventListener("blur", () => setRead(figure, false));
  figure.addEventListener("pointerleave", () => setRead(figure, document.activeElement === reader));
  reader.addEventListener("pointermove", (event) => {
    const points = charts.get(figure.id)?.points ?? [];
    const box = reader.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * 600;
    let nearest = 0;
    points.forEach((point, index) => {
      if (Math.abs(point.x - x) < Math.abs(points[nearest].x - x)) nearest = index;
    });
    reader.value = nearest;
    setRead(figure, true);
  });
}
