"""HTTP/1.1 and WebSockets over raw sockets with TLS, so that a script controls and sees every byte."""
import base64, hashlib, json, os, socket, ssl, struct

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10


class Ended(Exception):
    """The other side closed or reset the connection."""


class Answer:
    def __init__(self, status, headers, body=b""):
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self):
        return self.body.decode()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def lines(self):
        """The objects of an answer that has one in each line."""
        return [json.loads(line) for line in self.text.splitlines()]

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body!r}"


class Wire:
    """A connection to the relay on this machine. Reads wait at most `within` seconds."""

    def __init__(self, port, authority=None, protocols=("http/1.1",), within=20):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=within)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if authority:
            context = ssl.create_default_context(cafile=authority)
            context.set_alpn_protocols(list(protocols))
            self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self.buffer = b""

    @property
    def protocol(self):
        return self.socket.selected_alpn_protocol()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError) as error:
            raise Ended(str(error))

    def receive(self):
        try:
            more = self.socket.recv(65536)
        except (ConnectionResetError, ssl.SSLError) as error:
            raise Ended(str(error))
        if not more:
            raise Ended("end")
        self.buffer += more

    def exactly(self, count):
        while len(self.buffer) < count:
            self.receive()
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    def until(self, mark):
        while mark not in self.buffer:
            self.receive()
        data, _, self.buffer = self.buffer.partition(mark)
        return data

    def rest(self):
        """Returns all bytes until the relay ends the connection."""
        try:
            while True:
                self.receive()
        except Ended:
            data, self.buffer = self.buffer, b""
            return data

    def half_close(self):
        """Sends FIN below TLS, as a network that loses one direction."""
        socket.socket.shutdown(self.socket, socket.SHUT_WR)

    def close(self):
        self.socket.close()

    # HTTP

    def head(self):
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return Answer(int(lines[0].split(" ")[1]), headers)

    def request(self, method, target, headers, body=None):
        """Sends a request whose headers are complete, and returns its response."""
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
        self.send("\r\n".join([*lines, "", ""]).encode() + (body or b""))
        answer = self.head()
        if method != "HEAD" and answer.status not in (101, 204, 304):
            if answer.headers.get("transfer-encoding") == "chunked":
                answer.body = b"".join(self.chunks())
            else:
                answer.body = self.exactly(int(answer.headers.get("content-length", 0)))
        return answer

    def chunks(self):
        while size := int(self.until(b"\r\n"), 16):
            data = self.exactly(size)
            self.until(b"\r\n")
            yield data
        self.until(b"\r\n")


class Lines:
    """The lines of a response that does not end. Raises `Ended` when the connection ends, and reports a clean end of the body."""

    def __init__(self, wire, target, headers):
        self.wire = wire
        wire.send("\r\n".join([f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]).encode())
        self.answer = wire.head()
        self.text = b""
        self.has_last_chunk = False
        if self.answer.status != 200:
            self.answer.body = wire.exactly(int(self.answer.headers.get("content-length", 0)))
        self.pieces = wire.chunks()

    def line(self):
        while b"\n" not in self.text:
            try:
                self.text += next(self.pieces)
            except StopIteration:
                self.has_last_chunk = True
                raise Ended("the body ended")
        line, _, self.text = self.text.partition(b"\n")
        return line.decode()

    def next(self):
        return json.loads(self.line())


class WebSocket:
    """A client of a WebSocket. Only `next` answers pings."""

    def __init__(self, wire, target, headers, extra=b""):
        self.wire, key = wire, base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value.replace('KEY', key)}" for name, value in headers), "", ""]
        wire.send("\r\n".join(lines).encode() + extra)
        self.answer = wire.head()
        if self.answer.status != 101:
            self.answer.body = wire.exactly(int(self.answer.headers.get("content-length", 0)))
            return
        accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
        names = self.answer.headers
        if names.get("sec-websocket-accept") != accept or names.get("upgrade", "").lower() != "websocket" \
                or names.get("connection", "").lower() != "upgrade" or "sec-websocket-extensions" in names \
                or "sec-websocket-protocol" in names:
            raise SystemExit(f"FAILED the handshake: {self.answer}")

    def frame(self):
        """Returns the opcode and the payload of the next frame. A server's frames have no mask and no reserved bits."""
        first, second = self.wire.exactly(2)
        length = second & 127
        if length > 125:
            length = struct.unpack("!H" if length == 126 else "!Q", self.wire.exactly(2 if length == 126 else 8))[0]
        if first & 0x70 or second & 128 or not first & 128:
            raise SystemExit(f"FAILED a frame begins with {first:02x} {second:02x}")
        return first & 15, self.wire.exactly(length)

    def send(self, opcode, payload=b"", first=None, mask=True, length=None):
        """Sends a frame. `first` and `length` replace its first byte and its length."""
        length = len(payload) if length is None else length
        head = bytes([0x80 | opcode if first is None else first])
        if length < 126:
            head += bytes([length | 128 * mask])
        elif length < 65536:
            head += struct.pack("!BH", 126 | 128 * mask, length)
        else:
            head += struct.pack("!BQ", 127 | 128 * mask, length)
        key = os.urandom(4) if mask else b""
        if mask:
            payload = bytes(byte ^ key[index % 4] for index, byte in enumerate(payload))
        self.wire.send(head + key + payload)

    def next(self):
        """Returns the object in the next text frame, and answers pings before it."""
        while True:
            opcode, payload = self.frame()
            if opcode == TEXT:
                return json.loads(payload)
            if opcode != PING:
                raise SystemExit(f"FAILED a frame has the opcode {opcode}: {payload!r}")
            self.send(PONG, payload)

    def ping(self, payload=b"x"):
        """Sends a ping and waits for its pong."""
        self.send(PING, payload)
        opcode, answer = self.frame()
        return opcode == PONG and answer == payload
