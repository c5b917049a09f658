"""A disk whose content is known at each moment of a record that `record.c` made, and after a power cut at that moment.

All synced data is there: the content that a file had before its sync began, and the names that a folder had before its sync began.
Of each later change nothing, all or a part may be there. Parts of a write end at 512 bytes. Changes may be there in any order: a
name without its content, or a later write without an earlier one.

Assumed: the disk tears no 512 bytes, and changes nothing beside a write. So does SQLite (its "powersafe overwrite").
"""
import os, struct

EVENT = struct.Struct("<c7xQQQIIQ")
SECTOR = 512
# SQLite maps its index of the write-ahead log into memory. The file is not durable: the first program that opens the database
# rebuilds it. States do not have it.
MAPPED = "-shm"


def events(file):
    """Reads a record. An event is (kind, time, inode, number, first, second, bytes)."""
    with open(file, "rb") as record:
        while head := record.read(EVENT.size):
            kind, time, inode, number, first, second, count = EVENT.unpack(head)
            names = [record.read(length).decode().removesuffix(" (deleted)") for length in (first, second)]
            yield kind.decode(), time, inode, number, *names, record.read(count)


class Node:
    """A file or a folder. `current` is its content for programs, `synced` what a power cut leaves of it in any case."""

    def __init__(self, content):
        self.current, self.synced = content, content.copy()
        # Changes since the last sync, and the number of changes before them.
        self.pending, self.past = [], 0

    def change(self, change):
        self.pending.append(change)
        self.apply(change, self.current)

    def sync(self, count):
        """Makes the first changes of all times durable."""
        ended, self.pending = self.pending[:max(0, count - self.past)], self.pending[max(0, count - self.past):]
        for change in ended:
            self.apply(change, self.synced)
        self.past += len(ended)

    def after_cut(self, chance):
        """Returns the content after a power cut with all pending changes, with none, or with those that `chance` chooses."""
        if chance == "all":
            return self.current
        content = self.synced.copy()
        if chance != "nothing":
            share = chance.choice((0.1, 0.5, 0.9))
            for change in self.chosen(chance, lambda: chance.random() < share):
                self.apply(change, content)
        return content


class File(Node):
    """A change is (offset, bytes), or (size, None)."""

    @staticmethod
    def apply(change, content):
        offset, data = change
        content.extend(bytes(max(0, offset - len(content))))
        content[offset:offset + len(data) if data is not None else None] = data or b""

    def chosen(self, chance, is_there):
        if chance.random() < 0.4:
            return self.pending if chance.random() < 0.5 else []
        return [part for change in self.pending for part in self.sectors(change) if is_there()]

    @staticmethod
    def sectors(change):
        offset, data = change
        if data is None:
            return [change]
        edges = [offset, *range((offset // SECTOR + 1) * SECTOR, offset + len(data), SECTOR), offset + len(data)]
        return [(start, data[start - offset:end - offset]) for start, end in zip(edges, edges[1:])]


class Folder(Node):
    """A change is {name: node}, with None for a name that ends."""

    @staticmethod
    def apply(change, names):
        for name, node in change.items():
            names.pop(name, None)
            if node:
                names[name] = node

    def chosen(self, chance, is_there):
        count = len(self.pending)
        style, number = chance.choice(("journal", "one lost", "any")), chance.randint(0, count)
        if style == "journal":
            return self.pending[:number]
        if style == "one lost":
            return self.pending[:number] + self.pending[number + 1:]
        return [change for change in self.pending if is_there()]


class Disk:
    def __init__(self, root, is_whole=lambda path: True):
        """Begins with the files that are there, as if they were synced.

        `is_whole` says whether the file at a path is replaced as a whole, unlike a database.
        """
        self.root, self.is_whole, self.syncs, self.inodes = os.path.realpath(root), is_whole, {}, {}
        # For each such path: its whole contents so far with their times, which are those when the file got this name, and those at
        # its syncs. And the time when it was last removed.
        self.versions, self.removed = {}, {}
        self.top = self.read(self.root)

    def read(self, path):
        if os.path.isdir(path):
            node = Folder({name: self.read(f"{path}/{name}") for name in os.listdir(path)})
        else:
            with open(path, "rb") as file:
                node = File(bytearray(file.read()))
            self.keep_version(path, node)
        self.inodes[os.stat(path).st_ino] = node
        return node

    def keep_version(self, path, file, time=0):
        if isinstance(file, File) and self.is_whole(path):
            self.versions.setdefault(path, []).append((time, bytes(file.current)))

    def folder(self, path):
        """Returns the folder of a path, and the path's name in it."""
        node = self.top
        *parents, name = os.path.relpath(path, self.root).split("/")
        for part in parents:
            node = node.current[part]
        return node, name

    def play(self, event):
        kind, time, inode, number, first, second, data = event
        if first.endswith(MAPPED):
            return
        if kind == "e":
            raise SystemExit(f"FAILED the record lacks a change of {first} ({second})")
        if kind in "cdurl":
            folder, name = self.folder(first)
            target, new_name = self.folder(second) if second else (folder, name)
            if folder is not target:
                raise SystemExit(f"FAILED {first} gets the name {second} in another folder: the model lacks that")
            if kind in "cd":
                self.inodes[inode] = File(bytearray()) if kind == "c" else Folder({})
            node = None if kind == "u" else self.inodes[inode] if kind in "cd" else folder.current[name]
            folder.change({**({name: None} if kind == "r" else {}), new_name: node})
            if kind in "ur":
                self.removed[first] = time
            if kind in "rl":
                self.keep_version(second, node, time)
        elif kind in "wt":
            self.inodes[inode].change((number, data if kind == "w" else None))
        elif kind == "s":
            node = self.inodes[inode]
            self.syncs[number] = node, node.past + len(node.pending)
            self.keep_version(first, node, time)
        elif kind == "S":
            node, count = self.syncs.pop(number)
            node.sync(count)

    def write(self, target, chance, folder=None):
        """Writes a state after a power cut into a folder."""
        os.makedirs(target, exist_ok=True)
        for name, node in (folder or self.top).after_cut(chance).items():
            if isinstance(node, Folder):
                self.write(f"{target}/{name}", chance, node)
            else:
                with open(f"{target}/{name}", "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                    file.write(node.after_cut(chance))

    def differences(self):
        """Returns the paths whose files differ from the record."""
        def compare(folder, path):
            names = {name for name in os.listdir(path) if not name.endswith(MAPPED)}
            yield from (f"{path}/{name}" for name in names ^ set(folder.current))
            for name in names & set(folder.current):
                node, place = folder.current[name], f"{path}/{name}"
                if isinstance(node, Folder):
                    yield from compare(node, place)
                else:
                    with open(place, "rb") as file:
                        if file.read() != node.current:
                            yield place
        return list(compare(self.top, self.root))
