"use strict";
// What all pages share.

const byId = (id) => document.getElementById(id);

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined && text !== null) made.textContent = text;
  return made;
}

// Pairs for a list of names and values; those without a value are left out.
function facts(rows) {
  return rows.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .flatMap(([name, value, className]) => [element("dt", "", name), element("dd", className, String(value))]);
}

// The server understood, and says no.
class Refused extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// What a call answers, which is JSON or nothing. `patience` is in milliseconds.
async function fetchJSON(path, options, patience = 10000) {
  const response = await fetch(path, { ...options, signal: AbortSignal.timeout(patience) });
  const text = await response.text();
  if (response.ok) return text ? JSON.parse(text) : {};
  let answer = {};
  try {
    answer = JSON.parse(text);
  } catch {
    // A proxy's page, say.
  }
  const said = answer.detail ?? answer.error?.message ?? answer.error;
  throw new Refused(response.status, said ?? "The server answered " + response.status, answer.error?.code);
}

async function callJSON(method, path, body, headers = {}) {
  if (body === undefined) return fetchJSON(path, { method, headers });
  return fetchJSON(path, { method, headers: { "Content-Type": "application/json", ...headers }, body: JSON.stringify(body) });
}

// Says in the page's place for it what went wrong, or without an error that nothing does any more.
function complain(error) {
  byId("problem").textContent = error?.message ?? "";
  byId("problem").hidden = !error;
}
