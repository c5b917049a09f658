"use strict";
// Reads the contents of notifications, and shows them as phones and browsers would.

function parsed(notification) {
  try {
    return JSON.parse(notification.payload);
  } catch {
    return null;
  }
}

function object(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
}

// Returns a value of a payload as text. Objects may have a member named toString.
function plain(value) {
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

// Returns the texts and properties of a notification of any protocol.
function contentOf(notification) {
  const document_ = object(parsed(notification));
  const isAndroid = notification.protocol === "fcm";
  const message = object(document_.message);
  // A declarative Web Push message and FCM have the same content under other names.
  const options = object(message.android_v2 ?? message.androidV2);
  const remote = object(options.remote_notification ?? options.remoteNotification);
  const shown = isAndroid ? {
    ...object(message.notification), ...object(object(message.android).notification), ...object(remote.notification),
  } : object(document_.notification);
  const aps = object(document_.aps);
  const alert = document_.aps === undefined ? shown : aps.alert;
  const texts = typeof alert === "object" && alert !== null ? alert : { body: alert };
  // A page's worker may read any text, and any JSON.
  const isOwn = notification.protocol === "webpush" && !notification.delivery && document_.notification === undefined && document_.aps === undefined;
  const data = isOwn ? notification.payload ?? "" : Object.entries(object(message.data)).map((pair) => pair.join(": ")).join("\n");
  const text = (...names) => {
    const found = names.map((name) => texts[name]).find((value) => value !== undefined && value !== null);
    return found === undefined ? undefined : plain(found);
  };
  return {
    aps, message, shown, data,
    title: text("title", "title-loc-key", "title_loc_key"),
    subtitle: text("subtitle", "subtitle-loc-key"),
    body: text("body", "loc-key", "body_loc_key"),
    key: text("loc-key", "title-loc-key", "body_loc_key", "title_loc_key"),
    badge: aps.badge ?? shown.app_badge ?? document_.app_badge ?? shown.notification_count,
    sound: aps.sound?.name ?? aps.sound ?? shown.sound,
    isDeclarative: document_.web_push === 8030,
  };
}

// The parts of a payload that differ between the recipients of one message.
const personal = {
  aps: ["badge"], notification: ["app_badge", "navigate", "data"], message: ["token", "fid"],
};

// Returns a text that is equal for notifications that show the same. Null if a notification forms no group.
function groupOf(notification) {
  if (!notification.token || notification.channel) return null;
  let payload = notification.payload ?? notification.payload_base64 ?? "";
  const document_ = parsed(notification);
  if (object(document_) === document_) {
    delete document_.app_badge;
    for (const [name, fields] of Object.entries(personal)) fields.forEach((field) => delete object(document_[name])[field]);
    delete object(object(object(document_.message).android).notification).notification_count;
    payload = JSON.stringify(document_);
  }
  return [notification.protocol, notification.topic, notification.push_type, notification.answer, payload].join("\n");
}

// Returns the last part of an app's identifier: the name that people know.
function appName(notification) {
  return notification.topic?.split(".").filter((part) => !["push-type", "liveactivity", "voip"].includes(part)).at(-1)
    ?? notification.project ?? words("preview.app");
}

// MARK: The preview

// Returns the picture of a notification, and notes about what the platform would do.
function preview(notification) {
  const figure = element("figure", "preview");
  const { card, notes } = pictured(notification);
  if (card) figure.append(card);
  const caption = element("figcaption");
  caption.append(...notes.filter(Boolean).map((note) => element("p", "hint", note)));
  figure.append(caption);
  return figure;
}

function pictured(notification) {
  if (notification.answer !== "accepted") return { notes: [words("preview.refused", { answer: notification.answer })] };
  if (notification.delivery) return { notes: [words("preview.encrypted")] };
  const content = contentOf(notification);
  if (notification.protocol === "fcm") return android(notification, content);
  if (notification.protocol === "webpush") return webPush(notification, content);
  return apple(notification, content);
}

function apple(notification, content) {
  const { aps } = content;
  if (aps.event !== undefined) return activity(notification, content);
  const type = notification.push_type;
  if (type === "voip") return { notes: [words("preview.voip")] };
  if (type && !["alert", "background"].includes(type)) return { notes: [words("preview.type", { type })] };
  const isWoken = aps["content-available"] === 1;
  const level = aps["interruption-level"];
  const isShown = [content.title, content.subtitle, content.body].some((text) => text);
  const woken = isWoken && words("preview.wakes");
  const badge = content.badge !== undefined && words("preview.badge", { badge: String(content.badge) });
  if (!isShown) return { notes: [words("preview.nothing"), woken, badge, content.sound !== undefined && words("preview.soundOnly")] };
  const card = lockScreen("ios", notification);
  const box = banner(notification, content.badge);
  // Without a title, the system shows the app's name in its place.
  const lines = [
    level === "time-sensitive" && ["level", words("preview.timeSensitive")],
    ["heading", content.title ?? appName(notification)], ["heading", content.subtitle], ["body", content.body],
  ];
  fill(box, lines.filter((line) => line && line[1]));
  card.append(box);
  const notes = [
    words("preview.ios"),
    level === "passive" ? words("preview.passive") : level === "critical" ? words("preview.critical")
      : content.sound === undefined && words("preview.silent"),
    badge, woken,
    content.key && words("preview.key", { key: content.key }),
    aps["mutable-content"] === 1 && words("preview.mutable"),
    aps.category && words("preview.category", { name: String(aps.category) }),
    aps["thread-id"] && words("preview.thread", { name: String(aps["thread-id"]) }),
  ];
  return { card, notes };
}

function activity(notification, { aps, title, body }) {
  const card = lockScreen("ios", notification);
  const box = element("div", "activity");
  box.append(element("strong", "", `${appName(notification)} · ${aps.event}`));
  const state = Object.entries(object(aps["content-state"]));
  if (state.length) {
    const list = element("dl");
    list.append(...facts(state.map(([name, value]) => [name, typeof value === "object" ? JSON.stringify(value) : value])));
    box.append(list);
  }
  if (title ?? body) box.append(element("p", "", [title, body].filter(Boolean).map(isolated).join(": ")));
  card.append(box);
  return { card, notes: [words("preview.activity")] };
}

function android(notification, content) {
  const { message, shown } = content;
  if (!content.title && !content.body) return { notes: [words("preview.dataOnly")] };
  const card = lockScreen("android", notification);
  const box = element("div", "banner-card");
  const head = element("p", "top");
  head.append(element("span", "app-icon small", appName(notification).slice(0, 1).toUpperCase()),
    element("span", "", `${appName(notification)} · ${words("preview.now")}`));
  box.append(head);
  const texts = element("div", "texts");
  fill(texts, [["heading", content.title], ["body", content.body]].filter((line) => line[1]));
  box.append(texts);
  card.append(box);
  const priority = String(object(message.android).priority ?? "normal").toLowerCase();
  return { card, notes: [
    words("preview.android"), priority === "normal" && words("preview.normal"),
    shown.channel_id && words("preview.channel", { name: String(shown.channel_id) }),
    content.key && words("preview.key", { key: content.key }),
    Object.keys(object(message.data)).length > 0 && words("preview.data"),
  ] };
}

function webPush(notification, content) {
  if (!content.title && !content.body) return { notes: [words("preview.worker")] };
  const card = element("div", "screen desktop");
  const box = element("div", "banner-card");
  box.append(element("span", "app-icon", "P"));
  const texts = element("div", "texts");
  fill(texts, [["heading", content.title ?? words("preview.app")], ["body", content.body], ["origin", location.hostname]].filter((line) => line[1]));
  box.append(texts);
  card.append(box);
  return { card, notes: [
    words("preview.browser"), content.isDeclarative && words("preview.declarative"),
    content.shown.silent === true && words("preview.silent"),
    content.shown.navigate && words("preview.opens", { link: String(content.shown.navigate) }),
    content.badge !== undefined && words("preview.badge", { badge: String(content.badge) }),
  ] };
}

// Returns a lock screen with the time at which the notification arrived.
function lockScreen(system, notification) {
  const screen = element("div", "screen " + system);
  const date = new Date(notification.received_at);
  const locale = chosenLocale();
  const day = element("p", "day", date.toLocaleDateString(locale, { weekday: "long", day: "numeric", month: "long" }));
  const time = element("p", "clock", date.toLocaleTimeString(locale, { hour: "2-digit", minute: "2-digit", hour12: false }));
  screen.append(...(system === "ios" ? [day, time] : [time, day]));
  return screen;
}

function banner(notification, badge) {
  const box = element("div", "banner-card");
  const icon = element("span", "app-icon", appName(notification).slice(0, 1).toUpperCase());
  if (Number(badge) > 0) icon.append(element("span", "icon-badge", String(badge)));
  const texts = element("div", "texts");
  box.append(icon, texts, element("span", "when", words("preview.now")));
  return box;
}

function fill(box, lines) {
  const place = box.querySelector(".texts") ?? box;
  for (const [className, text] of lines) {
    const line = element("span", className, text);
    line.dir = "auto";
    place.append(line);
  }
}
