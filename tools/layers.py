"""layers.py -- who may include and call whom, and which files call each other
in a circle.

    layers.py [BUILD]        (tools/layers.sh; BUILD is build without it)

The section "Layers" of ARCHITECTURE.md is the rule: its first table says which
folders a folder may use (a row may also name a single header, with the functions
that it declares), its second lists each circle of files that is allowed, with the
reason.  Checked are

  - the includes of all sources outside tests/ and benchmarks/;
  - the calls between object files: a symbol that code refers to.  Rows of tables
    do not count, they are relocations of data and not of .text;
  - circles of object files that call each other: none may span two folders (a
    folder is the directory of the source), one in frontend/elaborate/ may have 8
    files and another 4, and each is a row of the second table.

Without objects in BUILD it checks the includes alone and says so.
"""

import json
import os
import re
import subprocess
import sys

LIMITS = {"frontend/elaborate": 8}
LIMIT = 4
# Circles that are too large or span folders, and must shrink: the folder that
# holds all of one, and the files that it may have until then.
TOO_LARGE = {}
SKIPPED = ("tests", "benchmarks")
SOURCES = (".c", ".h", ".l", ".y", ".def", ".inc")

# ---- the rule ----


def section(text, title):
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.S | re.M)
    if not found:
        sys.exit(f"layers.sh: ARCHITECTURE.md has no section '{title}'")
    return found[1]


def table_rows(text):
    """Tables of Markdown as lists of cells, the rows of headings left out."""
    tables = re.findall(r"(?:^\|.*\n)+", text, re.M)
    for table in tables:
        lines = [line.strip()[1:-1].split("|") for line in table.splitlines()]
        yield [[cell.strip() for cell in cells] for cells in lines[2:]]


def names_in(cell):
    return re.findall(r"`([^`]+)`", cell)


def read_rule(path):
    tables = list(table_rows(section(open(path).read(), "Layers")))
    if not tables:
        sys.exit("layers.sh: ARCHITECTURE.md has no table under 'Layers'")
    allowed = {names_in(row[0])[0]: set(names_in(row[1])) for row in tables[0]}
    circles = [(names_in(row[0]), row[1]) for row in tables[1]
               ] if len(tables) > 1 else []
    return allowed, circles


def folder_of(allowed, path):
    """The innermost folder of a file that has a row."""
    rows = [row for row in allowed if path.startswith(row + "/")]
    return max(rows, key=len)


def may_use(allowed, user, used):
    """Whether a file may use another; both are paths from the root."""
    row = folder_of(allowed, user)
    own = used == row or used.startswith(row + "/")
    return own or any(used == name or used.startswith(name + "/")
                      for name in allowed[row])


# ---- includes ----


def sources():
    listing = subprocess.run(["git", "ls-files"], capture_output=True,
                             text=True, check=True).stdout.split("\n")
    return [path for path in listing if path.endswith(SOURCES) and "/" in path
            and path.split("/")[0] not in SKIPPED]


def check_includes(allowed, files):
    bad = []
    tops = {path.split("/")[0] for path in files}
    for top in sorted(tops - allowed.keys()):
        bad.append(f"the folder {top}/ has no row under 'Layers' in "
                   "ARCHITECTURE.md")
    for path in files:
        if path.split("/")[0] not in allowed:
            continue
        text = open(path, errors="replace").read()
        for match in re.finditer(r'^ *# *include "([^"]+)"', text, re.M):
            used = match[1]
            if used.split("/")[0] in tops and not may_use(allowed, path, used):
                line = text.count("\n", 0, match.start()) + 1
                bad.append(f"{path}:{line}: may not include {used}")
    return bad


# ---- objects ----


def source_of(path, root, files):
    """The tracked file that an object comes from; parser.c from parser.y."""
    path = os.path.relpath(path, root)
    if path in files:
        return path
    stem = os.path.splitext(os.path.basename(path))[0]
    grammar = [f for f in files if os.path.basename(f) in (stem + ".y",
                                                           stem + ".l")]
    return grammar[0] if grammar else None


def find_objects(build, files):
    """Object by source, as the build names them."""
    commands = os.path.join(build, "compile_commands.json")
    if not os.path.exists(commands):
        return {}
    root, known, objects = os.getcwd(), set(files), {}
    for entry in json.load(open(commands)):
        source = source_of(entry["file"], root, known)
        output = re.search(r" -o (\S+)", entry["command"])
        if source and output:
            path = os.path.join(entry["directory"], output[1])
            objects.setdefault(source, path)
    return objects


def by_object(tool, objects):
    """Lines that a tool of binutils prints, with the object of each."""
    listing = subprocess.run(tool + sorted(objects), capture_output=True,
                             text=True, check=True).stdout
    path = min(objects)  # a single file has no heading
    for line in listing.splitlines():
        head = re.match(r"(?:File: )?(.*?):?$", line)[1]
        if head in objects:
            path = head
        else:
            yield path, line


def read_objects(paths):
    """By object: names that it defines, names that its code refers to."""
    objects = set(paths)
    defined = {path: set() for path in objects}
    used = {path: set() for path in objects}
    for path, line in by_object(["nm"], objects):
        words = line.split()
        if len(words) == 3 and words[1] in "TDBRVW":
            defined[path].add(words[2])
    is_code = False
    for path, line in by_object(["readelf", "-rW"], objects):
        head = re.match(r"Relocation section '\.rela?(\.\S+)'", line)
        words = line.split()
        if head:
            is_code = head[1].startswith(".text")
        elif is_code and len(words) >= 5:
            used[path].add(words[4].split("@")[0])
    return defined, used


def call_graph(objects):
    """For each source the sources that it calls, with the names."""
    defined, used = read_objects(objects.values())
    owner = {}
    for source, path in sorted(objects.items()):
        for name in defined[path]:
            owner.setdefault(name, source)
    graph = {}
    for source, path in objects.items():
        names = sorted(used[path], reverse=True)
        calls = {}
        for name in names:
            if name in owner and owner[name] != source:
                calls.setdefault(owner[name], []).append(name)
        graph[source] = calls
    return graph


def declares(allowed, user, name):
    """Whether a header that the row of a file names declares the function."""
    headers = [path for path in allowed[folder_of(allowed, user)]
               if path.endswith(".h")]
    return any(re.search(rf"\b{name}\(", open(path).read())
               for path in headers)


def check_calls(allowed, graph):
    return [f"{user} may not call {name} of {used}"
            for user in sorted(graph) for used, names in graph[user].items()
            for name in names if not may_use(allowed, user, used)
            and not declares(allowed, user, name)]


# ---- circles ----


def find_circles(graph):
    """Strongly connected components with two files or more (Tarjan)."""
    index, low, stack, circles = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in sorted(graph[v]):
            if w not in index:
                visit(w)
            if w in stack:
                low[v] = min(low[v], low[w])
        if low[v] == index[v]:
            at = stack.index(v)
            circle = sorted(stack[at:])
            del stack[at:]
            if len(circle) > 1:
                circles.append(circle)

    sys.setrecursionlimit(10000)
    for v in sorted(graph):
        if v not in index:
            visit(v)
    return sorted(circles, key=lambda c: (-len(c), c))


def is_too_large(circle):
    folders = {os.path.dirname(path) for path in circle}
    folder = next(iter(folders))
    return len(folders) > 1 or len(circle) > LIMITS.get(folder, LIMIT)


def exception_of(circle):
    for folder, files in TOO_LARGE.items():
        if all(path.startswith(folder + "/") for path in circle):
            return folder if len(circle) <= files else None
    return None


def describe(circle, graph):
    folders = {os.path.dirname(path) for path in circle}
    where = f"{len(folders)} folders" if len(folders) > 1 else "one folder"
    lines = [f"circle of {len(circle)} files in {where}:"]
    lines += [f"    {user} calls {names[0]} of {used}" for user in circle
              for used, names in sorted(graph[user].items()) if used in circle]
    return "\n".join(lines)


def check_circles(graph, listed):
    bad, exceptions = [], set()
    circles = find_circles(graph)
    for circle in circles:
        is_listed = any(set(circle) <= set(names) for names, _ in listed)
        if is_too_large(circle):
            exceptions.add(exception_of(circle))
            if not exception_of(circle):
                bad.append(describe(circle, graph) + "\n  none may span folders"
                           f" or have more than {LIMIT} files "
                           "(frontend/elaborate/: 8)")
        elif not is_listed:
            bad.append(describe(circle, graph) + "\n  no row under 'Layers' in "
                       "ARCHITECTURE.md gives its reason")
    for folder in TOO_LARGE.keys() - exceptions:
        bad.append(f"no circle of {folder}/ is too large now: remove it from "
                   "TOO_LARGE in tools/layers.py")
    for names, reason in listed:
        if not any(set(circle) <= set(names) for circle in circles):
            bad.append("ARCHITECTURE.md lists a circle that is not there: " +
                       " ".join(names))
        elif len(reason) < 20:
            bad.append("ARCHITECTURE.md gives no reason for the circle of " +
                       " ".join(names))
    return bad, circles


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    allowed, listed = read_rule("ARCHITECTURE.md")
    files = sources()
    bad = check_includes(allowed, files)
    objects = find_objects(build, files)
    missing = [path for path in objects.values() if not os.path.exists(path)]
    if not objects or missing:
        print(f"layers.sh: includes alone, since {build}/ is not built"
              + (f" ({len(missing)} objects are missing)" if missing else ""))
    else:
        graph = call_graph(objects)
        bad += check_calls(allowed, graph)
        found, circles = check_circles(graph, listed)
        bad += found
        largest = max(map(len, circles), default=0)
        print(f"layers.sh: {len(objects)} objects, {len(circles)} circles, "
              f"largest {largest}")
    for message in bad:
        print("layers.sh: " + message)
    sys.exit(bool(bad))


main()
