"""The operator's pages below a path of a site, behind a proxy that removes the path and passes on /v1."""
from checks import check, until
from pages.helper import RELAY, TABS, click, find, operator, quiet, tab


def play(relay):
    driver = operator()
    until("the verdict is there", lambda: find(driver, "verdict").text)
    for name in TABS:
        tab(driver, name)
        check(f"{name}: no call fails", not find(driver, "problem").is_displayed(), find(driver, "problem").text)
    click(driver, "nav a", "API")
    until("the page of all calls is there", lambda: find(driver, "calls").is_displayed())
    click(driver, "summary", "POST")
    until("its lines for a shell name this address", lambda: f"curl -X POST {RELAY}/" in find(driver, "groups").text)
    click(driver, "nav a", "Chat")
    until("the chat is one link away", lambda: driver.current_url == RELAY + "/" and find(driver, "login").is_displayed())
    quiet(driver, "the operator's pages below a path", 401, 503)
    return relay
