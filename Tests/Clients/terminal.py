#!/usr/bin/env python3
"""Runs a program on a terminal of its own, as somebody types and reads.

Usage: terminal.py STEPS PROGRAM ARGUMENT …
STEPS is a JSON list of {"wait": TEXT}, until the program has written this text after that of the step before, {"type": TEXT},
and {"signal": NUMBER}. Writes what the program has written, with the terminal's control sequences; ends with the program's
status, or with 99 if the terminal is not left as it was found.
"""
import fcntl, json, os, pty, select, signal, sys, termios, time

DEADLINE = time.monotonic() + 120
steps, command = json.loads(sys.argv[1]), sys.argv[2:]
controller, terminal = pty.openpty()
before = termios.tcgetattr(terminal)
child = os.fork()
if child == 0:
    os.setsid()
    # Ctrl-C is a signal only from the terminal that controls the session.
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    for descriptor in 0, 1, 2:
        os.dup2(terminal, descriptor)
    os.execvp(command[0], command)

written, seen = b"", 0


def read():
    """More of what the program writes; false when nothing comes for a moment."""
    global written
    if time.monotonic() > DEADLINE:
        os.kill(child, signal.SIGKILL)
        sys.stdout.buffer.write(written)
        sys.exit(98)
    if not select.select([controller], [], [], 0.1)[0]:
        return False
    written += os.read(controller, 65536)
    return True


for step in steps:
    if "wait" in step:
        text = step["wait"].encode()
        while (found := written.find(text, seen)) < 0:
            read()
        seen = found + len(text)
    elif "type" in step:
        os.write(controller, step["type"].encode())
    else:
        os.kill(child, step["signal"])

while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
    read()
while read():
    pass
sys.stdout.buffer.write(written)
status = os.waitstatus_to_exitcode(ended[1])
sys.exit(99 if termios.tcgetattr(terminal) != before else status if status >= 0 else 128 - status)
