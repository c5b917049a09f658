"""A Debian system in a folder, for tests of the package."""
import os, shutil, subprocess, sys


def check(what, holds, detail=""):
    if not holds:
        sys.exit(f"FAILED {what}: {detail}")
    print(what, flush=True)


def earlier(package, folder):
    """Builds the same package with the version number 0.0.1 in `folder`. Returns its path."""
    # Programs that list packages read the architecture from the name.
    name = os.path.basename(package).replace(os.path.basename(package).split("_")[1], "0.0.1")
    subprocess.run(["dpkg-deb", "--raw-extract", package, f"{folder}/before"], check=True)
    with open(f"{folder}/before/DEBIAN/control") as file:
        lines = [("Version: 0.0.1\n" if line.startswith("Version:") else line) for line in file]
    with open(f"{folder}/before/DEBIAN/control", "w") as file:
        file.writelines(lines)
    subprocess.run(["dpkg-deb", "-Znone", "--build", f"{folder}/before", f"{folder}/{name}"], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(f"{folder}/before")
    return f"{folder}/{name}"


class Root:
    """A Debian system that mmdebstrap creates in `folder`. Installing packages starts no services. Call `end` afterwards."""

    environment = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}

    def __init__(self, folder, more=""):
        self.folder = folder
        packages = "ca-certificates,procps,systemd,sqlite3" + more
        subprocess.run(["mmdebstrap", "--quiet", "--variant=apt", f"--include={packages}", "bookworm", folder], check=True)
        with open(f"{folder}/usr/sbin/policy-rc.d", "w") as file:
            file.write("#!/bin/sh\nexit 101\n")  # systemd does not run here.
        os.chmod(f"{folder}/usr/sbin/policy-rc.d", 0o755)
        subprocess.run(["mount", "-t", "proc", "proc", f"{folder}/proc"], check=True)

    def end(self):
        subprocess.run(["umount", f"{self.folder}/proc"], check=True)

    def path(self, name):
        return self.folder + name

    def command(self, *command, user="root"):
        if user != "root":
            command = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command)
        return ["chroot", self.folder, *command]

    def run(self, *command, user="root", input=None):
        return subprocess.run(
            self.command(*command, user=user), text=True, capture_output=True, input=input, env=self.environment)

    def must(self, what, *command, **more):
        ran = self.run(*command, **more)
        check(what, ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:])
        return ran.stdout

    def install(self, what, package, *more):
        shutil.copy(package, self.path("/tmp/pushchat.deb"))
        self.must(what, "apt-get", "install", "-qy", "--no-install-recommends", "--allow-downgrades", "/tmp/pushchat.deb", *more)
