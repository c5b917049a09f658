"""What the scripts look at, printed line by line; the first thing that does not hold ends them with status 1."""
import random, socket, time

# Ports that this process was given, each with a name that nobody else can take meanwhile.
claims = []


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


def free_port():
    """Below the range from which the system takes ports for connections: one of those might take it meanwhile. No script is given the
    same while this one runs."""
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
