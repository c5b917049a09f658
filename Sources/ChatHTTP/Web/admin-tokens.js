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
  if (!page.tokens.length) box.append(element("p", "hint", "There is none."));
  else {
    box.append(table(["Name", "Scopes", "Room", "To", "Expires", "Last used", "From", "Actions"], page.tokens.map((token) => [
      token.name, token.scopes.join(", "), token.room ?? "any", audienceOf(token.to), endOf(token.expires_at, "never"),
      token.last_used_at ? clock(token.last_used_at) : "never", token.last_used_from,
      actions([["Revoke", token.name, "token-" + token.id, () => revoke(token)]]),
    ])));
  }
  if (page.next) box.append(element("p", "hint", "There are more; pushchat token list shows all."));
  update(byId("token-list"), box);
}

function audienceOf(to) {
  if (!to) return "anyone";
  return [...(to.users ?? []), ...(to.tags ?? []).map((tag) => "tag " + tag)].join(", ");
}

function revoke(token) {
  ask(
    { title: "Revoke " + token.name + "?", text: "Programs that use this token are refused from now on.", verb: "Revoke" },
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
    if (!scopes.length) throw new Error("Choose what the token may do.");
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
  });
});

byId("copy-token").addEventListener("click", async () => {
  byId("secret").select();
  try {
    await navigator.clipboard.writeText(byId("secret").value);
    byId("token-copied").textContent = "Copied";
  } catch {
    byId("token-copied").textContent = "Copy the selected token";
  }
});

byId("hide-token").addEventListener("click", () => {
  byId("secret").value = "";
  byId("new-token").hidden = true;
  byId("token-list").focus();
});
