"use strict";
// All calls of the relay, from /v1/openapi.json.

let token = sessionStorage.getItem("pushchat.admin");
let description = null;

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  load().then((isIn) => isIn && sessionStorage.setItem("pushchat.admin", token));
});

async function load() {
  try {
    description = await fetchJSON("/v1/openapi.json", { headers: token ? { Authorization: "Bearer " + token } : {} });
  } catch (error) {
    byId("door").hidden = !(error instanceof Refused && error.status === 401);
    if (byId("door").hidden || token) showError(error);
    return false;
  }
  showError();
  byId("door").hidden = true;
  byId("calls").hidden = false;
  byId("about").textContent = "described by OpenAPI " + description.openapi;
  byId("description").textContent = description.info.description;
  draw();
  open();
  return true;
}

// MARK: Calls

// The groups of calls, by the start of their path.
const groups = [
  ["Chat", /^\/(api|events|$)/], ["Registration", /^\/(push_chat|admin\/|webpush)/], ["Messages and rooms", /^\/v1\/(m|room|ban)/],
  ["Devices and notifications", /^\/v1\/(dev|not|fail)/], ["Tokens", /^\/v1\/tok/], ["Gotify", /^\/gotify/], ["ntfy", /^\/ntfy/],
  ["The relay", /./],
];

function draw() {
  const left = Object.entries(description.paths);
  byId("groups").replaceChildren(...groups.map(([name, pattern]) => {
    const section = element("section");
    section.append(element("h2", "", name));
    for (const [path, operations] of left.filter(([path]) => pattern.test(path))) {
      left.splice(left.findIndex(([other]) => other === path), 1);
      for (const [method, operation] of Object.entries(operations)) {
        if (method !== "parameters") section.append(call(method.toUpperCase(), path, operation));
      }
    }
    return section;
  }));
}

function call(method, path, operation) {
  const box = element("details");
  box.id = operation.operationId;
  const summary = element("summary");
  summary.append(element("span", "method", method), " ", element("span", "path", path), " ", element("span", "what", operation.summary));
  const body = element("div");
  if (operation.description) body.append(element("p", "", operation.description));
  if (operation.parameters?.length) body.append(element("h4", "", "Parameters"), parameters(operation.parameters));
  for (const [type, content] of Object.entries(operation.requestBody?.content ?? {})) {
    body.append(element("h4", "", "Body: " + type), schema(content.schema));
  }
  for (const [status, response] of Object.entries(operation.responses)) {
    const found = resolve(response);
    body.append(element("h4", "", status + ": " + found.description));
    for (const [type, content] of Object.entries(found.content ?? {})) {
      if (type !== "application/problem+json") body.append(element("p", "kind", type), schema(content.schema));
    }
  }
  box.append(summary, body);
  return box;
}

function parameters(list) {
  const table = element("table");
  const head = element("tr");
  for (const name of ["Name", "In", "Type", "Description"]) {
    const cell = element("th", "", name);
    cell.scope = "col";
    head.append(cell);
  }
  table.append(element("thead"), element("tbody"));
  table.tHead.append(head);
  for (const each of list.map(resolve)) {
    const row = element("tr");
    const name = element("td");
    name.append(element("code", "", each.name + (each.required ? " *" : "")));
    row.append(name, element("td", "", each.in), element("td", "", kind(each.schema)), element("td", "", each.description));
    table.tBodies[0].append(row);
  }
  const box = element("div", "table");
  box.append(table);
  return box;
}

// MARK: Schemas

function resolve(value) {
  if (!value?.$ref) return value ?? {};
  return value.$ref.slice(2).split("/").reduce((place, name) => place?.[name], description) ?? {};
}

// Returns a short description of a schema's type, with its limits.
function kind(given) {
  const found = resolve(given);
  if (found.enum) return found.enum.map((value) => JSON.stringify(value)).join(", ");
  if (found.oneOf) return found.oneOf.map(kind).join(" or ");
  const types = [found.type ?? "anything"].flat().map((type) => (type === "array" ? "array of " + kind(found.items) : type));
  const limits = [
    found.format, found.minLength > 1 && "at least " + found.minLength, found.maxLength && "at most " + found.maxLength + " characters",
    found.maxItems && "at most " + found.maxItems, found.minimum !== undefined && "from " + found.minimum,
    found.maximum !== undefined && found.maximum < 2 ** 31 && "to " + found.maximum, found.default !== undefined && "default " + found.default,
  ].filter(Boolean);
  return types.join(" or ") + (limits.length ? " (" + limits.join(", ") + ")" : "");
}

// Returns the members of an object, including nested objects.
function schema(given, depth = 0) {
  const found = resolve(given);
  const members = Object.entries((found.type === "array" || found.items ? resolve(found.items) : found).properties ?? {});
  if (!members.length || depth > 4) return element("p", "kind", kind(given));
  const required = (found.items ? resolve(found.items) : found).required ?? [];
  const list = element("ul", "schema");
  for (const [name, value] of members) {
    const item = element("li");
    const inner = resolve(value);
    item.append(element("code", "", name + (required.includes(name) ? " *" : "")), " ", element("span", "kind", kind(value)));
    if (value.description ?? inner.description) item.append(" – " + (value.description ?? inner.description));
    if (inner.properties || resolve(inner.items).properties) item.append(schema(value, depth + 1));
    list.append(item);
  }
  return list;
}

// MARK: Search

byId("filter").addEventListener("input", () => {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const section of byId("groups").children) {
    const calls = [...section.querySelectorAll("details")];
    for (const each of calls) {
      const text = each.querySelector("summary").textContent.toLowerCase();
      each.hidden = !words.every((word) => text.includes(word));
    }
    section.hidden = calls.every((each) => each.hidden);
    count += calls.filter((each) => !each.hidden).length;
  }
  byId("found").textContent = words.length ? count + (count === 1 ? " call" : " calls") : "";
});

// Opens the call that the address names: /v1/docs#postMessage
function open() {
  const named = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (named instanceof HTMLDetailsElement) {
    named.open = true;
    named.scrollIntoView();
  }
}
addEventListener("hashchange", open);

load();
