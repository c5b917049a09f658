"""Runs the PostgreSQL and PgBouncer of `make setup` with their own data, on sockets in a folder."""
import glob, os, signal, subprocess, time, urllib.parse

from checks import free_port

UNPACKED = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".build", "test-postgres"))
LIBRARIES = ":".join(glob.glob(UNPACKED + "/usr/lib/*-linux-gnu") + glob.glob(UNPACKED + "/lib/*-linux-gnu"))


def is_unpacked():
    return os.path.exists(UNPACKED + "/complete")


def wait_for(what, look, told, within=120):
    end = time.monotonic() + within
    while not look():
        if time.monotonic() > end:
            raise SystemExit(f"FAILED {what}: not within {within} s; {told()}")
        time.sleep(0.05)


class Session:
    """A psql that stays open. Once the server ends, `ask` fails for good."""

    def __init__(self, server, database="postgres", name="test"):
        self.process = subprocess.Popen(
            [server.programs + "/psql", "-h", server.folder, "-U", "postgres", "-d", database, "-AtXq", "-v", "ON_ERROR_STOP=1"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1,
            env={**server.environment, "PGAPPNAME": name, "PGOPTIONS": "-c statement_timeout=120s"})

    def ask(self, *statements):
        """Returns the lines of the results, with columns separated by `|`."""
        lines = []
        try:
            self.process.stdin.write("".join(each + ";\n" for each in statements) + "\\echo .\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            # The reason is in its output.
            pass
        for line in self.process.stdout:
            if line == ".\n":
                # psql may notice the server's end after a complete result, and continue until the next statement.
                if any(each.startswith("FATAL:") for each in lines):
                    break
                return lines
            lines.append(line.rstrip("\n"))
        raise OSError(f"psql has ended: {lines[-5:]}")

    def end(self):
        self.process.kill()
        self.process.communicate()


class Server:
    """A PostgreSQL server. It refuses to run as root. The folder's path must be short: a socket's has at most 107 bytes."""

    def __init__(self, folder, *settings):
        self.folder, self.settings = folder, settings
        self.programs, = glob.glob(UNPACKED + "/usr/lib/postgresql/*/bin")
        self.process, self.pooler = None, None
        self.environment = {**os.environ, "LD_LIBRARY_PATH": LIBRARIES}
        self.user = []
        os.makedirs(folder)
        if os.geteuid() == 0:
            self.user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            os.chown(folder, 65534, 65534)
            # If that user cannot access the folders, run it as root under another user id (a user namespace).
            if subprocess.run([*self.user, "test", "-x", self.programs + "/postgres", "-a", "-w", folder]).returncode:
                self.user = ["unshare", "--user"]
                os.chown(folder, 0, 0)
        self.run("initdb", "-D", self.path("data"), "-U", "postgres", "--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8")
        self.run("mkdir", self.path("apart"))
        try:
            self.start()
        except BaseException:
            self.end()
            raise

    def path(self, name):
        return os.path.join(self.folder, name)

    def log(self, name="postgres"):
        with open(self.path(name + ".log"), errors="replace") as file:
            return file.read()

    def run(self, program, *arguments):
        path = os.path.join(self.programs, program)
        ran = subprocess.run(
            [*self.user, path if os.path.exists(path) else program, *arguments], env=self.environment, capture_output=True, text=True,
            timeout=120, cwd=self.folder)
        if ran.returncode:
            raise SystemExit(f"FAILED {program}: {ran.stdout[-1000:]} {ran.stderr[-1000:]}")
        return ran.stdout

    def launch(self, name, *command):
        with open(self.path(name + ".log"), "a") as output:
            return subprocess.Popen(
                [*self.user, *command], stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=self.folder, env=self.environment)

    def start(self, sockets=None):
        """Starts the server. Repeats this while leftovers of a killed server prevent it.

        :param sockets: A folder for its socket, where clients of the usual socket do not find it.
        """
        sockets = sockets or self.folder

        def runs():
            if not self.process or self.process.poll() is not None:
                self.process = self.launch(
                    "postgres", self.programs + "/postgres", "-D", self.path("data"), "-k", sockets, "-c", "listen_addresses=",
                    *(part for setting in self.settings for part in ("-c", setting)))
            return subprocess.run(
                [self.programs + "/pg_isready", "-q", "-h", sockets], env=self.environment, timeout=30).returncode == 0
        wait_for("PostgreSQL runs", runs, told=lambda: self.log()[-2000:])

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Stops the server without waiting for its clients."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=120)

    def look_apart(self, sql):
        """Queries a killed server after its recovery, before other clients can connect. The server is stopped afterwards."""
        self.start(self.path("apart"))
        try:
            return self.rows(sql, sockets=self.path("apart"))
        finally:
            self.stop()

    def rows(self, sql, database="postgres", sockets=None):
        said = self.run(
            "psql", "-h", sockets or self.folder, "-U", "postgres", "-d", database, "-v", "ON_ERROR_STOP=1", "-AtqX", "-c", sql)
        return [line for line in said.split("\n") if line]

    def url(self, database="postgres"):
        return f"postgres:///{database}?user=postgres&host=" + urllib.parse.quote(self.folder, safe="")

    def pool(self):
        """Starts PgBouncer in transaction mode. Returns the URL of the database behind it."""
        port = free_port()
        with open(self.path("pgbouncer.ini"), "w") as file:
            # As docs/postgresql.md shows it.
            file.write(f"""
[databases]
postgres = host={self.folder} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
server_login_retry = 1
""")
        os.chmod(self.path("pgbouncer.ini"), 0o644)
        self.pooler = self.launch("pgbouncer", UNPACKED + "/usr/sbin/pgbouncer", self.path("pgbouncer.ini"))
        wait_for("PgBouncer listens", lambda: "process up" in self.log("pgbouncer"), told=lambda: self.log("pgbouncer")[-2000:])
        return f"postgres://postgres@127.0.0.1:{port}/postgres"

    def end(self):
        if self.pooler:
            self.pooler.kill()
            self.pooler.wait()
        if self.process and self.process.poll() is None:
            # Stop at once, with the child processes.
            self.process.send_signal(signal.SIGQUIT)
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.kill()
