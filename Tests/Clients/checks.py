"""What the scripts with browsers look at, printed line by line; the first thing that does not hold ends them with status 1."""
import time


def check(what, holds, detail=""):
    if not holds:
        raise SystemExit(f"FAILED {what}: {detail}")
    print(what, flush=True)


def until(what, look, within=120, told=None):
    """Waits until something is found, and returns it; `told` says how things are when it was not."""
    end = time.time() + within
    while True:
        try:
            found = look()
        except Exception as error:  # The page is in the middle of a change.
            found = None
            last = error
        else:
            last = None
        if found:
            print(what, flush=True)
            return found
        if time.time() > end:
            raise SystemExit(f"FAILED {what}: not within {within} s; {last or (told() if told else '')}")
        time.sleep(0.05)
