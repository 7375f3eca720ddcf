"""The commands of compile_commands.json with more flags, each ended by a zero byte.

    python3 tools/compile_commands.py [--naming PATTERN] FILE FLAG...

With --naming only of sources in which the pattern is found.
"""
import json
import re
import sys

words = sys.argv[1:]
pattern = words[1] if words[0] == "--naming" else ""
path, *flags = words[2:] if pattern else words
with open(path) as file:
    for entry in json.load(file):
        if not re.search(pattern, open(entry["file"]).read()):
            continue
        line = " ".join([entry["command"], *flags])
        sys.stdout.write(f"cd '{entry['directory']}' && {line}\0")
