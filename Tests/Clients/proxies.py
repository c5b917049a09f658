#!/usr/bin/env python3
"""Runs a recipe of docs/https as printed, with Debian's proxy and a relay behind it, and uses it as browsers and apps do.

Usage: proxies.py caddy|nginx|haproxy|sub-path-caddy|sub-path-nginx|sub-path-haproxy|own|findings|initial|relays PUSHCHAT FOLDER
`sub-path-…` tests a recipe for a relay below a path of a site, also in a browser,
`own` tests the relay's own TLS with certbot's hook, `findings` the report of `pushchat check` on misconfigured proxies, `initial` the
configurations that `pushchat init` writes, `relays` two relays on one PostgreSQL behind Caddy, as in docs/postgresql. The proxies are
in .build/proxies (make setup). The test replaces only the printed ports, paths, names, addresses and certificates.
Prints a line for each check that passed. Ends with status 1 at the first that failed.
"""
import http.server, json, os, re, signal, socket, ssl, stat, subprocess, sys, threading, time, urllib.request

import postgres_server
from checks import check, free_port, until

KIND, PUSHCHAT, FOLDER = sys.argv[1], sys.argv[2], os.path.abspath(sys.argv[3])
TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
PROXIES = os.path.join(TOP, ".build", "proxies")
TOKEN = "the-token-of-the-proxies-test"
# The timeout of the recipes in seconds. A stream must outlive it with only the relay's comments.
TIMEOUT = 75
processes = []


def path(name):
    return os.path.join(FOLDER, name)


def write(name, text):
    with open(path(name), "w") as file:
        file.write(text)
    return path(name)


def read(name):
    with open(name) as file:
        return file.read()


def run(*command, **more):
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, **more)
    if ran.returncode:
        raise SystemExit(f"FAILED {command}: {ran.stdout[-2000:]} {ran.stderr[-2000:]}")
    return ran.stdout


def start(name, *command, **more):
    with open(path(name + ".log"), "w") as log:
        processes.append(subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, **more))
    return processes[-1]


def log(name):
    return lambda: read(path(name + ".log"))[-3000:]


# MARK: Certificates

def make_authority():
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path("ca.key"),
        "-out", path("ca.pem"), "-subj", "/CN=Authority of the test", "-days", "2")


def make_certificate(name, host="localhost"):
    """Writes the certificate NAME.pem, its key NAME.key, and both in NAME.both.pem."""
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path(name + ".key"),
        "-out", path(name + ".pem"), "-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}", "-days", "2", "-CA",
        path("ca.pem"), "-CAkey", path("ca.key"))
    os.chmod(path(name + ".key"), 0o644)
    write(name + ".both.pem", read(path(name + ".pem")) + read(path(name + ".key")))


def exchange(name, other):
    """Replaces a certificate with another one."""
    for ending in (".pem", ".key", ".both.pem"):
        os.replace(path(other + ending), path(name + ending))


def shown(port):
    """Returns the serial number of the certificate that the server presents to a new connection."""
    context = ssl.create_default_context(cafile=path("ca.pem"))
    with socket.create_connection(("localhost", port), timeout=10) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            return connection.getpeercert()["serialNumber"]


# MARK: The relay

class Relay:
    name = "relay"

    def __init__(self, **http):
        settings = {"host": "127.0.0.1", "trusted_proxies": ["127.0.0.1", "::1"], "rate_per_address": "1/min burst 40", **http}
        self.port = settings.setdefault("port", free_port())
        # JSON is YAML.
        self.configuration = write("relay.yaml", json.dumps({
            "environment": "production", "http": settings, "admin": {"token": TOKEN},
            "database": {"path": path("relay.db")}}))
        os.chmod(self.configuration, stat.S_IRUSR | stat.S_IWUSR)
        self.start()

    def start(self):
        self.process = start(self.name, PUSHCHAT, "serve", "--config", self.configuration, "--log-format", "json")
        until(f"{self.name} listens", lambda: self.log("listening"), told=log(self.name))

    def log(self, message):
        lines = [json.loads(line) for line in read(path(self.name + ".log")).splitlines() if line.startswith("{") and line.endswith("}")]
        return [line for line in lines if line.get("message") == message]


class SharingRelay(Relay):
    """One of several relays on one PostgreSQL, with the configuration of docs/postgresql."""

    def __init__(self, name, database, public_url):
        self.name, self.port = name, free_port()
        os.mkdir(path(name))
        for file, text in (("database-url", database), ("admin.token", TOKEN)):
            os.chmod(write(f"{name}/{file}", text + "\n"), stat.S_IRUSR | stat.S_IWUSR)
        self.configuration = write(f"{name}/pushchat.yaml", recipe("postgresql/pushchat.yaml", {
            "host: 10.0.0.11 ": f"port: {self.port}\n  host: 127.0.0.1 ", "[10.0.0.10]": "[127.0.0.1]",
            "https://chat.example.org": public_url, "/var/lib/pushchat/pushchat.db": path(f"{name}/pushchat.db")}))
        self.start()

    def serves(self, address):
        """Whether a client at this address has joined through this relay."""
        return any(line["address"] == address for line in self.log("member joined"))


def pushchat_check(relay, *more):
    ran = subprocess.run(
        [PUSHCHAT, "check", "--config", relay.configuration, *more], capture_output=True, text=True, timeout=120,
        env={**os.environ, "SSL_CERT_FILE": path("ca.pem")})
    return ran.stdout + ran.stderr


# MARK: The proxies

def recipe(name, changes):
    """Returns a file of docs with the test's ports, names and paths."""
    text = read(os.path.join(TOP, "docs", name))
    for printed, used in changes.items():
        if printed not in text:
            raise SystemExit(f"FAILED {name} has no {printed}")
        text = text.replace(printed, used)
    return text


class Caddy:
    def __init__(self, relay, port, plain, folder="https"):
        self.begin(folder + "/Caddyfile", port, plain, {"127.0.0.1:44447": f"127.0.0.1:{relay.port}"})

    def begin(self, name, port, plain, changes, **environment):
        admin = free_port()
        # By default Caddy gets the certificate itself.
        text = recipe(name, {**changes, "chat.example.org {": "localhost {\n\ttls " + path("tls.pem") + " " + path("tls.key")})
        write("Caddyfile", f"{{\n\tadmin localhost:{admin}\n\thttp_port {plain}\n\thttps_port {port}\n\tskip_install_trust\n}}\n{text}")
        self.environment = {
            **os.environ, **environment, "XDG_DATA_HOME": path("data"), "XDG_CONFIG_HOME": path("config"), "HOME": FOLDER}
        self.command = [f"{PROXIES}/usr/bin/caddy"]
        start("proxy", *self.command, "run", "--config", path("Caddyfile"), env=self.environment)

    def reload(self):
        """Reloads Caddy as its unit does (systemctl reload caddy)."""
        run(*self.command, "reload", "--config", path("Caddyfile"), "--force", env=self.environment)


class CaddyAtPath(Caddy):
    def __init__(self, relay, port, plain):
        super().__init__(relay, port, plain, "https/sub-path")


class CaddyBeforeRelays(Caddy):
    def __init__(self, relays, port, plain):
        self.begin("postgresql/Caddyfile", port, plain, {}, RELAYS=" ".join(f"127.0.0.1:{relay.port}" for relay in relays))


class Nginx:
    change = staticmethod(lambda text: text)

    def __init__(self, relay, port, plain):
        text = recipe("https/nginx.conf", {
            "127.0.0.1:44447": f"127.0.0.1:{relay.port}", "listen 443": f"listen {port}", "listen [::]:443": f"listen [::]:{port}", "listen 80": f"listen {plain}",
            "listen [::]:80": f"listen [::]:{plain}", "server_name chat.example.org": "server_name localhost",
            "/etc/letsencrypt/live/chat.example.org/fullchain.pem": path("tls.pem"),
            "/etc/letsencrypt/live/chat.example.org/privkey.pem": path("tls.key")})
        self.begin(text)

    def begin(self, text):
        write("site.conf", self.change(text))
        # Include the site as Debian's nginx.conf does, with the test's paths.
        temporary = "".join(f"{each}_temp_path {path(each)};\n" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        user = "user root;\n" if os.getuid() == 0 else ""
        write("nginx.conf", f"{user}daemon off;\npid {path('nginx.pid')};\nerror_log {path('nginx.log')};\nevents {{}}\n"
              f"http {{\naccess_log off;\n{temporary}include {path('site.conf')};\n}}\n")
        self.process = start("proxy", f"{PROXIES}/usr/sbin/nginx", "-c", path("nginx.conf"), "-e", path("nginx.log"))

    def reload(self):
        self.process.send_signal(signal.SIGHUP)


class NginxAtPath(Nginx):
    """A site that includes the snippet."""

    def __init__(self, relay, port, plain):
        write("snippet.conf", recipe("https/sub-path/nginx.conf", {"127.0.0.1:44447": f"127.0.0.1:{relay.port}"}))
        self.begin(f"server {{\nlisten {port} ssl http2;\nserver_name localhost;\nssl_certificate {path('tls.pem')};\n"
                   f"ssl_certificate_key {path('tls.key')};\ninclude {path('snippet.conf')};\n}}\n")

    def open(self):
        """Passes on /v1, for programs and operators elsewhere."""
        text, count = re.subn(r"location ~ .*return 404; }\n", "", read(path("snippet.conf")))
        check("the recipe has one line that blocks /v1", count == 1, text)
        write("snippet.conf", text)
        self.reload()


class HAProxy:
    def __init__(self, relay, port, plain):
        self.plain = plain
        self.begin( recipe("https/haproxy.cfg", {
            "127.0.0.1:44447": f"127.0.0.1:{relay.port}", "127.0.0.1:8888": f"127.0.0.1:{self.challenges()}", "bind :::80 ": f"bind :::{plain} ", "bind :::443 ": f"bind :::{port} ", "/etc/haproxy/pushchat.pem": path("tls.both.pem")}))

    def begin(self, text):
        # Use Debian's own file without the lines that need its user and its paths.
        debian = read(f"{PROXIES}/etc/haproxy/haproxy.cfg").replace("/etc/", f"{PROXIES}/etc/")
        debian = re.sub(r"(?m)^\s*(log|chroot|stats|user|group|daemon)\b.*\n", "", debian)
        write("haproxy.cfg", debian + text)
        # Start it as its unit does.
        self.process = start("proxy", f"{PROXIES}/usr/sbin/haproxy", "-W", "-f", path("haproxy.cfg"), env={
            **os.environ, "LD_LIBRARY_PATH": f"{PROXIES}/usr/lib/{os.uname().machine}-linux-gnu"})

    def challenges(self):
        """Runs the server of certbot --standalone during a challenge."""
        folder = path("challenges/.well-known/acme-challenge")
        os.makedirs(folder)
        write("challenges/.well-known/acme-challenge/token", "the proof")
        port = free_port()
        start("certbot", "python3", "-m", "http.server", "--bind", "127.0.0.1", "--directory", path("challenges"), str(port))
        return port

    def reload(self):
        until("certbot's answers come through", lambda: curl(
            f"http://localhost:{self.plain}/.well-known/acme-challenge/token").body == "the proof", told=log("certbot"))
        self.process.send_signal(signal.SIGUSR2)


class HAProxyAtPath(HAProxy):
    def __init__(self, relay, port, plain):
        self.begin(recipe("https/sub-path/haproxy.cfg", {
            "127.0.0.1:44447": f"127.0.0.1:{relay.port}", "bind :::443 ": f"bind :::{port} ", "/etc/haproxy/site.pem": path("tls.both.pem")}))


class Collecting(http.server.BaseHTTPRequestHandler):
    """A proxy that reads a response to its end before it forwards it."""

    def do_GET(self):
        request = urllib.request.Request(f"http://127.0.0.1:{self.server.relay.port}{self.path}", headers={"X-Forwarded-For": "198.51.100.7"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            body = answer.read()
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                    self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @staticmethod
    def run(relay, port):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Collecting)
        server.relay = relay
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path("tls.pem"), path("tls.key"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()


# MARK: Clients

class Answer:
    def __init__(self, text):
        # If there are several heads, as after 100 Continue, the last one counts.
        self.status, self.version, self.headers, self.body = 0, "", {}, text
        while self.body.startswith("HTTP/"):
            head, _, self.body = self.body.partition("\r\n\r\n")
            first, *lines = head.split("\r\n")
            self.version, self.status = first.split()[0], int(first.split()[1])
            self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def curl(url, *more, client="127.0.0.1", body=None):
    command = ["curl", "--silent", "--include", "--max-time", "30", "--cacert", path("ca.pem"), "--interface", client, "-4", *more, url]
    # A proxy may respond before it has read the whole request.
    ran = subprocess.run(command, capture_output=True, input=body, timeout=60)
    return Answer(ran.stdout.decode("utf-8", "replace"))


class Stream:
    """An event stream in a third-party client."""

    def __init__(self, url, udid, client="127.0.0.1", *more, query=""):
        self.opened, self.lines = time.monotonic(), []
        self.process = subprocess.Popen(
            ["curl", "--silent", "--show-error", "--no-buffer", "--cacert", path("ca.pem"), "--interface", client, "-4", "-H",
             f"X-Udid: {udid}", *more, url + "/events" + query], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        processes.append(self.process)
        threading.Thread(target=self.follow, daemon=True).start()
        until(f"the stream of {client} begins", lambda: any(line.startswith("retry:") for line in self.lines), told=self.told)

    def follow(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def has(self, text):
        return any(line.startswith("data:") and text in line for line in self.lines)

    @property
    def texts(self):
        return [json.loads(line[6:])["text"] for line in self.lines if line.startswith("data: ") and '"text"' in line]

    @property
    def last(self):
        """The event id with which a client must reconnect."""
        return [line[4:] for line in self.lines if line.startswith("id: ")][-1]

    def told(self):
        return f"{self.process.poll()} {self.lines[-5:]}"

    @property
    def is_open(self):
        return self.process.poll() is None

    @property
    def comments(self):
        return sum(line == ":" for line in self.lines)


def form(url, *more, client="127.0.0.1", **fields):
    data = [part for name, value in fields.items() for part in ("--data-urlencode", f"{name}={value}")]
    return curl(url + "/api.php", *data, *more, client=client)


def udid(number):
    return f"{number:040d}"


# MARK: Checks

def recipes(make):
    port, plain = free_port(), free_port()
    make_authority()
    for name in ("tls", "renewed"):
        make_certificate(name)
    url = f"https://localhost:{port}"
    relay = Relay(public_url=url)
    direct = f"http://127.0.0.1:{relay.port}"
    proxy = make(relay, port, plain)
    until("the proxy answers over HTTP/2", lambda: (lambda answer: answer.status == 200 and answer.version == "HTTP/2")(
        curl(url + "/healthz")), told=log("proxy"))
    answer = curl(f"http://localhost:{plain}/#x")
    check("http:// leads to https://", answer.status in (301, 308) and answer.headers["location"].startswith("https://localhost"),
          answer.__dict__)

    # Each client claims another address.
    forged = ("-H", "X-Forwarded-For: 203.0.113.9", "-H", "Forwarded: for=203.0.113.9")
    for number, name, room in ((1, "Ann", "kitchen"), (2, "Bo", "kitchen"), (3, "Cy", "attic"), (4, "Di", "attic")):
        answer = form(url, *forged, client=f"127.0.0.{10 + number}", cmd="join", udid=udid(number), token=0, name=name, code=room)
        check(f"{name} joins by a form", answer.status == 200 and answer.body == "OK\n", answer.__dict__)
    def known():
        return [line["address"] for line in relay.log("member joined")]

    # The log is written in the background.
    until("the log has all joins", lambda: len(known()) >= 4, told=log("relay"))
    addresses = known()
    check("the relay knows each client's address, whatever it says of itself", addresses == [f"127.0.0.1{each}" for each in range(1, 5)],
          addresses)
    busy, quiet = Stream(url, udid(1), "127.0.0.11"), Stream(url, udid(3), "127.0.0.13")

    def say(number, text, attempts=1):
        for _ in range(attempts):
            answer = form(url, "-H", f"Idempotency-Key: {text}", client=f"127.0.0.{10 + number}", cmd="message", udid=udid(number), text=text)
            if answer.status != 0:
                break
        check(f"posted: {text}", answer.status == 200, answer.__dict__)

    say(2, "for Ann")
    until("it reaches the stream", lambda: busy.has("for Ann"), told=busy.told)

    # Pages, the worker and the manifest as the relay sends them.
    names = ("content-type", "content-security-policy", "referrer-policy", "x-content-type-options", "cache-control")
    for file in ("/", "/sw.js", "/manifest.webmanifest", "/chat.js", "/icon-192.png"):
        sent, got = curl(direct + file), curl(url + file)
        check(f"{file} arrives as it was sent", got.status == 200 and got.body == sent.body
              and [got.headers.get(name) for name in names] == [sent.headers.get(name) for name in names], [sent.headers, got.headers])
    check("the page keeps its policy", "default-src 'none'" in curl(url + "/").headers["content-security-policy"])
    tag = curl(url + "/chat.js").headers["etag"]
    check("a file that is known is not sent again", curl(url + "/chat.js", "-H", f"If-None-Match: {tag}").status == 304)

    # Limits.
    authorized = ("-H", f"Authorization: Bearer {TOKEN}")
    check("the relay itself lets the operator in", curl(direct + "/v1/queue", *authorized).status == 200)
    for private in ("/v1", "/v1/queue", "//v1/queue", "/v1/docs", "/metrics", "/v1/notifications:batch"):
        answer = curl(url + private, "--path-as-is", *authorized)
        check(f"{private} is for this machine", answer.status == 404, answer.__dict__)
    for public in ("/v1/health", "/v1/account"):
        answer = curl(url + public)
        check(f"{public} reaches the relay", answer.status == 404 and "There is nothing" in answer.body, answer.__dict__)
    post = ("-H", "Content-Type: application/x-www-form-urlencoded", "--data-binary", "@-")
    start_of_form = f"cmd=message&udid={udid(1)}&text=".encode()
    answer = curl(url + "/api.php", *post, body=start_of_form + b"x" * 60_000)
    check("a long body reaches the relay, which returns the error", answer.status == 400 and "text" in answer.body, answer.__dict__)
    answer = curl(url + "/api.php", *post, body=start_of_form + b"x" * 70_000)
    check("the relay refuses a body over the limit", answer.status == 413 and "65536 bytes" in answer.body, answer.__dict__)
    for more in ((), ("-H", "Transfer-Encoding: chunked", "--http1.1")):
        # A proxy with a response reads the rest only for a moment, and then cuts off a client that still sends.
        answers = []

        def is_refused():
            answers.append(curl(url + "/api.php", *post, *more, body=start_of_form + b"x" * 1_500_000))
            return answers[-1].status == 413
        until(f"one that no call takes, too {' '.join(more)}", is_refused, told=lambda: [each.__dict__ for each in answers])
    # One address uses up its limit; another address has its own.
    statuses = {form(url, client="127.0.0.99", cmd="leave", udid=udid(9)).status for _ in range(45)}
    check("an address has a limit", 429 in statuses, statuses)
    answer = form(url, client="127.0.0.99", cmd="leave", udid=udid(9))
    check("and the response gives the time to wait", answer.status == 429 and int(answer.headers["retry-after"]) > 0, answer.__dict__)
    check("another address has one of its own", form(url, client="127.0.0.98", cmd="leave", udid=udid(9)).status == 200)

    # A renewed certificate.
    before = shown(port)
    exchange("tls", "renewed")
    proxy.reload()
    until("new connections get the renewed certificate", lambda: shown(port) != before, told=log("proxy"))
    # A proxy's old process that ends may close a connection with an unread request. A client repeats the request with its key.
    say(2, "after the renewal", attempts=3)
    until("it reaches the stream that was open before", lambda: busy.has("after the renewal"), told=busy.told)

    said = pushchat_check(relay)
    for line in ("ok    relay: runs at", "ok    public address: localhost is at", "is trusted: issued by Authority of the test",
                 f"ok    public address: a relay answers at {url}, over HTTP/2", "ok    public address: pages and service worker",
                 "ok    public address: streams arrive at once", "ok    public address: clients' addresses come from the proxy at 127.0.0.1"):
        check(f"check says: {line}", line in said, said)

    # No message is posted in the attic until long after the proxy's timeout.
    until("a stream lives longer than the proxy waits", lambda: time.monotonic() > quiet.opened + TIMEOUT + 5 and quiet.comments >= 2,
          told=quiet.told)
    check("it is open", quiet.is_open, quiet.told())
    say(4, "at last")
    until("and brings the message", lambda: quiet.has("at last"), told=quiet.told)
    check("the other one is open as well", busy.is_open, busy.told())


def sub_path(make):
    """Tests a relay below a path of a site, with its pages in a browser."""
    port = free_port()
    make_authority()
    make_certificate("tls")
    site = f"https://localhost:{port}"
    url = site + "/chat"
    relay = Relay(public_url=url, rate_per_address="off")
    proxy = make(relay, port, free_port())
    until("the proxy answers", lambda: curl(url + "/healthz").status == 200, told=log("proxy"))
    check("the rest of the site is not the relay's", "healthy" not in curl(site + "/healthz").body)
    authorized = ("-H", f"Authorization: Bearer {TOKEN}")
    for private in ("/v1", "/v1/queue", "//v1/queue", "/v1/docs", "/metrics"):
        answer = curl(url + private, "--path-as-is", *authorized)
        check(f"{private} is for this machine", answer.status == 404, answer.__dict__)
    said = pushchat_check(relay)
    for line in (f"ok    public address: a relay answers at {url}, over HTTP/2", "ok    public address: pages and service worker",
                 "ok    public address: streams arrive at once", "ok    public address: clients' addresses come from the proxy at 127.0.0.1"):
        check(f"check says: {line}", line in said, said)

    def play(scenario):
        ran = subprocess.run(
            [sys.executable, os.path.join(os.path.dirname(__file__), "browser_pages.py"), scenario, url, "", "[]"],
            capture_output=True, text=True, timeout=200, env={**os.environ, "SSL_CERT_FILE": path("ca.pem"), "ADMIN_TOKEN": TOKEN})
        sys.stdout.write(ran.stdout)
        check(f"{scenario} passes in a browser", f"PASSED {scenario}" in ran.stdout, ran.stderr[-3000:])

    if os.path.exists("/usr/bin/chromedriver"):
        play("sub_path")
        if isinstance(proxy, NginxAtPath):
            proxy.open()
            until("/v1 is open", lambda: curl(url + "/v1/queue", *authorized).status == 200, told=log("proxy"))
            play("sub_path_operator")


def own():
    """Tests the relay's own TLS, and the hook that certbot runs after a renewal."""
    make_authority()
    for name in ("first", "second"):
        make_certificate(name)
    os.mkdir(path("bin"))
    hook = read(os.path.join(TOP, "packaging", "certbot-hook"))
    for printed, used in (("file=/etc/pushchat/tls.pem", f"file={path('tls.pem')}"), ("chgrp pushchat", f"chgrp {os.getgid()}")):
        check(f"the hook has {printed}", printed in hook)
        hook = hook.replace(printed, used)
    os.chmod(write("hook", hook), 0o755)

    def deploy(name):
        """Renews a certificate as certbot does."""
        lineage = path("live-" + name)
        os.mkdir(lineage)
        os.link(path(name + ".pem"), os.path.join(lineage, "fullchain.pem"))
        os.link(path(name + ".key"), os.path.join(lineage, "privkey.pem"))
        run(path("hook"), env={**os.environ, "PATH": path("bin") + ":" + os.environ["PATH"], "RENEWED_LINEAGE": lineage})

    # Reload with the unit's command, as systemd does.
    reload = next(line for line in read(os.path.join(TOP, "packaging", "pushchat.service")).splitlines() if line.startswith("ExecReload="))
    write("bin/systemctl", '#!/bin/sh\n[ "$*" = "try-reload-or-restart pushchat" ] || exit 1\n[ -e ' + path("pid") + " ] || exit 0\n"
          f"MAINPID=$(cat {path('pid')})\n{reload.removeprefix('ExecReload=')}\n")
    os.chmod(path("bin/systemctl"), 0o755)
    deploy("first")
    check("only owner and group read the key", stat.S_IMODE(os.stat(path("tls.pem")).st_mode) == 0o640)
    port = free_port()
    url = f"https://localhost:{port}"
    relay = Relay(certificate=path("tls.pem"), trusted_proxies=[], port=port, public_url=url)
    write("pid", str(relay.process.pid))
    for number in (1, 2):
        check("joined", form(url, cmd="join", udid=udid(number), token=0, name="n", code="kitchen").status == 200)
    stream = Stream(url, udid(1))
    before = shown(relay.port)
    deploy("second")
    until("new connections get the renewed certificate", lambda: shown(relay.port) != before, told=log("relay"))
    check("posted", form(url, cmd="message", udid=udid(2), text="hello").status == 200)
    until("the open stream continues", lambda: stream.has("hello"), told=stream.told)
    check("it is open", stream.is_open)
    said = pushchat_check(relay)
    for line in ("is trusted: issued by Authority of the test", "streams arrive at once", "there is no proxy: clients' addresses are their own"):
        check(f"check says: {line}", line in said, said)

    def rooms(**variables):
        return subprocess.run(
            [PUSHCHAT, "rooms", "list", "--relay", url, "--admin-token-file", write("token", TOKEN)], capture_output=True, text=True, timeout=60,
            env={**os.environ, **variables})

    check("commands trust the authority in SSL_CERT_FILE", "kitchen" in rooms(SSL_CERT_FILE=path("ca.pem")).stdout)
    for missing in (path("missing.pem"), path("token")):
        said = rooms(SSL_CERT_FILE=missing).stderr
        check("a file without certificates is named", f"SSL_CERT_FILE: {missing} holds no certificate" in said, said)
    said = rooms(SSL_CERT_FILE="").stderr
    check("otherwise the error names it, in one line", "not trusted" in said and "SSL_CERT_FILE" in said and "SSL_R" not in said, said)


def findings():
    """Tests the report of check on misconfigured proxies, and without a proxy."""
    make_authority()
    make_certificate("tls")
    port, plain = free_port(), free_port()
    url = f"https://localhost:{port}"
    relay = Relay(public_url=url)

    def says(what, *lines, change=lambda text: text, relay=relay):
        Nginx.change = staticmethod(change)
        proxy = Nginx(relay, port, plain)
        until(f"{what}: the proxy listens", lambda: socket.create_connection(("127.0.0.1", port), timeout=10).close() or True, told=log("proxy"))
        said = pushchat_check(relay)
        for line in lines:
            check(f"{what}: {line}", re.search(line, said), said)
        proxy.process.terminate()
        proxy.process.wait(timeout=30)
        return said

    collecting = free_port()
    Collecting.run(relay, collecting)
    said = pushchat_check(relay, "--set", f"http.public_url=https://localhost:{collecting}")
    check("streams are held back", "FAIL  public address: the proxy delays streams" in said, said)
    says("forgeable", r"FAIL  public address: the proxy at 127\.0\.0\.1 passes on what clients send as X-Forwarded-For and Forwarded",
         change=lambda text: re.sub(r"proxy_set_header (X-Forwarded-For|Forwarded) .*;", "", text))
    says("half forgeable", r"warn  public address: the proxy at 127\.0\.0\.1 names its clients, and passes on what they send as Forwarded",
         change=lambda text: re.sub(r"proxy_set_header Forwarded .*;", "", text))
    says("another policy", "warn  public address: the header Content-Security-Policy of / is",
         change=lambda text: text.replace("proxy_buffering off;", "proxy_hide_header Content-Security-Policy; proxy_buffering off;"))
    says("another port", "FAIL  public address: the proxy at .* answers with status 502: it does not reach the relay",
         change=lambda text: text.replace(f"127.0.0.1:{relay.port}", "127.0.0.1:1"))
    says("leads elsewhere", "FAIL  public address: .* redirects to https://www.example.org/healthz: http.public_url has to be",
         change=lambda text: text.replace("location / {", "location / { return 301 https://www.example.org$request_uri;"))
    make_certificate("tls", "www.example.org")
    says("another name", "FAIL  public address: the certificate is for www.example.org, not for localhost")
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", path("tls.key"), "-out", path("tls.pem"), "-subj",
        "/CN=Stranger", "-addext", "subjectAltName=DNS:localhost", "-days", "2")
    says("unknown authority", "FAIL  public address: the certificate is not trusted: this system does not know its issuer, Stranger")
    said = pushchat_check(relay)
    check("no server at the address", re.search("FAIL  public address: nothing answers at localhost, port .*refuses connections", said), said)
    make_certificate("tls")
    relay.process.terminate()
    relay.process.wait(timeout=60)
    says("no relay", "warn  relay: does not run at", "warn  public address: the proxy at .* because the relay does not run")


class InitialRelay(Relay):
    """A relay with the configuration that `pushchat init` writes. The test changes only the port."""

    def __init__(self, name, *answers, more=""):
        self.name, self.port = name, free_port()
        os.mkdir(path(name))
        self.configuration = path(f"{name}/pushchat.yaml")
        said = run(PUSHCHAT, "init", self.configuration, "--contact", "mailto:you@example.org", *answers, "--yes", cwd=path(name))
        check(f"{name}: init names the next steps", "pushchat serve" in said and "pushchat check" in said, said)
        self.token = read(path(f"{name}/admin.token")).strip()
        written = read(self.configuration)
        check(f"{name}: init writes the relay's usual port", ": 44447" in written, written)
        write(f"{name}/pushchat.yaml", written.replace("44447", str(self.port)) + more)
        self.start()

    def is_green(self, *lines):
        said = pushchat_check(self)
        check(f"{self.name}: check finds nothing to improve", all(line.startswith("ok ") for line in said.splitlines()), said)
        for line in lines:
            check(f"{self.name}: check says: {line}", re.search(line, said), said)
        answer = curl(f"http://127.0.0.1:{self.port}/v1/queue", "-H", f"Authorization: Bearer {self.token}")
        check(f"{self.name}: the token lets the operator in", answer.status == 200, answer.__dict__)


def initial():
    """Tests that `pushchat check` is content with what `pushchat init` writes."""
    InitialRelay("browsers").is_green("app default: .* only browsers get pushes", "streams arrive at once")

    folder = path("sandbox")
    start("sandbox", PUSHCHAT, "sandbox", "--free-ports", "--ready-file", path("ready.json"), "--directory", folder)
    until("the sandbox is ready", lambda: os.path.exists(path("ready.json")), told=log("sandbox"))
    sandbox = json.loads(read(path("ready.json")))
    relay = InitialRelay(
        "iphones", "--key", sandbox["key"], "--key-id", sandbox["key_id"], "--topic", sandbox["topic"], "--team-id", sandbox["team_id"],
        more=f"    host: localhost\n    port: {sandbox['ports']['http2']}\n    trust: {json.dumps(sandbox['authority'])}\n")
    relay.is_green(f"app default key: key id {sandbox['key_id']}", "app default gateway: localhost:.* answers")

    port, plain = free_port(), free_port()
    make_authority()
    make_certificate("tls")
    url = f"https://localhost:{port}"
    relay = InitialRelay("caddy", "--public-url", url)
    Caddy(relay, port, plain)
    until("the proxy answers", lambda: curl(url + "/healthz").status == 200, told=log("proxy"))
    relay.is_green("clients' addresses come from the proxy at 127.0.0.1")

    server = postgres_server.Server(path("server"))
    try:
        relay = InitialRelay("postgresql", "--database", server.url())
        relay.is_green("database: .*PostgreSQL")
    finally:
        server.end()


def relays():
    """Tests two relays on one PostgreSQL: one is killed, one hangs, and the database stops and restarts."""
    port, plain = free_port(), free_port()
    make_authority()
    make_certificate("tls")
    url = f"https://localhost:{port}"
    server = postgres_server.Server(path("server"))
    try:
        both = [SharingRelay(name, server.url(), url) for name in ("relay1", "relay2")]
        CaddyBeforeRelays(both, port, plain)
        until("the proxy answers over HTTP/2", lambda: (lambda answer: answer.status == 200 and answer.version == "HTTP/2")(
            curl(url + "/healthz")), told=log("proxy"))
        share(both, url, server)
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)
        server.end()


def share(both, url, server):
    number = iter(range(1, 10_000))
    members = {}

    def join(client):
        members[client] = udid(next(number))
        return form(url, client=client, cmd="join", udid=members[client], token=0, name="n", code="kitchen").status == 200

    clients = [f"127.0.0.{each}" for each in range(11, 31)]
    for client in clients:
        check(f"{client} joins", join(client))
    # The clients of each relay. Caddy chooses the relay by the client's address. The log is written in the background.
    homes = until("the relays know their clients' addresses, and each has some", lambda: (
        lambda found: found if all(found.values()) and sum(map(len, found.values())) == len(clients) else None)(
            {relay: [client for client in clients if relay.serves(client)] for relay in both}), told=log("relay1"))
    (first, second), (ann, bo) = both, (clients[0] for clients in homes.values())
    for file in ("/", "/sw.js", "/manifest.webmanifest", "/chat.js"):
        check(f"{file} is served", curl(url + file, client=ann).status == 200 and curl(url + file, client=bo).status == 200)
    for private in ("/v1/queue", "/metrics"):
        answer = curl(url + private, "-H", f"Authorization: Bearer {TOKEN}")
        check(f"{private} is for one's own network", answer.status == 404, answer.__dict__)

    said = []

    def say(client, text, attempts=1):
        said.append(text)
        for _ in range(attempts):
            answer = form(url, "-H", f"Idempotency-Key: {text}", client=client, cmd="message", udid=members[client], text=text)
            if answer.status not in (502, 503):
                break
        check(f"posted: {text}", answer.status == 200, answer.__dict__)

    of_ann, of_bo = Stream(url, members[ann], ann), Stream(url, members[bo], bo)
    ticket = json.loads(curl(url + "/events/ticket", "--data", f"udid={members[ann]}", client=ann).body)["ticket"]
    Stream(url, "", ann, query=f"?ticket={ticket}")
    for client in (ann, bo):
        say(client, f"{client} to all")
    for stream in (of_ann, of_bo):
        until("a stream brings the messages of both relays", lambda: stream.texts == said, told=stream.told)

    first.process.kill()
    first.process.wait()
    # Caddy 2.6 cannot resend a body after the relay is gone. But then it knows that the relay is down.
    say(ann, "repeated after its relay's end", attempts=2)
    for client in homes[first][1:5]:
        say(client, f"{client} after its relay's end")
    until("its stream has ended", lambda: not of_ann.is_open, told=of_ann.told)
    again = Stream(url, members[ann], ann, "-H", f"Last-Event-ID: {of_ann.last}")
    say(bo, "to the stream that came back")
    until("a stream continues at the other relay, and has got every message once", lambda: of_ann.texts + again.texts == said, told=again.told)
    until("the other stream has as well", lambda: of_bo.texts == said, told=of_bo.told)
    check("a client joins over the other relay", join(ann))
    until("which knows its address", lambda: second.serves(ann), told=log("relay2"))
    again.process.terminate()

    first.start()
    until("a restarted relay gets its clients back", lambda: join(ann) and first.serves(ann), told=log("proxy"))
    first.process.kill()
    first.process.wait()
    answer = curl(url + "/", client=ann)
    check("the page comes from the other, by the same request", answer.status == 200, answer.__dict__)
    first.start()
    until("and clients go back", lambda: join(ann) and first.serves(ann), told=log("proxy"))
    first.process.send_signal(signal.SIGSTOP)
    until("one that hangs is left out", lambda: curl(url + "/healthz", "--max-time", "2", client=ann).status == 200, told=log("proxy"))
    say(ann, "past the relay that hangs")
    first.process.send_signal(signal.SIGCONT)
    joined = len(first.log("member joined"))
    until("and gets its clients back", lambda: join(ann) and len(first.log("member joined")) > joined, told=log("proxy"))

    server.kill()
    answer = form(url, client=bo, cmd="message", udid=members[bo], text="lost")
    check("without the database nothing is accepted", answer.status in (502, 503), answer.__dict__)
    server.start()
    until("and everything resumes by itself", lambda: join(ann) and join(bo), told=log("proxy"))
    say(ann, "the end")
    until("the stream that stayed open has got every message once", lambda: of_bo.texts == said, told=of_bo.told)
    check("it is open", of_bo.is_open, of_bo.told())


try:
    {"own": own, "findings": findings, "initial": initial, "relays": relays}.get(
        KIND, lambda: sub_path({"sub-path-caddy": CaddyAtPath, "sub-path-nginx": NginxAtPath, "sub-path-haproxy": HAProxyAtPath}[KIND])
        if KIND.startswith("sub-path-") else recipes({"caddy": Caddy, "nginx": Nginx, "haproxy": HAProxy}[KIND]))()
finally:
    for process in reversed(processes):
        process.terminate()
    for process in processes:
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
