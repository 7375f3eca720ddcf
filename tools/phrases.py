"""phrases.py -- refuses phrases that are never right in sources, messages,
documents and tests; tools/phrases.list has them, with what to write instead.
It also refuses comments that begin with 'What' or 'Of': such a beginning makes
a sentence without subject or verb."""

import re
import subprocess
import sys

LIST = "tools/phrases.list"
# They quote phrases: the list, the glossary's old words, old names, old texts.
QUOTES = (LIST, "docs/glossary.md", "tools/replay.renames", "CHANGELOG.md")
FOLDERS = ("data/", "tests/reference/")
BINARY = (".gz", ".npy", ".safetensors", ".bin", ".csv", ".bpe")
# The beginning of a comment.
BEGINNING = re.compile(r"(?m)(?:/\*|^[ \t]*(?:#|//)) ?(What|Of) [a-z]")
# The text between two words: white space, and marks of comment lines.
BETWEEN = r"(?:[ \t]|\n[ \t]*(?:\*|#|//)?)+"


def read_list():
    """(pattern, phrase, better, is it refused)"""
    rules = []
    for line in open(LIST):
        line = line.split("#")[0].strip()
        if not line:
            continue
        phrase, better = line.split(" -> ")
        is_later = phrase.startswith("later ")
        phrase = phrase.removeprefix("later ")
        words = [re.escape(word).replace(r"\-", "[-_]")
                 for word in phrase.split()]
        pattern = r"(?<![A-Za-z])" + BETWEEN.join(words) + r"s?(?![A-Za-z])"
        rules.append((re.compile(pattern, re.I), phrase, better, not is_later))
    return rules


def files():
    listing = subprocess.run(["git", "ls-files"], capture_output=True,
                             text=True, check=True).stdout.split("\n")
    return [path for path in listing
            if path and path not in QUOTES and not path.endswith(BINARY)
            and not path.startswith(FOLDERS)]


def main():
    rules, bad, later = read_list(), 0, {}
    for path in files():
        text = open(path, errors="replace").read()
        for match in BEGINNING.finditer("" if path.endswith(".md") else text):
            line = text.count("\n", 0, match.start()) + 1
            print(f"{path}:{line}: a comment begins with '{match[1]}'")
            bad += 1
        for pattern, phrase, better, is_refused in rules:
            for match in pattern.finditer(text):
                if not is_refused:
                    later[phrase] = later.get(phrase, 0) + 1
                    continue
                line = text.count("\n", 0, match.start()) + 1
                print(f"{path}:{line}: '{phrase}': write {better}")
                bad += 1
    for phrase, hits in sorted(later.items()):
        print(f"phrases.sh: '{phrase}' is to go: {hits} hits")
    for _, phrase, _, is_refused in rules:
        if not is_refused and phrase not in later:
            print(f"phrases.sh: '{phrase}' has no hits: remove its 'later'")
    sys.exit(bad > 0)


main()
