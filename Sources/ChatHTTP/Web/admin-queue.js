"use strict";
// The operator's page: the queue by hand. Each change first asks with the number of pushes.

// The number of calls in which one count or change may go on, for about two million pushes.
const maxCalls = 40;
// The number of calls up to which a list of pushes is read again without a request of the operator.
const cheapCalls = 3;
let callsOfList = 0;
const chosen = new Set();
let pushes = [];
const pushPages = paging(fetchPushes, (rows, next, isFirst) => {
  pushes = rows;
  if (isFirst) chosen.clear();
  for (const id of chosen) if (!rows.some((push) => push.id === id)) chosen.delete(id);
  drawPushes(next);
});

function pushFilter() {
  const age = Number(byId("pushes-age").value);
  const time = age && new Date(Date.now() - Math.abs(age) * 1000).toISOString();
  return Object.fromEntries(Object.entries({
    app: byId("pushes-app").value, state: byId("pushes-state").value, reason: byId("pushes-reason").value.trim(),
    queued_before: age > 0 ? time : "", queued_after: age < 0 ? time : "",
  }).filter(([, value]) => value));
}

function refreshQueue() {
  return Promise.all([showPauses(), callsOfList <= cheapCalls && pushPages.refresh()]);
}

async function showQueue() {
  await Promise.all([showPauses(), pushPages.show()]);
}

// MARK: Apps

async function showPauses() {
  const { apps } = await call("GET", "/v1/queue");
  offerApps(apps.map((app) => app.app));
  update(byId("pauses"), apps.length ? table([
    "column.app", "column.due", "column.delayed", "column.progress", "column.oldest", "column.state", "",
  ], apps.map((app) => [
    app.app, app.due, app.delayed, app.written, app.oldest_queued_at ? seconds(app.oldest_age_seconds) : "",
    pauseState(app),
    app.gateway === null && !app.paused_at ? "" : actions([app.paused_at
      ? [words("queue.resume"), app.app, "resume-" + app.app, () => changePause("resume", app)]
      : [words("queue.pause"), app.app, "pause-" + app.app, () => changePause("pause", app)]]),
  ])) : element("p", "hint", words("queue.noApp")));
}

function pauseState(app) {
  if (app.paused_at) {
    return element("td", "warn", words("queue.paused", pauseOf(app)) + reasonAfter(app.pause_reason));
  }
  return element("td", app.waits_for ? "warn" : "good", app.waits_for ? named("waits." + app.waits_for, app.waits_for) : words("queue.sending"));
}

function pauseOf(app) {
  return { name: app.paused_by, time: clock(app.paused_at) };
}

// Returns a reason as the end of a sentence.
function reasonAfter(reason) {
  return reason ? words("reasonAfter", { reason }) : "";
}

async function changePause(verb, { app }) {
  await attempt(async () => {
    const { pushes: count } = await call("POST", "/v1/queue:" + verb, { app, dry_run: true });
    const isPause = verb === "pause";
    ask({ title: words(isPause ? "queue.pauseTitle" : "queue.resumeTitle", { app }),
      text: words(isPause ? "queue.pauseAbout" : "queue.resumeAbout", { count }),
      verb: words(isPause ? "queue.pause" : "queue.resume"), asksReason: isPause, isHarmless: !isPause },
      (answers) => call("POST", "/v1/queue:" + verb, { app, ...answers }),
      async () => {
        await Promise.all([showPauses(), look()]);
        byId("pauses").focus();
      });
  });
}

// MARK: Pushes

// Returns the next pushes. Skips short pages, because the relay reads a limited number of rows for each.
async function fetchPushes(cursor) {
  let found = [];
  for (let calls = 0; calls < maxCalls; calls += 1) {
    const page = await call("GET", "/v1/pushes?" + query({ limit: 50, ...pushFilter(), cursor }));
    found = [...found, ...page.pushes];
    cursor = page.next;
    callsOfList = calls + 1;
    if (found.length >= 50 || cursor === null) break;
  }
  return [found, cursor];
}

function drawPushes(next) {
  const rows = pushes.map((push) => {
    const cell = element("td", "choice");
    const box = element("input");
    box.type = "checkbox";
    box.checked = chosen.has(push.id);
    box.dataset.key = "choose-" + push.id;
    box.setAttribute("aria-label", words("pushes.choose", { id: String(push.id) }));
    box.addEventListener("change", () => {
      if (box.checked) chosen.add(push.id);
      else chosen.delete(push.id);
      drawActions();
    });
    cell.append(box);
    return [cell, String(push.id), push.token.slice(0, 8) + "…", push.app, state(push.state), reasonOf(push), push.attempts,
      clock(push.queued_at), clock(push.not_before), origin(push)];
  });
  const made = [pushes.length
    ? table([
      selectAll(), "column.push", "column.device", "column.app", "column.state", "column.reason", "column.attempts", "column.queued",
      "column.notBefore", "column.from",
    ], rows)
    : element("p", "hint", words(next === null ? "pushes.none" : "pushes.noneSoFar"))];
  if (next !== null) made.push(button(words("more"), () => attempt(pushPages.more, byId("filter-pushes")), "more-pushes"));
  update(byId("push-list"), ...made);
  drawActions();
}

function reasonOf(push) {
  if (!push.reason && !push.hint) return "";
  const cell = element("td", "", push.reason ?? "");
  if (push.hint) cell.append(element("span", "hint", push.hint));
  return cell;
}

function selectAll() {
  const cell = element("th", "choice");
  cell.scope = "col";
  const box = element("input");
  box.type = "checkbox";
  box.dataset.key = "choose-all";
  box.setAttribute("aria-label", words("pushes.chooseAll"));
  box.addEventListener("change", () => {
    chosen.clear();
    if (box.checked) for (const push of pushes) chosen.add(push.id);
    drawActions();
  });
  cell.append(box);
  return cell;
}

function drawActions() {
  const count = chosen.size;
  byId("retry-pushes").textContent = words(count ? "pushes.retryChosen" : "pushes.retryAll", { count });
  byId("cancel-pushes").textContent = words(count ? "pushes.cancelChosen" : "pushes.cancelAll", { count });
  // The list keeps its boxes if it is drawn again with the same pushes.
  for (const box of byId("push-list").querySelectorAll("td input")) box.checked = chosen.has(Number(box.dataset.key.slice("choose-".length)));
  const all = byId("push-list").querySelector("th input");
  if (all) {
    all.checked = chosen.size > 0 && chosen.size === pushes.length;
    all.indeterminate = chosen.size > 0 && chosen.size < pushes.length;
  }
}

// Repeats a call until it has reached the end of the queue. Returns the number of pushes and whether the end was reached.
async function overAll(verb, which, isDryRun, progress = () => {}) {
  let [count, cursor] = [0, null];
  for (let calls = 0; calls < maxCalls; calls += 1) {
    const part = await callJSON("POST", "/v1/queue:" + verb, { ...which, dry_run: isDryRun, ...(cursor !== null && { cursor }) },
      token ? { Authorization: "Bearer " + token } : {}, 120000);
    count += part.pushes;
    cursor = part.next;
    progress(count);
    if (cursor === null) return [count, true];
  }
  return [count, false];
}

function changePushes(verb) {
  const filter = pushFilter();
  const which = chosen.size ? { ids: [...chosen].slice(0, 1000) } : Object.keys(filter).length ? filter : { all: true };
  const isRetry = verb === "retry";
  const status = byId("push-status");
  return attempt(async () => {
    status.textContent = words("pushes.counting");
    const [count, isAll] = await overAll(verb, which, true).finally(() => { status.textContent = ""; });
    if (!count) {
      status.textContent = words(isRetry ? "pushes.noRetry" : "pushes.noCancel");
      return;
    }
    ask({
      title: words(isRetry ? "pushes.retryTitle" : "pushes.cancelTitle", { pushes: words(isAll ? "pushes.count" : "pushes.moreThan", { count }) }),
      text: words(isRetry ? "pushes.retryAbout" : "pushes.cancelAbout", { count }), verb: words(isRetry ? "pushes.retry" : "pushes.cancel", { count }),
      isHarmless: isRetry, ...(!isRetry && { no: words("pushes.keep", { count }) }),
    }, async () => {
      const [changed] = await overAll(verb, which, false, (count) => {
        status.textContent = words(isRetry ? "pushes.retrying" : "pushes.cancelling", { count });
      });
      status.textContent = words(isRetry ? "pushes.retried" : "pushes.cancelled", { count: changed });
    }, async () => {
      await showQueue();
      byId("push-list").focus();
    });
  }, byId("filter-pushes"));
}

byId("retry-pushes").addEventListener("click", () => changePushes("retry"));
byId("cancel-pushes").addEventListener("click", () => changePushes("cancel"));
onFilter(byId("filter-pushes"), pushPages.show);
