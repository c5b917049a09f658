"""Checks for the scripts. Each prints a line; the first that fails ends the script with status 1."""
import asyncio, random, socket, time

# Sockets whose names reserve this process's ports, so that no other script gets the same port.
claims = []


def check(what, holds, detail=""):
    if not holds:
        raise SystemExit(f"FAILED {what}: {detail}")
    print(what, flush=True)


def until(what, look, within=120, told=None):
    """Waits until `look` returns a true value, and returns that. `told` describes the state after a timeout."""
    end = time.time() + within
    while True:
        try:
            found = look()
        except Exception as error:  # The page is changing at the moment.
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


async def reached(what, look, within=60, told=None):
    """As `until`, while other tasks run."""
    end = time.time() + within
    while not look():
        if time.time() > end:
            raise SystemExit(f"FAILED {what}: not within {within} s; {told() if told else ''}")
        await asyncio.sleep(0.02)
    print(what, flush=True)


def free_port():
    """Returns a free port below the range from which the system chooses ports for connections, so that no connection takes it.

    No other script gets the same port while this one runs.
    """
    while True:
        number, claim = random.randrange(10_000, 32_000), socket.socket(socket.AF_UNIX)
        with socket.socket(socket.AF_INET6) as held:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            try:
                claim.bind(f"\0pushchat-test-port-{number}")
                held.bind(("::", number))
            except OSError:
                claim.close()
                continue
        claims.append(claim)
        return number
