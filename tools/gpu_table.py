#!/usr/bin/env python3
# gpu_table.py PROFILE LIMITS [dry] -- prints a table of kernels beside their
# limits: PROFILE is what $DNN_CUDA_PROFILE named, LIMITS what gpu_limits printed.
# `gpu_table.py PROFILE` prints the sizes of matmuls, as gpu_limits reads them, and
# for each of their dtypes a large square one, whose rate is the limit of kernels
# that multiply.  `gpu_table.py PROFILE dry` prints the same for a mock GPU, the
# square small; with LIMITS and `dry` the times are left out.
import json
import sys

LINES = 40  # of the longest kernels
is_dry = sys.argv[-1] == "dry"
square = 64 if is_dry else 4096
arguments = [argument for argument in sys.argv[1:] if argument != "dry"]


def read(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def size_of(row):
    return tuple(row[key] for key in ("m", "n", "k", "batch", "dtype", "c_dtype"))


profile = [row for row in read(arguments[0]) if row["entry"] == "train"]
if len(arguments) == 1:
    sizes = {size_of(row) for row in profile if "m" in row}
    squares = {(square, square, square, 1, *size[4:]) for size in sizes}
    for size in sorted(sizes | squares):
        print(*size)
    sys.exit(0 if profile else 1)

limits = read(arguments[1])
bandwidth = limits[0]["bytes_per_s"]
matmuls = {size_of(row): row["us"] for row in limits[1:]}

# Equal kernels with equal work are one line.
groups = {}
for row in profile:
    key = (row["kind"], row["kernel"] or size_of(row) if row["kind"] != "gemm" else size_of(row),
           row["flops"], row["bytes"])
    groups.setdefault(key, []).append(row)


# The rate of the fastest of all matmuls, for kernels that multiply, too.
best = max((2 * m * n * k * batch / us for (m, n, k, batch, *_), us in matmuls.items()),
           default=0)


def limit_us(row):
    if "m" in row:
        return matmuls[size_of(row)]
    return max(row["bytes"] / bandwidth * 1e6, row["flops"] / best if best else 0)


lines = []
for rows in groups.values():
    first = rows[0]
    us = sum(row["us"] for row in rows) / len(rows)
    name = first["path"]
    if "m" in first:
        name += " [%d %d %d x %d]" % (first["m"], first["n"], first["k"], first["batch"])
    lines.append((us * len(rows), len(rows), us, limit_us(first), first["kind"], name,
                  first["flops"], first["bytes"]))
lines.sort(reverse=True)
total = sum(line[0] for line in lines)
limit = sum(line[1] * line[3] for line in lines)

def show(value, form="%.1f"):
    return "-" if is_dry else form % value


print("%d launches, %d lines; sum of their times %s ms, of their limits %s ms." %
      (sum(line[1] for line in lines), len(lines), show(total / 1e3), show(limit / 1e3)))
print()
print("| launches | kind | first of them | us | limit us | share of limit | GB/s | TFLOP/s |")
print("|---|---|---|---|---|---|---|---|")
for all_us, n, us, least, kind, name, flops, moved in lines[:LINES]:
    print("| %d | %s | `%s` | %s | %s | %s | %s | %s |" %
          (n, kind, name, show(us), show(least), show(100 * least / us if us else 0, "%.0f %%"),
           show(moved / us / 1e3 if us else 0, "%.0f"), show(flops / us / 1e6 if us else 0, "%.2f")))
if len(lines) > LINES:
    print()
    print("The %d lines that follow are %s ms." %
          (len(lines) - LINES, show(sum(line[0] for line in lines[LINES:]) / 1e3)))
