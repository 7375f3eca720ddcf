#!/usr/bin/env python3
# page_numbers.py -- compares a page of `dnnc show --html` with the object that
# --json prints: page_numbers.py PAGE JSON
#
# Each number of the page stands in <data data-key="KEY" value="VALUE">, and the
# object has VALUE under KEY.  The words that a reader sees agree with VALUE to
# the last digit.  The children of a group with a key are the elements of that
# array, and their titles have its figures.  Digits elsewhere are those of ticks,
# or of strings of the object.
import json
import re
import sys
from html.parser import HTMLParser

UNITS = {"s": 1, "ms": 1e-3, "us": 1e-6, "%": 1e-2, "": 1}
for i, prefix in enumerate("kMGTPE"):
    for unit in ("", "B", "FLOP", "FLOP/s"):
        UNITS[prefix + unit] = 1000.0 ** (i + 1)
UNITS.update({"B": 1, "FLOP": 1, "FLOP/s": 1})


def time_text(ps):
    """As page_time does it, product for product: the last digit is rounded."""
    if ps >= 10**12:
        return f"{ps * 1e-12:.3f} s"
    return f"{ps * 1e-9:.3f} ms" if ps >= 10**9 else f"{ps * 1e-6:.3f} us"


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.stack, self.data, self.words, self.groups, self.tags = [], [], [], {}, []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        if tag == "g" and "data-key" in attrs:
            self.groups[attrs["data-key"]] = []
        if tag == "title":
            for _, of in reversed(self.stack):
                if "data-key" in of:
                    self.groups[of["data-key"]].append("")
                    break
        if tag == "data":
            self.data.append([attrs["data-key"], attrs["value"], ""])
        if tag not in ("meta", "link", "br"):
            self.stack.append((tag, attrs))

    def handle_endtag(self, tag):
        while self.stack and self.stack.pop()[0] != tag:
            pass

    def handle_data(self, text):
        tags = [tag for tag, _ in self.stack]
        if "style" in tags or not text.strip():
            return
        if "data" in tags:
            self.data[-1][2] += text
        elif "title" in tags:
            for _, of in reversed(self.stack):
                if "data-key" in of:
                    self.groups[of["data-key"]][-1] += text
                    break
        elif self.stack[-1][1].get("class") != "tick":
            self.words.append(text)


def look_up(shown, key):
    for part in key.split("."):
        shown = shown[int(part)] if isinstance(shown, list) else shown[part]
    return shown


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings(inner)


def main():
    page, shown = Page(), json.load(open(sys.argv[2]))
    page.feed(open(sys.argv[1]).read())
    for key, value, words in page.data:
        assert float(look_up(shown, key)) == float(value), (key, value)
        number, unit = re.fullmatch(r"([-+]?[\d,]+(?:\.\d+)?) ?(\D*)", words).groups()
        digits = len(number.partition(".")[2])
        scale = UNITS[unit] * (10**12 if key.endswith("_ps") else 1)
        error = abs(float(number.replace(",", "")) * scale - float(value))
        assert error <= 0.501 * scale / 10**digits + 1e-12, (key, value, words)
    known = "\n".join(strings(shown))
    for words in page.words:
        for word in words.split():
            assert not re.search(r"\d", word) or word.strip(".,:;") in known, words
    titles = 0
    for key, group in page.groups.items():
        elements = look_up(shown, key)
        assert len(group) == len(elements), key
        for title, of in zip(group, elements):
            titles += 1
            if "calls" in of:
                name = f"{of.get('stage', '')}{of['call']}{of.get('microbatch', '')}"
                length = time_text(of["end_ps"] - of["begin_ps"])
                assert title.startswith(f"{name}, {length} at {time_text(of['begin_ps'])}"), title
            elif "end_ps" in of:
                assert title.startswith((of["first"] or "(no path)")), title
                assert f"\n{of['phase']}, {time_text(of['end_ps'] - of['begin_ps'])}" in title, title
                for part, ps in of["parts_ps"].items():
                    assert f"\n{part} {time_text(ps)}" in title, title
            else:
                assert title.startswith(f"at {time_text(of['time_ps'])}: "), title
    for tag, attrs in page.tags:
        assert tag not in ("script", "img", "iframe", "object", "embed"), tag
        assert not any(name in ("src", "srcset") or name.startswith("on") for name in attrs), attrs
        assert tag != "link" or attrs["href"] == "data:,", attrs
    calls = shown.get("calls", [])
    for row, of in zip(calls, shown["ranks"]):
        ends = [(bar["begin_ps"], bar["end_ps"]) for bar in row]
        assert all(a[1] == b[0] for a, b in zip(ends, ends[1:])), "calls have gaps"
        assert abs((ends[-1][1] - ends[0][0]) * 1e-12 - shown["step_s"]) < 0.02 * shown["step_s"], of
    assert len(calls) == (len(shown["ranks"]) if shown.get("edges") else 0), "rows of calls"
    drawn = sum(len(row) for row in calls) + sum(len(lane["bars"]) for line in shown["timelines"] for lane in line["lanes"])
    assert titles == drawn + len(shown["memory_over_time"]), (titles, drawn)
    print(f"{len(page.data)} numbers, {titles} titles")


main()
