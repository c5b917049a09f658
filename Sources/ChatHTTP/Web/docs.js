"use strict";
// All calls of the relay, from /v1/openapi.json.

let token = tabMemory.get("admin");
let description = null;

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  load().then((isIn) => isIn && tabMemory.set("admin", token));
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
  byId("description").replaceChildren(proseOf("span", description.info.description));
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

// The names of the calls on the page.
const byName = new Set();

function draw() {
  byName.clear();
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
  // Two calls may have the same name. The address names the first.
  if (!byName.has(operation.operationId)) box.id = operation.operationId;
  byName.add(operation.operationId);
  const summary = element("summary");
  summary.append(element("span", "method " + method.toLowerCase(), method), " ", element("span", "path", path), " ",
    element("span", "what", operation.summary));
  box.append(summary);
  // The page has over a hundred calls. Each is filled when it is first opened.
  box.addEventListener("toggle", () => {
    if (box.open && box.childElementCount === 1) box.append(details(method, path, operation));
  });
  return box;
}

function details(method, path, operation) {
  const body = element("div");
  const list = [...(description.paths[path].parameters ?? []), ...(operation.parameters ?? [])].map(resolve);
  if (operation.description) body.append(proseOf("p", operation.description));
  body.append(element("h3", "", "Example"), copyable(command(method, path, operation, list), `example: ${method} ${path}`));
  if (list.length) body.append(element("h3", "", "Parameters"), parameters(list));
  for (const [type, content] of Object.entries(operation.requestBody?.content ?? {})) {
    body.append(titled("Body", type), schema(content.schema, true));
  }
  const errors = element("ul", "errors");
  for (const [status, response] of Object.entries(operation.responses)) {
    const found = resolve(response);
    if (Number(status) >= 400) {
      const item = element("li");
      item.append(element("code", "", status), " ", proseOf("span", found.description));
      errors.append(item);
      continue;
    }
    body.append(titled("Response " + status, ...Object.keys(found.content ?? {})), proseOf("p", found.description));
    for (const [type, content] of Object.entries(found.content ?? {})) {
      if (content.schema) body.append(schema(content.schema));
      if (type === "application/json" && content.schema) body.append(coloured(exampleOf(content.schema, true), `${status} of ${method} ${path}`));
    }
  }
  if (errors.childElementCount) body.append(element("h3", "", "Errors"), errors);
  return body;
}

function titled(text, ...types) {
  const title = element("h3", "", text);
  types.forEach((type) => title.append(" ", element("code", "kind", type)));
  return title;
}

// Returns a description with its words between backquotes as code.
function proseOf(name, text) {
  const place = element(name);
  (text ?? "").split("`").forEach((part, index) => place.append(index % 2 ? element("code", "", part) : part));
  return place;
}

function parameters(list) {
  const box = element("ul", "schema");
  for (const each of list) {
    const item = element("li");
    item.append(element("code", "", each.name), " ", ...(each.required ? [element("span", "required", "required"), " "] : []),
      element("span", "kind", "in the " + each.in + ":"), " ", ...kind(each.schema));
    if (each.description) item.append(proseOf("p", each.description));
    box.append(item);
  }
  return box;
}

// MARK: Examples

// Returns an example of a value. `all` includes the optional members of objects.
function exampleOf(given, all = false, name = "", depth = 0) {
  const found = resolve(given);
  const named = found.example ?? found.examples?.[0] ?? found.const ?? found.default ?? found.enum?.[0];
  if (named !== undefined) return named;
  const choice = found.oneOf ?? found.anyOf ?? found.allOf;
  if (choice && !found.properties) return exampleOf(choice[0], all, name, depth);
  const type = [found.type ?? (found.properties ? "object" : "string")].flat()[0];
  if (type === "array") return depth > 4 ? [] : [exampleOf(found.items, all, name, depth + 1)];
  if (type === "object") {
    if (depth > 4) return {};
    const members = Object.entries(found.properties ?? {});
    const needed = members.filter(([name]) => all || found.required?.includes(name) || (depth === 0 && name === "room"));
    return Object.fromEntries((needed.length ? needed : members.slice(0, 2)).map(([name, value]) => [name, exampleOf(value, all, name, depth + 1)]));
  }
  if (type === "boolean") return true;
  if (type === "null") return null;
  if (type === "integer" || type === "number") return Math.max(1, found.minimum ?? 1);
  if (found.format === "date-time") return "2026-01-31T09:30:00Z";
  if (found.format === "uri") return "https://example.org/";
  if (found.format === "uuid") return "123e4567-e89b-12d3-a456-426614174000";
  return usual[name] ?? "text";
}

// Examples of the parameters and fields that most calls have, by name.
const usual = { room: "kitchen", code: "kitchen", udid: "6a45eb0b5d3f4d5d9b5d8cf0f7d3a1b2c3d4e5f6", topic: "kitchen", name: "Ann", text: "Tea is ready",
  message: "Tea is ready", id: 1, token: "740f4707bebcf74f9b7c25d48e3358945f6aa01da5ddb387462c7eaf61bb78ad" };

// Further fields of forms, beside those that every form must have.
const further = { chat: ["udid", "token", "name", "code"], chatShort: ["udid", "token", "name", "code"] };

function valueOf(name, schema) {
  return name === "id" ? 1 : exampleOf(schema, false, name);
}

// Quotes a word for a shell.
function quoted(word) {
  return /^[\w./:=,@%+-]+$/.test(word) ? word : "'" + String(word).replaceAll("'", "'\\''") + "'";
}

// Returns the call as a line for a shell.
function command(method, path, operation, list) {
  const filled = path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(valueOf(name, list.find((each) => each.name === name)?.schema)));
  const required = list.filter((each) => each.in === "query" && each.required);
  const query = required.length ? "?" + new URLSearchParams(required.map((each) => [each.name, valueOf(each.name, each.schema)])) : "";
  const parts = ["curl" + (method === "GET" ? "" : method === "HEAD" ? " -I" : " -X " + method) + " " + quoted(at(filled + query))];
  const security = operation.security ?? description.security ?? [];
  if (security.some((each) => "bearer" in each)) parts.push('-H "Authorization: Bearer $TOKEN"');
  for (const each of list.filter((each) => each.in === "header" && each.required)) {
    parts.push("-H " + quoted(`${each.name}: ${valueOf(each.name, each.schema)}`));
  }
  const [type, content] = Object.entries(operation.requestBody?.content ?? {})[0] ?? [];
  if (type === "application/json") {
    parts.push("-H 'Content-Type: application/json'", "-d " + quoted(JSON.stringify(exampleOf(content.schema))));
  } else if (type?.startsWith("application/x-www-form-urlencoded")) {
    const found = resolve(content.schema);
    const names = [...(found.required ?? Object.keys(found.properties ?? {}).slice(0, 1)), ...(further[operation.operationId] ?? [])];
    names.forEach((name) => parts.push("--data-urlencode " + quoted(`${name}=${valueOf(name, found.properties[name])}`)));
  } else if (type) parts.push("-d " + quoted("Tea is ready"));
  return parts.join(" \\\n  ");
}

// Returns a code block with a button that copies it.
function copyable(text, what) {
  const box = element("div", "copyable");
  const code = element("pre", "code");
  code.append(element("code", "", text));
  code.tabIndex = 0;
  code.setAttribute("role", "region");
  code.setAttribute("aria-label", what);
  const button = element("button", "quiet", "Copy");
  button.type = "button";
  button.setAttribute("aria-label", "Copy the " + what);
  const status = element("span", "only-spoken");
  status.setAttribute("role", "status");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
      status.textContent = "Copied";
    } catch {
      // Without permission the user copies the selected text.
      getSelection().selectAllChildren(code);
      status.textContent = "Selected. Copy it yourself.";
    }
  });
  box.append(code, button, status);
  return box;
}

// Returns JSON as a code block in colours.
function coloured(value, name) {
  const text = JSON.stringify(value, null, 2);
  const code = element("pre", "code");
  code.tabIndex = 0;
  code.setAttribute("role", "region");
  code.setAttribute("aria-label", "response " + name);
  let end = 0;
  for (const { 0: found, index, groups: { key, string } } of text.matchAll(/(?<key>"(?:[^"\\]|\\.)*")(?=:)|(?<string>"(?:[^"\\]|\\.)*")|\b(?:true|false|null|-?\d[\d.e+-]*)\b/g)) {
    code.append(text.slice(end, index), element("span", key ? "key" : string ? "string" : "value", found));
    end = index + found.length;
  }
  code.append(text.slice(end));
  return code;
}

// MARK: Schemas

function resolve(value) {
  if (!value?.$ref) return value ?? {};
  return value.$ref.slice(2).split("/").reduce((place, name) => place?.[name], description) ?? {};
}

// Returns the type of a value, and its limits, as elements.
function kind(given) {
  const found = resolve(given);
  const parts = [element("span", "kind", typeName(found))];
  limits(found).forEach((limit) => parts.push(" ", element("span", "limit", limit)));
  return parts;
}

function typeName(given) {
  const found = resolve(given);
  if (found.const !== undefined) return "always " + JSON.stringify(found.const);
  if (found.enum) return "one of " + found.enum.map((value) => JSON.stringify(value)).join(", ");
  const choice = found.oneOf ?? found.anyOf;
  if (choice && !found.type) return [...new Set(choice.map(typeName))].join(" or ");
  const types = [found.type ?? (found.properties ? "object" : "any value")].flat();
  return types.map((type) => (type === "array" ? "list of " + typeName(found.items) : type)).join(" or ");
}

const number = new Intl.NumberFormat("en");

// Returns a range in words. `what` follows the numbers.
function range(least, most, what) {
  const end = what ? " " + what : "";
  if (least === 1 && most === undefined && what) return "not empty";
  if (least !== undefined && least === most) return `exactly ${number.format(least)}${end}`;
  if (least !== undefined && most !== undefined) return `${number.format(least)} to ${number.format(most)}${end}`;
  if (most !== undefined) return `at most ${number.format(most)}${end}`;
  return least !== undefined && `at least ${number.format(least)}${end}`;
}

const formats = { "date-time": "a time such as 2026-01-31T09:30:00Z", uri: "an address", uuid: "a UUID" };

// Returns the rules that a value must keep, each as a few words.
function limits(found) {
  // A limit of the number type itself says nothing.
  const most = found.maximum < 2 ** 31 - 1 ? found.maximum : undefined;
  return [
    found.format && (formats[found.format] ?? found.format),
    range(found.minLength || undefined, found.maxLength, "characters"), range(found.minItems || undefined, found.maxItems, "elements"),
    range(found.minProperties || undefined, found.maxProperties, "members"), range(found.minimum, most, ""),
    found.pattern && "matches " + found.pattern, found.default !== undefined && "default " + JSON.stringify(found.default),
  ].filter(Boolean);
}

// Returns the members of an object, including nested objects.
// `isInput` marks the members that a caller must send.
function schema(given, isInput = false, depth = 0) {
  const found = resolve(given);
  const holder = found.type === "array" || found.items ? resolve(found.items) : found;
  const members = Object.entries(holder.properties ?? {});
  if (!members.length || depth > 4) {
    const line = element("p");
    line.append(...kind(given));
    return line;
  }
  const list = element("ul", "schema");
  for (const [name, value] of members) {
    const item = element("li");
    const inner = resolve(value);
    item.append(element("code", "", name), " ");
    if (isInput && holder.required?.includes(name)) item.append(element("span", "required", "required"), " ");
    item.append(...kind(value));
    const text = value.description ?? inner.description;
    if (text) item.append(proseOf("p", text));
    if (inner.properties || resolve(inner.items).properties) item.append(schema(value, isInput, depth + 1));
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
