#!/usr/bin/env python3
"""Runs a program on a new terminal, and types and reads like a user.

Usage: terminal.py STEPS PROGRAM ARGUMENT …
STEPS is a JSON list of {"wait": TEXT}, {"type": TEXT} and {"signal": NUMBER}. "wait" waits until the program has written this text
after that of the previous step. Prints the program's output with the terminal's control sequences. Ends with the program's
status, or with 99 if the program did not restore the terminal's settings.
"""
import fcntl, json, os, pty, select, signal, sys, termios, time

DEADLINE = time.monotonic() + 120
steps, command = json.loads(sys.argv[1]), sys.argv[2:]
controller, terminal = pty.openpty()
before = termios.tcgetattr(terminal)
child = os.fork()
if child == 0:
    os.setsid()
    # Ctrl-C sends a signal only from the session's controlling terminal.
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    for descriptor in 0, 1, 2:
        os.dup2(terminal, descriptor)
    os.execvp(command[0], command)

written, seen = b"", 0


def read():
    """Reads more of the program's output. Returns false if none comes for a moment."""
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
