"""Facts of a release that several artifacts share: version, time, architecture, licences."""
import glob, os, platform, shutil, subprocess, tarfile, tempfile

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
PACKAGING = os.path.join(TOP, "packaging")
# The only place that names architectures: the kernel's name, then Debian's and OCI's, then the folder of libraries.
MACHINE = platform.machine()
ARCHITECTURE, TRIPLET = {
    "x86_64": ("amd64", "x86_64-linux-gnu"), "aarch64": ("arm64", "aarch64-linux-gnu")}[MACHINE]
# The licence of Swift's own libraries, which are part of the executable.
SWIFT_LICENSE = "share/swift/LICENSE.txt"


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=TOP).stdout


def version_of(executable):
    return output(executable, "--version").split()[1]


def commit_time():
    """The time of the last commit in seconds. All artifacts have it, so that the same sources give the same artifacts."""
    return int(output("git", "log", "-1", "--format=%ct"))


def plain(entry, seconds):
    """The entry of an archive with root as its owner and `seconds` as its time."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mtime = seconds
    return entry


def pack(folder, name, file, seconds):
    """Packs `folder` as `name` into a compressed archive whose bytes depend only on the content."""
    with open(file, "wb") as target:
        packed = subprocess.Popen(["gzip", "--no-name", "--best"], stdin=subprocess.PIPE, stdout=target)
        with tarfile.open(fileobj=packed.stdin, mode="w|") as archive:
            archive.add(folder, name, filter=lambda entry: plain(entry, seconds))
        packed.stdin.close()
        if packed.wait() != 0:
            raise SystemExit("gzip failed")


def sign(file, signature, *options):
    """Signs `file` with the key in the variable SIGNING_KEY, and writes the public key beside it. Does nothing without one."""
    key = os.environ.get("SIGNING_KEY")
    if not key:
        return
    with tempfile.TemporaryDirectory() as home:
        gpg = ["gpg", "--homedir", home, "--batch", "--yes", "--quiet", "--no-tty"]
        subprocess.run([*gpg, "--import", key], check=True)
        subprocess.run([*gpg, "--armor", *options, "--output", signature, file], check=True)
        public = subprocess.run([*gpg, "--export"], check=True, capture_output=True).stdout
        with open(os.path.join(os.path.dirname(signature), "pushchat-keyring.gpg"), "wb") as keyring:
            keyring.write(public)
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=True)


def referenced(text):
    """The name of the Apache License, which every Debian system contains, and a library's exception to it."""
    head, end = "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION", "END OF TERMS AND CONDITIONS"
    if head not in text or end not in text:
        return text
    more = text.split(end, 1)[1]
    exception = more.find("Runtime Library Exception")
    return "Apache License 2.0" + ("" if exception < 0 else ", with this:\n\n" + more[exception:].strip())


def licenses(checkouts):
    """The text of the file `copyright`: this project's licence, and the licences and notices of all libraries.

    `checkouts` contains the sources of the libraries.
    """
    debian = "On Debian systems the Apache License 2.0 is /usr/share/common-licenses/Apache-2.0."
    parts = [f"PushChat Relay\n\nCopyright: the PushChat Relay maintainers\nLicense: Apache License 2.0\n\n{debian}\n\n"
             "The executable contains these libraries, each under its own terms:"]
    swift = os.path.join(os.path.dirname(os.path.realpath(shutil.which("swift"))), "..", SWIFT_LICENSE)
    texts = {}
    for path in [swift] + sorted(glob.glob(f"{checkouts}/*/*")):
        name = "Swift" if path == swift else os.path.basename(os.path.dirname(path))
        if os.path.basename(path).split(".")[0].upper() in ("LICENSE", "NOTICE", "COPYING"):
            with open(path, encoding="utf-8") as file:
                texts.setdefault(referenced(file.read().strip()), []).append(name)
    # The line of hyphens prevents tools from reading a licence as a paragraph of a machine-readable copyright file.
    for text, names in texts.items():
        parts.append("-" * 78 + "\n" + ", ".join(dict.fromkeys(names)) + "\n" + "-" * 78 + "\n\n" + text)
    return "\n\n".join(parts) + "\n"
