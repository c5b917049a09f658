"use strict";
// The operator's page: the first line says whether all is well, or what is wrong and what to do.

// The age in seconds from which a waiting push is a problem, and the days before the end of a certificate.
const oldPush = 900;
const certificateDays = 30;
// Failures are a problem if they are this many of the last hour's pushes, and this part of them.
const manyFailures = { count: 3, part: 0.25 };

// Returns the problems, the worst first. Each has a title, an explanation, and the key of a remedy with its
// command or tab.
function problemsOf(stats, ready, warnings) {
  const problems = [];
  for (const [check, state] of Object.entries(ready?.checks ?? {})) {
    if (state === "ok") continue;
    problems.push({ rank: 0, title: named("check." + check, words("verdict.notOK", { check })), text: ready.details?.[check] ?? state });
  }
  for (const app of stats.apps) {
    const name = app.app === "webpush" ? words("verdict.browsers") : words("verdict.app", { app: app.app });
    const count = app.due + app.delayed + app.written;
    const waits = count ? words("verdict.waits", { count }) : words("verdict.noWait");
    const reason = lastWarning(app.app, warnings);
    const why = (reason ? reason + ". " : "") + waits;
    if (app.credentials_refused) {
      problems.push({ rank: 1, title: words("verdict.refused", { name }), text: why, remedy: "verdict.correct", command: "pushchat reload" });
    } else if (app.waits_for === "credentials") {
      problems.push({ rank: 3, title: words("verdict.noCredentials", { name }), text: waits, remedy: "verdict.addKey", command: "pushchat reload" });
    } else if (app.waits_for === "configuration") {
      problems.push({ rank: 4, title: words("verdict.noApp", { name }), text: waits, remedy: "verdict.addApp", tab: "queue" });
    } else if (app.waits_for === "pause") {
      problems.push({ rank: 5, title: app.pause_reason ? words("verdict.pausedFor", { name, reason: app.pause_reason }) : words("verdict.paused", { name }),
        text: words("verdict.pausedBy", { ...pauseOf(app), waits }), remedy: "verdict.resume", tab: "queue" });
    } else if (app.address && app.connections === 0 && count) {
      problems.push({ rank: 2, title: words("verdict.unreachable", { name }), text: why + " " + words("verdict.kept"),
        remedy: "verdict.check", command: "pushchat check" });
    } else if (app.oldest_age_seconds > oldPush) {
      problems.push({ rank: 6, title: words("verdict.old", { name, time: seconds(app.oldest_age_seconds) }), text: waits, remedy: "verdict.look", tab: "queue" });
    }
    const restricted = (app.push_services ?? []).map((service) => service.origin.replace("https://", "")).join(", ");
    if (restricted && count) {
      problems.push({ rank: 6, title: words("verdict.restricted", { name, services: restricted }), text: why, remedy: "verdict.look", tab: "queue" });
    }
    const days = app.certificate_expires_at && Math.floor((new Date(app.certificate_expires_at) - Date.now()) / 86400000);
    if (days !== null && days < certificateDays) {
      problems.push({ rank: days < 0 ? 1 : 7, title: words(days < 0 ? "verdict.expired" : "verdict.expires", { name, count: days }),
        text: "", remedy: "verdict.replace", command: "pushchat reload" });
    }
  }
  for (const state of ["failing", "paused", "ended"]) {
    const webhooks = lastWebhooks.filter((webhook) => healthOf(webhook) === state);
    if (!webhooks.length) continue;
    problems.push({ rank: 5, title: words("verdict.webhooks", { count: webhooks.length, state: words("webhook." + state), names: listed(webhooks.map(webhookName)) }),
      text: webhooks.length === 1 && webhooks[0].reason ? words("verdict.reasonIs", { reason: webhooks[0].reason }) : "",
      remedy: "verdict.look", tab: "tokens" });
  }
  const { sent, failed } = lastHour(stats, dayHistory, Date.now());
  if (failed >= manyFailures.count && failed >= manyFailures.part * (sent + failed)) {
    const reason = commonReason(lastFailures);
    problems.push({ rank: 6, title: words("verdict.failures", { failed, all: sent + failed }),
      text: reason ? words("verdict.reason", { reason }) : "", remedy: "verdict.look", tab: "log" });
  }
  return problems.sort((one, other) => one.rank - other.rank);
}

// Returns the numbers of pushes that were sent and that failed in the last hour. The metrics have the last minute, and the record
// has the minutes before.
function lastHour(stats, history, now) {
  const minutes = history.filter(({ at }) => Date.parse(at) >= now - 3600000 && Date.parse(at) <= now - 120000);
  const all = (states, name) => states.reduce((count, state) => count + recent(stats, state), 0)
    + minutes.reduce((count, minute) => count + minute[name], 0);
  return { sent: all(["sent"], "sent"), failed: all(["failed", "expired"], "failed") };
}

function commonReason(failures) {
  const counts = new Map();
  for (const { reason } of failures) if (reason) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  return [...counts].sort((one, other) => other[1] - one[1])[0]?.[0];
}

// The last log line about an app's gateway, without what is said elsewhere.
function lastWarning(app, warnings) {
  const line = warnings?.findLast((line) => line.app === app && (line.error ?? line.cause ?? line.reason));
  return line && String(line.error ?? line.cause ?? line.reason);
}

function showVerdict(stats, ready, warnings) {
  const problems = problemsOf(stats, ready, warnings);
  const box = byId("verdict");
  box.className = problems.length ? "verdict " + (problems[0].rank < 5 ? "is-bad" : "is-warning") : "verdict is-good";
  if (!problems.length) {
    const connected = stats.apps.filter((app) => app.connections > 0).length;
    return update(box, element("b", "", words("verdict.good")),
      element("span", "", words(connected ? "verdict.connected" : "verdict.noneWaits")));
  }
  update(box, ...problems.flatMap((problem, index) => {
    const line = element("p");
    line.append(problem.text + " ");
    if (problem.remedy) line.append(...remedyOf(problem));
    return [element(index ? "strong" : "b", "", problem.title), line];
  }));
}

// Returns the remedy's sentence with its command, or with a link to its tab.
function remedyOf({ remedy, command, tab }) {
  const target = command ? element("code", "", command) : element("a", "", words("tabs." + tab));
  if (tab) target.href = "#" + tab;
  const [before, after] = words(remedy, { target: "\n" }).split("\n");
  return [before, target, after];
}
