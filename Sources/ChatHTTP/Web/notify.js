"use strict";
// Notifications: the service worker that shows them, the subscription that they need, and help if they do not work.

const registered = navigator.serviceWorker?.register(at("/sw.js")).catch(() => null) ?? Promise.resolve(null);
let subscription = null;
// The time in milliseconds for the browser's push service to subscribe. With the relay's key, a person waits no longer than 15 s.
const subscribeLimit = 12000;
// The time in milliseconds after which the page says that it waits.
const patience = 2000;
// Chrome subscribes to this host, which does not exist, for a moment after the end of another subscription.
const removedHost = "permanently-removed.invalid";
// The waits in milliseconds before each other try to get a host that exists.
const removedWaits = [500, 1000, 2000, 4000];
let isChanging = false;
let changes = Promise.resolve();

// Returns the reason why notifications are impossible. Null if they are possible.
function obstacle() {
  const isInstalled = matchMedia("(display-mode: standalone)").matches || navigator.standalone === true;
  // An iPad claims to be a Mac.
  const isHandheldOfApple = /iPhone|iPad|iPod/.test(navigator.userAgent)
    || (navigator.platform === "MacIntel" && navigator.maxTouchPoints > 1);
  if (!isSecureContext) return words("notify.insecure");
  if (isHandheldOfApple && !isInstalled) return words("notify.install");
  if (!("serviceWorker" in navigator && "PushManager" in window && "Notification" in window)) return words("notify.unsupported");
  if (Notification.permission === "denied") return isInstalled ? words("notify.blockedInApp") : words("notify.blocked");
  return null;
}

function explain(text) {
  byId("notify-notice").hidden = !text;
  byId("notify-text").textContent = text;
}

function showSwitch() {
  byId("notify-label").textContent = words(subscription ? "notify.stop" : "notify.start");
  byId("notify").title = byId("notify-label").textContent;
  byId("notify").classList.toggle("on", subscription !== null);
}

// MARK: The subscription

// Runs changes one after the other, so that a renewal that began earlier cannot subscribe again after a stop. Shows an error to
// the user.
function change(work) {
  changes = changes.then(work).catch((error) => explain(error.message)).then(showSwitch);
  return changes;
}

async function pushManager() {
  if (!await registered) throw new Error("there is no worker");
  return (await navigator.serviceWorker.ready).pushManager;
}

// Subscribes unless a subscription with the relay's key exists, and sends it to the relay for each room.
// Throws an error with a message for the user.
async function subscribe() {
  let key;
  try {
    const answer = await fetchJSON("/webpush/key", { headers: { Accept: "application/json" } });
    key = Uint8Array.from(atob(answer.key.replaceAll("-", "+").replaceAll("_", "/")), (character) => character.charCodeAt(0));
  } catch (error) {
    throw new Error(error instanceof Refused ? (error.status === 404 ? words("notify.none") : error.message) : words("unreachable"));
  }
  await subscribeWith(key);
  try {
    await sendSubscriptions();
  } catch (error) {
    if (error.code !== "conflict") throw error;
    // The relay has other keys for this endpoint and keeps them. Only a new endpoint helps.
    await subscription.unsubscribe();
    await subscribeWith(key);
    await sendSubscriptions();
  }
}

async function subscribeWith(key) {
  try {
    subscription = await inTime(subscriptionWith(key));
  } catch (error) {
    subscription = null;
    throw new Error(obstacle() ?? words("notify.push", { reason: error.message }));
  }
}

// Waits for the browser, whose push service may never answer.
function inTime(work) {
  return Promise.race([work, pause(subscribeLimit).then(() => { throw new Error(words("notify.silent")); })]);
}

function pause(time) {
  return new Promise((done) => setTimeout(done, time));
}

// Returns the browser's subscription, or a new one. A subscription with another key was made for another database, whose
// key the relay no longer has.
async function subscriptionWith(key) {
  const manager = await pushManager();
  const known = await manager.getSubscription();
  if (known && !isRemoved(known) && isEqual(new Uint8Array(known.options.applicationServerKey ?? []), key)) return known;
  await known?.unsubscribe();
  for (const wait of [...removedWaits, null]) {
    const made = await manager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
    if (!isRemoved(made)) return made;
    await made.unsubscribe();
    if (wait !== null) await pause(wait);
  }
  throw new Error(removedHost);
}

function isRemoved({ endpoint }) {
  return new URL(endpoint).hostname === removedHost;
}

async function sendSubscriptions() {
  for (const room of rooms.slice()) await sendSubscription(room);
}

function isEqual(first, second) {
  return first.length === second.length && first.every((byte, index) => byte === second[index]);
}

// Sends the subscription to the relay, as the target of a room's pushes.
async function sendSubscription(room) {
  if (!subscription) return;
  try {
    await call(room, { cmd: "update", subscription: JSON.stringify(subscription) });
  } catch (error) {
    if (isGone(error)) return forget(room);
    throw error instanceof Refused ? error : new Error(words("unreachable"));
  }
}

// Renews the subscription at the start, and after a change by another tab or the worker. Never asks for permission.
function renew() {
  return change(async () => {
    const isWanted = memory.get("notify", false) && !obstacle() && Notification.permission === "granted";
    try {
      subscription = isWanted ? await (await pushManager()).getSubscription() : null;
      showSwitch();
      if (isWanted) await subscribe();
    } catch (error) {
      // Without a connection nothing changes.
      if (error.message !== words("unreachable")) throw error;
    }
  });
}

async function start() {
  const problem = obstacle();
  if (problem) return explain(problem);
  const hint = setTimeout(() => explain(words("notify.waiting")), patience);
  try {
    await subscribeWithPermission();
  } finally {
    clearTimeout(hint);
  }
}

async function subscribeWithPermission() {
  const permission = await Notification.requestPermission();
  if (permission !== "granted") return explain(obstacle() ?? words("notify.dismissed"));
  try {
    await subscribe();
    memory.set("notify", true);
    explain("");
  } catch (error) {
    await subscription?.unsubscribe();
    subscription = null;
    throw error;
  }
}

async function stop() {
  const ended = subscription;
  memory.set("notify", undefined);
  if (!ended) return;
  subscription = null;
  // If this fails, the push service's response to the next push tells the relay.
  const told = callRelay("/push_chat_service.php", { cmd: "unregister", subscription: JSON.stringify(ended) }).catch(() => {});
  await Promise.all([told, inTime(ended.unsubscribe())]);
}

byId("notify").addEventListener("click", async () => {
  if (isChanging) return;
  isChanging = true;
  explain("");
  const isStop = subscription !== null;
  await change(() => isStop ? stop() : start());
  isChanging = false;
});
byId("notify-close").addEventListener("click", () => {
  explain("");
  byId("notify").focus();
});
addEventListener("storage", (event) => {
  if (event.key === storageKey("notify")) renew();
});

// MARK: The worker

// Closes the notifications of messages that were read or deleted.
async function closeNotifications(isOver) {
  const notifications = await (await registered)?.getNotifications?.().catch(() => []) ?? [];
  notifications.filter(isOver).forEach((notification) => notification.close());
}

navigator.serviceWorker?.addEventListener("message", ({ data }) => {
  const room = rooms.find((room) => isNamed(room, data.room));
  if (data.type === "open" && room) open(room);
  if (data.type === "push" && room) {
    countUnread(room);
    if (room === current) seen();
  }
  if (data.type === "subscription") renew();
});
