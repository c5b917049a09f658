"use strict";
// Functions that all pages share.

const byId = (id) => document.getElementById(id);

// The address of the relay's root. A proxy may serve the relay below a path, such as `/chat/`.
const root = new URL(".", document.currentScript.src);

// Returns the address of a path of the relay, such as `/v1/stats`.
function at(path) {
  return new URL("." + path, root).href;
}

// Returns the key of a value in the browser's storage, which all servers of an origin share.
function storageKey(name) {
  return "pushchat." + (root.pathname === "/" ? "" : root.pathname) + name;
}

// Values that the browser keeps for this tab. If it keeps nothing, they last as long as the page.
const tabMemory = {
  get(name) {
    try {
      return sessionStorage.getItem(storageKey(name));
    } catch {
      return null;
    }
  },
  set(name, value) {
    try {
      if (value === null) sessionStorage.removeItem(storageKey(name));
      else sessionStorage.setItem(storageKey(name), value);
    } catch {
      // Storage is forbidden.
    }
  },
};

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined && text !== null) made.textContent = text;
  return made;
}

// Returns the elements of a description list. Skips rows without a value.
function facts(rows) {
  return rows.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .flatMap(([name, value, className]) => {
      const fact = element("dd", className);
      fact.append(value instanceof Node ? value : String(value));
      return [element("dt", "", name), fact];
    });
}

// An error response of the server.
class Refused extends Error {
  constructor(status, message, code, field) {
    super(message);
    this.status = status;
    this.code = code;
    this.field = field;
  }
}

// Returns a call's JSON, or an empty object if the response has no body. `timeout` is in milliseconds.
async function fetchJSON(path, options, timeout = 10000) {
  const response = await fetch(at(path), { ...options, signal: AbortSignal.timeout(timeout) });
  const text = await response.text();
  if (response.ok) return text ? JSON.parse(text) : {};
  let answer = {};
  try {
    answer = JSON.parse(text);
  } catch {
    // Not JSON: a proxy's page, for example.
  }
  const message = answer.detail ?? answer.error?.message ?? answer.error;
  throw new Refused(response.status, message ?? "The server answered " + response.status, answer.error?.code, answer.field);
}

async function callJSON(method, path, body, headers = {}, timeout) {
  if (body === undefined) return fetchJSON(path, { method, headers }, timeout);
  const typed = { "Content-Type": "application/json", ...headers };
  return fetchJSON(path, { method, headers: typed, body: JSON.stringify(body) }, timeout);
}

// Shows an error in the page's error element. Hides the element if there is none.
function showError(error) {
  byId("problem").textContent = error?.message ?? "";
  byId("problem").hidden = !error;
}
