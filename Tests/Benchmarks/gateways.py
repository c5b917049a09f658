"""The gateways that the relay pushes to: a C program that counts, and nghttpd, which is not ours."""
import contextlib, os, socket, subprocess, time

import bench

# The one device that nghttpd has.
DEVICE = "a" * 64


class Sink:
    """The C gateway that counts. It speaks both protocols."""

    def __init__(self, folder, credentials):
        program = bench.compile_c(folder, "Tests/Benchmarks/sink.c", "-lssl", "-lcrypto", "-lnghttp2")
        self.process = subprocess.Popen(
            [program, credentials + "/server.pem"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def tell(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def arrived(self):
        """Seconds from the first byte to the last of those expected, and how many came twice."""
        _, seconds, repeats = self.process.stdout.readline().split()
        return float(seconds), int(repeats)

    def counted(self):
        """How many have come until now, and how many of them came once more."""
        self.tell("count")
        _, different, repeats = self.process.stdout.readline().split()
        return int(different), int(repeats)

    def wait_for(self, count):
        deadline = time.time() + 120
        while (different := self.counted()[0]) < count:
            bench.oracle(time.time() < deadline, f"{different} of {count} pushes came within two minutes")
            time.sleep(0.005)

    def times(self, path):
        """When each arrived, by its number, in nanoseconds."""
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
    """Its port. It answers 200 to whatever is posted to this one path: that of the one device that it has."""
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
