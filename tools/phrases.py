"""phrases.py -- refuses phrases that are never right in sources, messages,
documents and tests; tools/phrases.list has them, with what to write instead.
It also refuses

  - comments that begin with 'What', 'Of', 'As', 'The same' or 'Whether': such a
    beginning makes a sentence without subject or verb;
  - examples in comments that are torn apart.  Indented lines are an example,
    which clang-format leaves as it is (CommentPragmas in .clang-format);
  - a page of Markdown whose sentences have more than 25 words on average.

    phrases.sh            checks all tracked files
    phrases.sh --words    prints the mean of each page instead
"""

import re
import subprocess
import sys

LIST = "tools/phrases.list"
# They quote phrases: the list, the glossary's old words, old names, old texts.
QUOTES = (LIST, "docs/glossary.md", "tools/replay.renames", "CHANGELOG.md")
FOLDERS = ("data/", "tests/reference/")
BINARY = (".gz", ".npy", ".safetensors", ".bin", ".csv", ".bpe")
# The beginning of a comment.
BEGINNING = re.compile(r"(?m)(?:/\*|^[ \t]*(?:#|//)) ?"
                       r"(What|Of|As|The same|Whether) [a-z]")
# The text between two words: white space, and marks of comment lines.
BETWEEN = r"(?:[ \t]|\n[ \t]*(?:\*|#|//)?)+"

# A comment of several lines.
COMMENT = re.compile(r"/\*.*?\*/", re.S)
CODE = (".c", ".h", ".def", ".inc", ".l", ".y")
# Columns within a line: a gap that follows no sentence or list and precedes no
# "requires:", "keeps:" and so on of a pass.
COLUMNS = re.compile(r"[^\s.:?!,;)] {2,}(?![a-z]+:)\S")
MAX_COLUMNS = 80
MAX_MEAN_WORDS = 25


def torn_examples(text, is_code):
    """(line, why) of each line of a comment that looks like a part of an
    example, or of a list, which was joined to the lines around it.  Tables
    (.def) may be wide."""
    for comment in COMMENT.finditer(text):
        first = text.count("\n", 0, comment.start()) + 1
        before = 0
        for i, line in enumerate(comment[0].split("\n")):
            found = re.match(r"\s*/?\*(?: (.*))?$", line)
            words = found[1] if found and found[1] else ""
            indent = len(words) - len(words.lstrip())
            if i and not indent and COLUMNS.search(words.removesuffix("*/")):
                yield first + i, "columns in a line that is not indented"
            if before and not indent and re.match(r"[a-z]|\.\.\.", words):
                yield first + i, "a line of an example is not indented"
            if indent and is_code and len(line) > MAX_COLUMNS:
                yield first + i, f"an example has more than {MAX_COLUMNS} columns"
            before = indent if indent > 1 else 0


def sentences(page):
    """The sentences of a page of Markdown, outside of headings, tables, fences
    and indented examples; text in backquotes is one word."""
    paragraph, is_fenced = [], False
    for line in page.split("\n") + [""]:
        words = line.strip()
        is_fence = words.startswith("```")
        is_item = re.match(r"(?:[-*]|\d+\.) ", words)
        is_prose = words and not is_fenced and not words.startswith(
            ("#", "|", "```", "<!--")) and (paragraph or line[:4] != "    ")
        if not is_prose or is_item:
            text = re.sub(r"`[^`]*`", "code", " ".join(paragraph))
            yield from filter(None, re.split(r"(?<=[.!?])[*)\"]*\s+", text))
            paragraph = []
        if is_prose:
            paragraph.append(words[is_item.end():] if is_item else words)
        is_fenced ^= is_fence


def mean_words(page):
    counts = [len(sentence.split()) for sentence in sentences(page)]
    return sum(counts) / max(1, len(counts))


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


def tracked():
    return subprocess.run(["git", "ls-files"], capture_output=True, text=True,
                          check=True).stdout.split()


def pages():
    return [path for path in tracked() if path.endswith(".md")]


def files():
    return [path for path in tracked()
            if path not in QUOTES and not path.endswith(BINARY)
            and not path.startswith(FOLDERS)]


def main():
    rules, bad, later = read_list(), 0, {}
    if "--words" in sys.argv:
        for path in pages():
            print(f"{mean_words(open(path).read()):5.1f}  {path}")
        return
    for path in pages():
        mean = mean_words(open(path).read())
        if mean > MAX_MEAN_WORDS:
            print(f"{path}: a sentence has {mean:.1f} words on average, at most "
                  f"{MAX_MEAN_WORDS}")
            bad += 1
    for path in files():
        text = open(path, errors="replace").read()
        for line, why in torn_examples(
                text, path.endswith((".c", ".h"))) if path.endswith(CODE) else ():
            print(f"{path}:{line}: {why}")
            bad += 1
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
