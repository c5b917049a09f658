"use strict";
// The operator's page: programs' tokens.

// Lists the tokens. Hides the section if the relay does not support them.
async function showTokens() {
  try {
    await showHookFormats();
    await tokens.show();
  } catch (error) {
    return showSection("tokens", "token-list", error);
  }
  byId("tokens").hidden = false;
}

function tokenRow(token) {
  return [
    token.name, token.hook ? hookOf(token) : token.scopes.join(", "), token.room ?? words("any"), audienceOf(token.to), endOf(token.expires_at, words("never")),
    token.last_used_at ? clock(token.last_used_at) : words("never"), token.last_used_from,
    actions([[words("revoke.verb"), token.name, "token-" + token.id, () => revoke(token)]]),
  ];
}

function audienceOf(to) {
  if (!to) return words("to.anyone");
  return [...(to.users ?? []).map(isolated), ...(to.tags ?? []).map((tag) => words("to.tags", { names: tag }))].join(", ");
}

// Describes the webhook of a token, with its last delivery that could not be read.
function hookOf(token) {
  const name = words("hooks.of", { name: hookFormats.find((each) => each.name === token.hook.format)?.title ?? token.hook.format });
  if (!token.unreadable) return name;
  const text = element("span", "", name + " ");
  text.append(element("span", "bad", words("hooks.unreadable", {
    count: String(token.unreadable.count), time: clock(token.unreadable.at), reason: token.unreadable.reason,
  })));
  const cell = element("td");
  cell.append(text);
  return cell;
}

let hookFormats = [];

// Fills the list of webhooks' formats once. Hides it if the relay does not support them.
async function showHookFormats() {
  if (hookFormats.length) return;
  try {
    hookFormats = (await call("GET", "/v1/hooks")).formats;
  } catch {
    return;
  }
  const choice = byId("token-hook");
  choice.replaceChildren(new Option(words("hooks.none"), ""), ...hookFormats.map((each) => new Option(each.title, each.name)));
  byId("hook-box").hidden = false;
}

// Shows the fields that the chosen format has.
function showHookFields() {
  const format = hookFormats.find((each) => each.name === byId("token-hook").value);
  byId("token-scopes").hidden = Boolean(format);
  byId("token-room").required = Boolean(format);
  byId("token-room").placeholder = format ? "" : words("any");
  byId("token-room-hint").textContent = words(format ? "hooks.roomHint" : "tokens.roomHint");
  byId("hook-secret-box").hidden = !format?.signed;
  byId("hook-template-box").hidden = format?.name !== "json";
  byId("hook-try-box").hidden = !format;
  byId("hook-result").replaceChildren();
}

byId("token-hook").addEventListener("change", showHookFields);
byId("create-token").addEventListener("reset", () => setTimeout(showHookFields));

function hookTemplate() {
  const text = byId("hook-template-box").hidden ? "" : byId("hook-template").value.trim();
  if (!text) return null;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw Object.assign(new Error(words("hooks.noJSON", { problem: error.message })), { field: "template" });
  }
}

function chosenHook() {
  const [format, secret] = [byId("token-hook").value, byId("hook-secret").value];
  return { format, template: hookTemplate(), secret: byId("hook-secret-box").hidden || !secret ? null : secret };
}

byId("hook-try").addEventListener("click", () => attempt(async () => {
  const headers = {};
  for (const line of byId("hook-headers").value.split("\n")) {
    const mark = line.indexOf(":");
    if (mark > 0) headers[line.slice(0, mark).trim()] = line.slice(mark + 1).trim();
  }
  const { format, template } = chosenHook();
  const result = await call("POST", "/v1/hooks:try", { format, template, headers, body: byId("hook-body").value });
  const box = element("div");
  if (result.ignored) box.append(element("p", "", words("hooks.ignored", { reason: result.ignored })));
  for (const message of result.messages) {
    if (message.title) box.append(element("p", "", message.title));
    box.append(element("pre", "", message.text));
    box.append(element("p", "hint", [message.state, message.urgency, ...(message.tags ?? []), message.link].filter(Boolean).join(" · ")));
  }
  byId("hook-result").replaceChildren(box);
}, byId("create-token")));

function revoke(token) {
  ask(
    { title: words("revoke.title", { name: token.name }), text: words("revoke.about"), verb: words("revoke.verb") },
    () => call("DELETE", "/v1/tokens/" + token.id),
    async () => {
      await showTokens();
      byId("token-list").focus();
    });
}

byId("create-token").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(async () => {
    const hook = byId("token-hook").value ? chosenHook() : null;
    const scopes = hook ? ["post"] : [...document.querySelectorAll("[name=scope]:checked")].map((box) => box.value);
    if (!scopes.length) throw Object.assign(new Error(words("tokens.noScope")), { field: "scopes" });
    const body = { name: byId("token-name").value.trim(), scopes };
    const [room, days] = [byId("token-room").value.trim(), Number(byId("token-days").value)];
    if (room) body.room = room;
    if (hook) body.hook = hook;
    if (days) body.expires_at = later(days * 86400);
    const { token, url } = await call("POST", "/v1/tokens", body);
    byId("create-token").reset();
    // The page is below the relay's root, also behind a proxy's path.
    byId("secret").value = url ? new URL(url.startsWith("/") ? "." + url : url, location.href).href : token;
    byId("secret-label").textContent = words(url ? "hooks.new" : "tokens.new");
    byId("copy-token").textContent = words(url ? "hooks.copy" : "tokens.copy");
    byId("token-copied").textContent = "\u00A0";
    byId("new-token").hidden = false;
    byId("secret").focus();
    byId("secret").select();
    await showTokens();
  }, byId("create-token"));
});

byId("copy-token").addEventListener("click", async () => {
  byId("secret").select();
  try {
    await navigator.clipboard.writeText(byId("secret").value);
    byId("token-copied").textContent = words("copied");
  } catch {
    byId("token-copied").textContent = words("copySelected");
  }
});

byId("hide-token").addEventListener("click", () => {
  byId("secret").value = "";
  byId("new-token").hidden = true;
  byId("token-list").focus();
});
