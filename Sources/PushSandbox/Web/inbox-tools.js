"use strict";
// The panels of the inbox: devices, browsers, phones, Live Activities, faults, refused connections.

const protocols = ["http2", "binary", "webpush", "broadcast", "channels", "fcm", "fcm_token"];

function protocolName(protocol) {
  return protocols.includes(protocol) ? words("protocols." + protocol) : protocol;
}

// Runs a button's action, and shows its error.
function onClick(id, action) {
  byId(id).addEventListener("click", async () => {
    byId(id).disabled = true;
    try {
      await action();
      showError();
    } catch (error) {
      showError(error);
    } finally {
      byId(id).disabled = false;
    }
  });
}

// The data of each list as JSON. An unchanged list stays, and with it the focus.
const drawn = {};

// Fills a list with one element for each item. Keeps the focus in the list.
function draw(id, items, make) {
  const data = JSON.stringify(items);
  if (drawn[id] === data) return;
  drawn[id] = data;
  const list = byId(id);
  const hadFocus = list.contains(document.activeElement);
  list.replaceChildren(...items.map(make));
  if (!hadFocus) return;
  list.tabIndex = -1;
  list.focus();
}

function actionButton(text, label, action) {
  const button = element("button", "quiet", text);
  button.type = "button";
  button.setAttribute("aria-label", label);
  button.addEventListener("click", () => action().then(() => showError()).catch(showError));
  return button;
}

// MARK: Devices, browsers, phones

// Shows the newest 50, each with a button that removes it.
async function showList(name, action, idOf) {
  const list = await newest(name, 50);
  draw(name, list.reverse(), (each) => {
    const line = element("li");
    const token = element("code", "", each.token);
    token.title = each.token;
    line.append(token);
    if (each.channel_id) line.append(element("span", "hint", words("browsers.real")));
    if (each.removed_at) line.append(element("span", "bad", words("devices.removed")));
    else {
      line.append(actionButton(action, `${action}: ${each.token.slice(0, 8)}`,
        () => callJSON("DELETE", `/${name}/${idOf(each)}`).then(() => showList(name, action, idOf))));
    }
    return line;
  });
}

// Returns the newest `count` elements of a list.
async function newest(name, count) {
  let list = [];
  let next = 0;
  for (;;) {
    const answer = await callJSON("GET", `/${name}?limit=1000&since=${next}`);
    list = list.concat(answer[name]).slice(-count);
    if (answer[name].length < 1000) return list;
    next = answer.next;
  }
}

const devices = () => showList("devices", words("devices.remove"), (device) => device.token);
const browsers = () => showList("browsers", words("browsers.end"), (browser) => browser.id);
const installations = () => showList("installations", words("devices.remove"), (installation) => installation.id);

onClick("make", async () => {
  await callJSON("POST", "/devices", {});
  await devices();
});

onClick("make-browser", async () => {
  const browser = await callJSON("POST", "/browsers", {});
  byId("subscription-text").textContent = JSON.stringify(browser.subscription);
  byId("subscription").hidden = false;
  byId("copied").textContent = "";
  await browsers();
});
onClick("copy", async () => {
  await navigator.clipboard.writeText(byId("subscription-text").textContent);
  byId("copied").textContent = words("copied");
});

onClick("make-installation", async () => {
  const installation = await callJSON("POST", "/installations", {});
  byId("installation-text").textContent = installation.registration_token;
  byId("installation").hidden = false;
  await installations();
});

// MARK: Live Activities

// Shows the newest 20 activities with their contents, and the channels.
async function activities() {
  const { activities } = await callJSON("GET", "/stats");
  const total = activities.active + activities.ended;
  const list = total ? await newest("activities", 20) : [];
  draw("activities", list.reverse(), activityItem);
  const channels = await newest("channels", 50);
  byId("channel-list").hidden = channels.length === 0;
  draw("channels", channels.reverse(), (channel) => {
    const line = element("li");
    const about = words("channels.about", { app: channel.app, policy: String(channel.policy), count: channel.broadcasts });
    line.append(element("code", "", channel.id), element("span", "hint", about));
    return line;
  });
}

function activityItem(activity) {
  const item = element("li");
  const line = element("div", "line");
  const name = element("code", "", activity.token ?? activity.channel ?? words("activities.noToken"));
  name.title = name.textContent;
  line.append(element("span", "", `${activity.id}. ${activity.attributes_type ?? activity.app}`), name);
  if (activity.ended_at) line.append(element("span", "hint", words("activities.ended")));
  else {
    line.append(actionButton(words("activities.end"), words("activities.endNumber", { number: String(activity.id) }),
      () => callJSON("DELETE", "/activities/" + activity.id).then(activities)));
  }
  const states = element("ol");
  for (const state of activity.states.slice(-10)) {
    const text = `${timeText(state.received_at)} ${state.event ?? "?"} ${state.content_state ?? ""}`;
    states.append(element("li", state.shown ? "" : "ignored", state.shown ? text : `${text} (${words("activities.ignored")})`));
  }
  item.append(line, states);
  return item;
}

onClick("make-activity", async () => {
  await callJSON("POST", "/activities", {});
  await activities();
});

// MARK: Faults

const appleProtocols = "http2 binary broadcast channels";
// The protocols that have an action. Without a list, all have it.
const actions = {
  status: "", close: "", reset: appleProtocols, stop_reading: appleProtocols, delay: "", drop: "", close_accepted: "http2 broadcast channels",
  no_update_token: "http2", keep_token: "http2", lose: "broadcast", reorder: "broadcast", goaway: "http2 broadcast channels",
  rate_limit: "webpush", stream_limit: "http2", reset_stream: "http2", refuse_stream: "http2", expire_token: "http2 fcm",
};
// The additional fields of an action: by protocol, with an example. A number as example makes a field for numbers.
const actionFields = {
  status: {
    http2: { reason: "Unregistered" }, binary: { status: 8 }, webpush: { status: 503, retry_after: 5 },
    broadcast: { reason: "ChannelNotRegistered" }, channels: { reason: "CannotCreateChannelConfig" },
    fcm: { reason: "UNREGISTERED" }, fcm_token: { reason: "invalid_grant" },
  },
  stop_reading: { all: { delay_ms: 5000 } },
  delay: { all: { delay_ms: 2000 } },
  rate_limit: { webpush: { limit: 1000 } },
  stream_limit: { http2: { limit: 10 } },
};

function showActions() {
  const protocol = byId("fault-protocol").value;
  byId("fault-action").replaceChildren(...Object.entries(actions)
    .filter(([, list]) => !list || list.split(" ").includes(protocol))
    .map(([name]) => new Option(words("action." + name), name)));
  showFields();
}

function showFields() {
  const wanted = actionFields[byId("fault-action").value];
  const fields = wanted?.[byId("fault-protocol").value] ?? wanted?.all ?? {};
  byId("fault-more").replaceChildren(...Object.entries(fields).map(([name, example]) => {
    const box = element("div");
    const title = element("label", "", words("fields." + name));
    title.htmlFor = "fault-" + name;
    const field = element("input");
    Object.assign(field, { id: "fault-" + name, name, type: typeof example === "number" ? "number" : "text", value: example, required: true });
    box.append(title, field);
    return box;
  }));
}

byId("fault-protocol").addEventListener("change", showActions);
byId("fault-action").addEventListener("change", showFields);
byId("fault").addEventListener("submit", async (event) => {
  event.preventDefault();
  const fault = {
    protocol: byId("fault-protocol").value,
    action: byId("fault-action").value,
    times: Number(byId("fault-times").value),
    after: Number(byId("fault-after").value),
  };
  const token = byId("fault-token").value.trim();
  if (token) fault.token = token;
  for (const field of byId("fault-more").querySelectorAll("input")) {
    fault[field.name] = field.type === "number" ? Number(field.value) : field.value;
  }
  try {
    await callJSON("POST", "/faults", fault);
    await faults();
    showError();
  } catch (error) {
    showError(error);
  }
});

async function faults() {
  const { faults } = await callJSON("GET", "/faults");
  draw("faults", faults.slice().reverse(), (fault) => {
    const text = [protocolName(fault.protocol), fault.action in actions ? words("action." + fault.action) : fault.action];
    if (fault.reason ?? fault.status) text.push(fault.reason ?? fault.status);
    if (fault.token) text.push(words("faults.for", { token: fault.token.slice(0, 8) }));
    const line = element("li", fault.hit >= fault.times ? "spent" : "");
    line.append(element("span", "", text.join(" ")), element("span", "hint", words("faults.hit", { hit: fault.hit, times: fault.times })));
    return line;
  });
  const open = faults.filter((fault) => fault.hit < fault.times).length;
  byId("fault-count").textContent = open ? words("faults.open", { count: open }) : "";
  byId("clear-faults").hidden = faults.length === 0;
}

onClick("clear-faults", async () => {
  await callJSON("DELETE", "/faults");
  await faults();
});

// MARK: Refused connections

function refused(listeners) {
  const counts = ["handshakes_failed", "no_alpn", "no_preface", "no_tunnel", "refused"];
  return listeners.flatMap((listener) => counts.map((name) => listener?.connections[name] ?? 0)).reduce((sum, count) => sum + count);
}

function showRefusals(refusals, count) {
  byId("refused-count").textContent = count ? String(count) : "";
  byId("refused-none").hidden = refusals.length > 0;
  byId("refused-about").hidden = refusals.length === 0;
  draw("refusals", refusals.slice().reverse(), (refusal) => {
    const line = element("li");
    line.append(element("span", "hint", `${timeText(refusal.refused_at)} ${protocolName(refusal.listener)}`), element("span", "", refusal.message));
    return line;
  });
}
