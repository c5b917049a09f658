#!/usr/bin/env python3
"""gotify-tray, a desktop client of Gotify, unmodified and whole, on Qt's offscreen platform. The relay is killed under it.

Usage: tray_client.py FOLDER RELAY-COMMAND…
The client keeps its settings below FOLDER. Prints a line for each check that passed. Ends with status 1 at the first that failed.
"""
import os, sys

FOLDER = sys.argv[1]
os.environ.update(QT_QPA_PLATFORM="offscreen", HOME=FOLDER, TMPDIR=FOLDER, XDG_CONFIG_HOME=FOLDER + "/config",
                  XDG_CACHE_HOME=FOLDER + "/cache", XDG_DATA_HOME=FOLDER + "/data", XDG_RUNTIME_DIR=FOLDER)

import checks
from checks import check
from relay import administered

relay = administered(sys.argv[2:])
relay.start()
phone, one = relay.token("desktop", "read", "post"), relay.token("kitchen", "read", room="kitchen")
for number in range(3):
    relay.post("kitchen", f"old {number}")
relay.post("hall", "in the hall")

from gotify_tray.database import Settings
from gotify_tray.gotify import GotifyApplication, GotifyClient, GotifyErrorModel
from gotify_tray.gui.MainApplication import MainApplication
from gotify_tray.gui.models import ApplicationItemDataRole, MessageItemDataRole
from gotify_tray.tasks import VerifyServerInfoTask

app = MainApplication(sys.argv[:1])
app.setApplicationName("Gotify Tray")
app.setQuitOnLastWindowClosed(False)


def until(what, look, told=None):
    """Waits until `look` returns a true value, while the client runs."""
    def turn():
        app.processEvents()
        return look()

    checks.until(what, turn, told=told)


def verify(server, token):
    """Returns what the client's dialog for a new server says."""
    said = []
    task = VerifyServerInfoTask(server, token)
    for name in ("success", "incorrect_token", "incorrect_url"):
        getattr(task, name).connect(lambda name=name: said.append(name))
    task.start()
    until(f"the dialog says something about {token[:4]}… at {server.rpartition('/')[2] or 'the root'}", lambda: said)
    task.wait()
    return said[0]


def shown():
    """Returns the texts in the window, the newest first."""
    model = app.messages_model
    return [model.item(row, 0).data(MessageItemDataRole.MessageRole).message for row in range(model.rowCount())]


def select(name):
    """Selects an application in the window."""
    def look():
        model = app.application_proxy_model
        rows = [row for row in range(model.rowCount()) if model.index(row, 0).data() == name]
        if rows and app.main_window.listView_applications.isEnabled():
            app.main_window.listView_applications.setCurrentIndex(model.index(rows[0], 0))
        return rows

    until(f"{name} is selected", look)


server = relay.base + "/gotify"
check("the dialog accepts server and token", verify(server, phone) == "success")
check("the dialog rejects a wrong token", verify(server, "pct_wrong") == "incorrect_token")
check("the dialog rejects a wrong path", verify(relay.base + "/nothing", phone) == "incorrect_url")

settings = Settings("gotify-tray")
settings.setValue("Server/url", server)
settings.setValue("Server/client_token", phone)
app.set_theme()
app.init_ui()
client = app.gotify_client
until("it listens", client.is_listening)
until("it shows all messages", lambda: shown() == ["in the hall", "old 2", "old 1", "old 0"], told=shown)
names = [app.application_model.item(row, 0).text() for row in range(app.application_model.rowCount())]
check("it shows the rooms", {"kitchen", "hall"} <= set(names), names)
icons = [app.application_model.item(row, 0).icon() for row in range(1, len(names))]
check("with their pictures", all(not icon.isNull() and icon.availableSizes() for icon in icons), names)
select("kitchen")
until("one room's messages", lambda: shown() == ["old 2", "old 1", "old 0"], told=shown)
select("ALL MESSAGES")
until("all messages again", lambda: len(shown()) == 4, told=shown)

relay.post("kitchen", "live", title="Now", priority=10)
until("a live message appears on top", lambda: shown()[:2] == ["live", "in the hall"], told=shown)
check("its other calls work", not isinstance(client.version(), GotifyErrorModel) and client.health().health == "green")

for round in (1, 2):
    before = shown()
    relay.restart(meanwhile=lambda other: [other.post(room, f"outage {round} in the {room}") for room in ("kitchen", "hall")])
    until(f"it listens again after kill {round}", client.is_listening)
    wanted = [f"outage {round} in the hall", f"outage {round} in the kitchen", *before]
    until("it shows each missed message once", lambda: shown() == wanted, told=shown)
    relay.post("hall", f"after kill {round}")
    until("and later ones", lambda: shown() == [f"after kill {round}", *wanted], told=shown)

top = app.messages_model.item(0, 0)
app.delete_message_callback(top)
until("a message is deleted", lambda: app.delete_message_task.isFinished())
left = shown()
app.main_window.refresh.emit()
until("it stays away after a refresh", lambda: shown() == left, told=shown)
check("the room keeps it", relay.ask("GET", "/gotify/message?limit=1", headers={"X-Gotify-Key": one})[0] == 200)
app.delete_all_messages_callback(app.application_model.item(0, 0))
until("all messages are deleted", lambda: app.delete_all_messages_task.isFinished())
app.main_window.refresh.emit()
until("the rooms are there again", lambda: app.main_window.listView_applications.isEnabled())
until("no message is left", lambda: shown() == [] and app.get_messages_task.isFinished(), told=shown)
client.quit()

single = GotifyClient(server, one)
check("a token of one room has one application", [each.name for each in single.get_applications()] == ["kitchen"])
foreign = [item for item in client.get_applications() if item.name == "hall"][0]
check("and no other", isinstance(single.get_application_messages(foreign.id), GotifyErrorModel))

relay.kill()
relay.start("--set", "http.gotify_at_root=on")
check("the dialog accepts the root", verify(relay.base, phone) == "success")
root, got = GotifyClient(relay.base, phone), []
root.new_message.connect(lambda message: got.append(message.message))
root.listen()
until("it listens at the root", root.is_listening)
relay.post("kitchen", "at the root")
until("and gets a message", lambda: got == ["at the root"], told=lambda: got)
root.stop()
relay.kill()
# Threads of the client that sleep would keep the process.
sys.stdout.flush()
os._exit(0)
