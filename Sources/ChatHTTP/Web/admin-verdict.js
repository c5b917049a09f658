"use strict";
// The operator's page: the first line says whether all is well, or what is wrong and what to do.

// The age in seconds from which a waiting push is a problem, and the days before the end of a certificate.
const oldPush = 900;
const certificateDays = 30;

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
    const days = app.certificate_expires_at && Math.floor((new Date(app.certificate_expires_at) - Date.now()) / 86400000);
    if (days !== null && days < certificateDays) {
      problems.push({ rank: days < 0 ? 1 : 7, title: words(days < 0 ? "verdict.expired" : "verdict.expires", { name, count: days }),
        text: "", remedy: "verdict.replace", command: "pushchat reload" });
    }
  }
  return problems.sort((one, other) => one.rank - other.rank);
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
