"use strict";
// Shows pushes, and caches the page for use without a connection. Never caches messages.

importScripts("texts.js", "texts-en.js", "texts-de.js");

// The address of the chat page, which is the relay's root.
const root = new URL("./", location);
// Servers below other paths of the same origin have other caches.
const own = root.pathname === "/" ? "" : root.pathname;
const version = own + "{{version}}";
const shell = [
  "./", "base.css", "base.js", "texts.js", "texts-en.js", "texts-de.js", "chat.css", "qr.js", "rooms.js", "notify.js", "apps.js", "sheets.js", "markdown.js", "chat.js", "icon.svg", "icon-192.png",
  "manifest.webmanifest",
].map((file) => new URL(file, root).pathname);

addEventListener("install", (event) => {
  event.waitUntil(caches.open(version).then((cache) => cache.addAll(shell)).then(() => skipWaiting()));
});

// Whether a cache belongs to another version of this worker.
function isOld(name) {
  return name !== version && name.startsWith(own) && !name.slice(own.length).includes("/");
}

addEventListener("activate", (event) => {
  event.waitUntil(
    caches.keys().then((names) => Promise.all(names.filter(isOld).map((name) => caches.delete(name))))
      .then(() => clients.claim()));
});

addEventListener("fetch", (event) => {
  const address = new URL(event.request.url);
  if (event.request.method !== "GET" || address.origin !== location.origin || !shell.includes(address.pathname)) return;
  // Use the network first, and the cache if that fails.
  event.respondWith(
    fetch(event.request).then((response) => {
      if (response.ok) {
        const copy = response.clone();
        event.waitUntil(caches.open(version).then((cache) => cache.put(address.pathname, copy)));
      }
      return response;
    }).catch(() => caches.match(address.pathname).then((kept) => kept ?? Response.error())));
});

// MARK: Pushes

addEventListener("push", (event) => event.waitUntil(show(event.data)));

// Shows a notification for every push, even while a page is open. Browsers revoke the permission of sites that show none.
async function show(data) {
  let push = {};
  try {
    push = data.json() ?? {};
  } catch {
    // No JSON, or no data.
  }
  const { title, body, tag, silent, renotify, navigate, data: more } = push.notification ?? {};
  const text = (value, otherwise) => (typeof value === "string" && value ? value : otherwise);
  const kept = { ...(typeof more === "object" ? more : {}), navigate: text(navigate) };
  await registration.showNotification(text(title, "PushChat"), {
    body: text(body, text(title) ? "" : words("messages.something")),
    tag: text(tag, ""),
    silent: silent === true,
    // A browser rejects it without a tag.
    renotify: renotify === true && Boolean(text(tag)),
    icon: new URL("icon-192.png", root).href,
    data: kept,
  });
  await tell({ type: "push", room: kept.room });
  // The relay's count of unread messages is in one of two places, as browsers support both. A visible page has a better count.
  const isCounted = (await pages()).some((page) => page.visibilityState === "visible");
  const number = kept.room && isCounted ? null : push.app_badge ?? push.notification?.app_badge;
  const badge = number ?? (isCounted ? null : (await registration.getNotifications()).length);
  if (Number.isSafeInteger(badge) && badge >= 0) await navigator.setAppBadge?.(badge).catch(() => {});
}

// Returns the chat's windows, most recently used first.
async function pages() {
  const windows = await clients.matchAll({ type: "window", includeUncontrolled: true });
  return windows.filter((client) => new URL(client.url).pathname === root.pathname);
}

async function tell(message) {
  for (const page of await pages()) page.postMessage(message);
}

addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(follow(event.notification.data ?? {}));
});

async function follow({ room, navigate }) {
  const link = navigate && URL.canParse(navigate) ? new URL(navigate) : null;
  const isElsewhere = link?.protocol.startsWith("http") && (link.origin !== root.origin || link.pathname !== root.pathname);
  // The link may contain another name of the relay. A link to a room opens in the page that is already open.
  const isRoom = room && link?.hash === "#room=" + room;
  if (isElsewhere && !isRoom) return clients.openWindow(link.href);
  const [page] = await pages();
  if (!page) return clients.openWindow(room ? root.href + "#room=" + room : root.href);
  // Some systems do not let the page come to the front. It shows the room anyway.
  await page.focus().catch(() => {});
  if (room) page.postMessage({ type: "open", room });
}

// The browser has ended the subscription. A page sends the new one to the relay, now or when it is next opened.
addEventListener("pushsubscriptionchange", (event) => event.waitUntil(renew(event.oldSubscription)));

async function renew(old) {
  try {
    const options = old?.options ?? { applicationServerKey: (await (await fetch("webpush/key")).json()).key };
    await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: options.applicationServerKey });
  } finally {
    await tell({ type: "subscription" });
  }
}
