"""A first visit: content without scripts, and a layout that does not shift."""

from selenium.webdriver.common.by import By

from checks import check, until
from pages.helper import DESKTOP, PHONE, RELAY, SANDBOX, browsers, browser, find


SHIFTS = """
const done = arguments[arguments.length - 1];
let sum = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) sum += entry.value;
}).observe({ type: "layout-shift", buffered: true });
setTimeout(() => done(sum), 500);
"""


def play(relay):
    """Checks for a first visit that a page shows content without scripts, and that its layout does not shift when they run."""
    pages = [
        (RELAY + "/", "login", "login"), (RELAY + "/admin", "the operator's page", "figures"), (SANDBOX + "/", "inbox", "figures")]
    for size in (DESKTOP, PHONE):
        driver = browser(size)
        for address, what, shown in pages:
            driver.execute_cdp_cmd("Network.clearBrowserCache", {})
            driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": address, "storageTypes": "all"})
            driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
            driver.get(address)
            check(f"{what}: shows content without scripts",
                  len(driver.find_element(By.TAG_NAME, "body").text) > 60 and driver.find_element(By.TAG_NAME, "h1").is_displayed())
            driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
            driver.get(address)
            until(f"{what} is shown", lambda: find(driver, shown).is_displayed())
            shift = driver.execute_async_script(SHIFTS)
            check(f"{what}: the layout shifts by {shift:.3f}, less than 0.1", shift < 0.1, shift)
        browsers.remove(driver)
        driver.quit()
    return relay
