"use strict";
// "Use another app": passwords for clients of ntfy and Gotify, and the lines to enter there. A password is a credential of the
// chat API. It reads and writes as the member.

// The clients require a user name. The relay accepts any.
const anyUser = "me";

const appKinds = {
  ntfy: {
    steps: "apps.stepsNtfy",
    rows: ({ topic, credential }) => [
      ["topic", topic], ["server", setting("ntfy-url", "/ntfy")], ["user", anyUser], ["password", credential],
    ],
  },
  gotify: {
    steps: "apps.stepsGotify",
    rows: ({ credential }) => [
      ["url", setting("gotify-url", "/gotify")], ["user", anyUser], ["password", credential],
    ],
  },
};

// The room of the dialog, and its new credential.
let appRoom = null;
let newApp = null;

function callForApps(fields) {
  return call(appRoom, { cmd: "credential", ...fields });
}

function sayInApps(text) {
  byId("app-status").textContent = text || "\u00A0";
}

// Runs an action of the dialog. Shows its error.
async function attemptInApps(button, action) {
  button.disabled = true;
  try {
    await action();
  } catch (error) {
    sayInApps(error instanceof Refused ? error.message : words("unreachable"));
  } finally {
    button.disabled = false;
  }
}

// MARK: The lines to enter

function showLines() {
  const kind = appKinds[document.querySelector("[name=app-kind]:checked").value];
  byId("app-steps").textContent = words(kind.steps);
  byId("app-rows").replaceChildren(...kind.rows(newApp).map(([key, value]) => {
    const name = words("apps." + key);
    const label = element("label", "", name);
    const field = element("textarea", "", value);
    field.readOnly = true;
    field.rows = value.length > 24 ? 2 : 1;
    label.append(field);
    const button = element("button", "quiet", words("apps.copy"));
    button.type = "button";
    button.append(element("span", "only-spoken", " " + name));
    button.addEventListener("click", () => copyFrom(field, byId("app-status"), name));
    const row = element("div");
    row.append(label, button);
    return row;
  }));
}

document.querySelectorAll("[name=app-kind]").forEach((input) => input.addEventListener("change", showLines));

function showNewApp(app) {
  newApp = app;
  byId("app-form").hidden = true;
  byId("app-lines").hidden = false;
  byId("app-only-here").hidden = !isOnlyHere(setting("ntfy-url", "/ntfy"));
  showLines();
}

// The picture is a link to this page, which shows the lines on the other device. The fragment is not sent to any server.
function showAppPicture({ topic, credential }) {
  const link = setting("public-url", "") + "/#" + new URLSearchParams({ app: credential, topic });
  // Another device could not open the link.
  const code = isOnlyHere(link) ? null : qrCode(encoder.encode(link));
  byId("app-qr").hidden = byId("app-scan").hidden = !code;
  if (code) byId("app-qr").replaceChildren(drawing(code));
}

// Shows the lines of a link from another device's picture. Ignores any other text, so that a link cannot show foreign words.
function showAppLink(fragment) {
  const [credential, topic] = [fragment.get("app") ?? "", fragment.get("topic") ?? ""];
  if (!/^pcc_[\w-]{43}$/.test(credential) || !/^[\w-]{22}$/.test(topic)) return;
  history.replaceState(null, "", location.pathname);
  appRoom = null;
  showNewApp({ topic, credential });
  byId("app-own").hidden = byId("app-scan").hidden = byId("app-qr").hidden = true;
  sayInApps("");
  if (!byId("apps").open) byId("apps").showModal();
}

// MARK: The list

const dateOf = new Intl.DateTimeFormat(chosenLocale(), { dateStyle: "medium", timeStyle: "short" });

async function listApps() {
  const { credentials } = await callForApps({ action: "list" });
  byId("app-own").hidden = credentials.length === 0;
  byId("app-list").replaceChildren(...credentials.map((app) => {
    const text = element("div");
    text.append(element("bdi", "", plain(app.name)), element("span", "hint", app.last_used_at
      ? words(app.last_used_from ? "apps.usedFrom" : "apps.used", {
        time: dateOf.format(new Date(app.last_used_at)), address: app.last_used_from })
      : words("apps.unused")));
    const button = element("button", "quiet", words("apps.revoke"));
    button.type = "button";
    button.append(element("span", "only-spoken", " " + plain(app.name)));
    button.addEventListener("click", () => revokeApp(app, button));
    const item = element("li");
    item.append(text, button);
    return item;
  }));
}

// The first press asks, the second one revokes.
function revokeApp(app, button) {
  if (!button.dataset.asked) {
    button.dataset.asked = true;
    button.firstChild.data = words("apps.sure");
    return sayInApps(words("apps.ask", { app: app.name }));
  }
  attemptInApps(button, async () => {
    await callForApps({ action: "revoke", id: app.id });
    sayInApps(words("apps.revoked", { app: app.name }));
    if (newApp?.id === app.id) byId("app-lines").hidden = true;
    await listApps();
    byId(byId("app-own").hidden ? "apps-title" : "app-own-title").focus();
  });
}

// MARK: The dialog

byId("use-app").addEventListener("click", () => {
  byId("menu").hidePopover();
  appRoom = current;
  newApp = null;
  byId("app-form").hidden = false;
  byId("app-lines").hidden = byId("app-own").hidden = true;
  sayInApps("");
  byId("apps").showModal();
  attemptInApps(byId("app-make"), listApps);
});

byId("app-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sayInApps("");
  attemptInApps(byId("app-make"), async () => {
    const app = await callForApps({ name: byId("app-name").value.trim() });
    byId("app-name").value = "";
    showNewApp(app);
    showAppPicture(app);
    byId("app-lines-title").focus();
    await listApps();
  });
});

byId("apps-close").addEventListener("click", () => byId("apps").close());
// A password on the screen is enough. It must not stay in the page.
byId("apps").addEventListener("close", () => {
  newApp = null;
  byId("app-rows").replaceChildren();
  byId("app-qr").replaceChildren();
});
