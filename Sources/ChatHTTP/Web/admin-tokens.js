"use strict";
// The operator's page: programs' tokens.

// The number of tokens to list.
const maxTokens = 200;

// Lists the tokens. Hides the section if the relay does not support them.
async function showTokens() {
  let page;
  try {
    page = await call("GET", "/v1/tokens?limit=" + maxTokens);
  } catch (error) {
    return showSection("tokens", "token-list", error);
  }
  byId("tokens").hidden = false;
  const box = element("div");
  if (!page.tokens.length) box.append(element("p", "hint", words("noMatch")));
  else {
    box.append(table([
      "column.name", "column.scopes", "column.room", "column.to", "column.expires", "column.used", "column.from", "column.actions",
    ], page.tokens.map((token) => [
      token.name, token.scopes.join(", "), token.room ?? words("any"), audienceOf(token.to), endOf(token.expires_at, words("never")),
      token.last_used_at ? clock(token.last_used_at) : words("never"), token.last_used_from,
      actions([[words("revoke.verb"), token.name, "token-" + token.id, () => revoke(token)]]),
    ])));
  }
  if (page.next) box.append(element("p", "hint", words("tokens.more", { command: "pushchat token list" })));
  update(byId("token-list"), box);
}

function audienceOf(to) {
  if (!to) return words("to.anyone");
  return [...(to.users ?? []).map(isolated), ...(to.tags ?? []).map((tag) => words("to.tags", { names: tag }))].join(", ");
}

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
    const scopes = [...document.querySelectorAll("[name=scope]:checked")].map((box) => box.value);
    if (!scopes.length) throw Object.assign(new Error(words("tokens.noScope")), { field: "scopes" });
    const body = { name: byId("token-name").value.trim(), scopes };
    const [room, days] = [byId("token-room").value.trim(), Number(byId("token-days").value)];
    if (room) body.room = room;
    if (days) body.expires_at = later(days * 86400);
    const { token } = await call("POST", "/v1/tokens", body);
    byId("create-token").reset();
    byId("secret").value = token;
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
