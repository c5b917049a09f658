"""The gateways that the relay pushes to: a C program that counts, and nghttpd, an independent server."""
import contextlib, os, socket, subprocess, time

import bench

# The only device that nghttpd knows.
DEVICE = "a" * 64


class Sink:
    """The C gateway that counts pushes. It supports both protocols."""

    def __init__(self, folder, credentials):
        program = bench.compile_c(folder, "Tests/Benchmarks/sink.c", "-lssl", "-lcrypto", "-lnghttp2")
        self.process = subprocess.Popen(
            [program, credentials + "/server.pem"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def tell(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def arrived(self):
        """Seconds from the first byte to the last expected push, and the number of duplicates."""
        _, seconds, repeats = self.process.stdout.readline().split()
        return float(seconds), int(repeats)

    def counted(self):
        """The numbers of different pushes and of duplicates that have arrived until now."""
        self.tell("count")
        _, different, repeats = self.process.stdout.readline().split()
        return int(different), int(repeats)

    def wait_for(self, count):
        deadline = time.time() + 120
        while (different := self.counted()[0]) < count:
            bench.oracle(time.time() < deadline, f"{different} of {count} pushes arrived within two minutes")
            time.sleep(0.005)

    def times(self, path):
        """The arrival time of each push in nanoseconds, by its number."""
        self.tell("times " + path)
        assert self.process.stdout.readline() == "written\n"
        with open(path) as file:
            return {int(number): int(time) for number, time in map(str.split, file)}

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=10)


def configuration(folder, credentials, gateway, port, *more):
    lines = [
        "apps:", "  default:", f"    gateway: {gateway}", "    host: 127.0.0.1", f"    port: {port}",
        f"    trust: {credentials}/ca.pem", f"    certificate: {credentials}/client.pem", *(f"    {line}" for line in more)]
    path = f"{folder}/{gateway}.yaml"
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")
    return path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def nghttpd(folder, credentials, path=f"3/device/{DEVICE}"):
    """Runs nghttpd and yields its port. It returns 200 to every post to this path, which is that of its only device."""
    os.makedirs(os.path.dirname(f"{folder}/root/{path}"))
    open(f"{folder}/root/{path}", "w").close()
    port = free_port()
    server = subprocess.Popen(
        ["nghttpd", "-a", "127.0.0.1", "-m", "1000", "-d", folder + "/root", str(port), credentials + "/server.pem",
         credentials + "/server.pem"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.05)
        yield port
    finally:
        bench.stop(server)
