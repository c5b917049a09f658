#!/usr/bin/env python3
"""Uses the pages of relay and sandbox in a real browser, as people do. Plays scenarios in sequence.

Usage: browser_pages.py SCENARIOS RELAY-URL SANDBOX-URL SHELL RELAY-COMMAND…
(SCENARIOS, with commas, are modules of the folder `pages`; SHELL, a list in JSON, runs the SQL that follows it in the relay's
database; the command restarts the relay on the same port; without it the relay runs already)
Needs selenium and axe-core-python from PyPI, chromium and its driver. With BROWSER=firefox it needs firefox-esr instead of them.
Prints a line for each check that passed, and "PASSED scenario" or "FAILED scenario: reason" after each scenario. With
SCREENSHOTS=FOLDER it saves pictures there.
"""
import importlib, sys, traceback

from pages import helper


def play(name, relay):
    """Returns the relay that runs at the end of a scenario."""
    try:
        relay = importlib.import_module("pages." + name).play(relay or (helper.start_again() if helper.COMMAND else None))
        print("PASSED", name, flush=True)
        return relay
    except (Exception, SystemExit) as error:
        if not isinstance(error, SystemExit):
            traceback.print_exc()
        for number, driver in enumerate(helper.browsers):
            try:
                print(f"browser {number}:", driver.get_log("browser"), file=sys.stderr)
            except Exception:
                pass
        print(f"FAILED {name}: {' '.join(str(error).split())}", flush=True)
        # The next scenario starts another relay.
        helper.end_relays()
        return None
    finally:
        helper.end_browsers()


relay = None
try:
    for name in sys.argv[1].split(","):
        relay = play(name, relay)
finally:
    helper.end_relays()
