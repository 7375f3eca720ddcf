#!/usr/bin/env python3
"""same_objects.py -- shows that a commit that only moves files changes no code.

    same_objects.py OLD_BUILD NEW_BUILD

Compares the objects of two builds, which may lie in other folders: the bytes of
.text and .data and their relocations must be equal.  Strings are not compared,
because an assertion holds the name of its file (__FILE__); a relocation into a
section of strings counts without its offset for the same reason.  Objects are
paired by their content, since a move changes their names.  Exit 1 with a list of
the objects of either build that have no partner.
"""
import collections
import hashlib
import os
import re
import subprocess
import sys


def relocations(path):
    """Section, offset, kind and target of each relocation of code and data."""
    listing = subprocess.run(["readelf", "-rW", path], capture_output=True,
                             text=True, check=True).stdout
    section = ""
    for line in listing.splitlines():
        head = re.match(r"Relocation section '\.rela(\.\S+)'", line)
        if head:
            section = head[1]
            continue
        words = line.split()
        if len(words) < 5 or not section.startswith((".text", ".data")):
            continue
        target = words[4]
        addend = " ".join(words[5:])
        if target.startswith((".rodata", ".LC")):
            addend = ""
        yield (section, words[0], words[2], target, addend)


def contents(path):
    """A digest of the code and data of one object, its string table apart."""
    digest = hashlib.sha256()
    sections = subprocess.run(["readelf", "-SW", path], capture_output=True,
                              text=True, check=True).stdout
    with open(path, "rb") as file:
        image = file.read()
    for line in sections.splitlines():
        row = re.match(r"\s*\[\s*\d+\]\s+(\.(?:text|data)\S*)\s+PROGBITS\s+"
                       r"\S+\s+(\S+)\s+(\S+)", line)
        if row:
            begin, size = int(row[2], 16), int(row[3], 16)
            digest.update(row[1].encode() + image[begin:begin + size])
    for relocation in relocations(path):
        digest.update(repr(relocation).encode())
    return digest.hexdigest()


def objects(build):
    found = collections.defaultdict(list)
    for folder, _, names in os.walk(build):
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".c.o") and "/tests/" not in path:
                found[contents(path)].append(os.path.relpath(path, build))
    return found


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    old, new = (objects(build) for build in sys.argv[1:])
    lone = [(side, path)
            for side, mine, other in (("old", old, new), ("new", new, old))
            for digest, paths in sorted(mine.items())
            if len(paths) != len(other.get(digest, []))
            for path in paths]
    for side, path in lone:
        print(f"{side}: {path} has no equal partner")
    n = sum(len(paths) for paths in new.values())
    print(f"{n} objects, {len(lone)} without a partner")
    sys.exit(bool(lone))


main()
