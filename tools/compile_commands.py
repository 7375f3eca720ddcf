"""The commands of compile_commands.json with more flags, each ended by a zero byte.

    python3 tools/compile_commands.py FILE FLAG...
"""
import json
import sys

path, *flags = sys.argv[1:]
with open(path) as file:
    for entry in json.load(file):
        line = " ".join([entry["command"], *flags])
        sys.stdout.write(f"cd '{entry['directory']}' && {line}\0")
