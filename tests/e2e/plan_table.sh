#!/bin/bash
# `dnnc plan --table` has the best plan of each mesh, or of each cluster and number of ranks, priced as
# `simulate` prices it; `--frontier` has those that no other beats in memory and step; `--html` writes a page whose numbers are those of --json.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"
cluster() { # NAME RANKS LINK
  printf 'device core { base = cpu; memory = 1GiB }\ncluster %s {\n device = core\n level node { count = %d; link = %s }\n}\n' \
    "$1" "$2" "$3" >"$1.cluster"
}
cluster near 4 8GB/s
cluster far 8 50MB/s
model=$root/models/chargpt.dnn
small=(L=1 B=16)

# ---- by mesh ----
"$dnnc" plan "$model" "${small[@]}" --cluster near.cluster --table --effort 120 --json >rows.json 2>message ||
  { cat message; fail "the table"; }
"$dnnc" plan "$model" "${small[@]}" --cluster near.cluster --table --effort 120 >rows 2>message || { cat message; fail "the table"; }
"$dnnc" plan "$model" "${small[@]}" --cluster near.cluster --effort 120 --json --quiet >best.json || fail "plan"
cat >rows.py <<'END2'
import json, subprocess, sys
dnnc, model, *small = sys.argv[1:]
rows = json.load(open("rows.json"))["rows"]
assert len(rows) >= 3, rows
assert len({row["mesh"] for row in rows}) == len(rows), "a mesh stands twice"
steps = [row["step_ps"] for row in rows]
assert steps == sorted(steps), steps
best = json.load(open("best.json"))
assert rows[0]["step_ps"] <= round(best["step_s"] * 1e12), (rows[0], best["step_s"])
text = open("rows").read().splitlines()
assert len(text) == len(rows) + 1, text
for row, line in zip(rows, text[1:]):
    open("row.plan", "w").write(row["plan"])
    done = subprocess.run([dnnc, "simulate", model, *small, "--plan", "row.plan", "--cluster", "near.cluster", "--json"],
                          capture_output=True, text=True, check=True)
    price = json.loads(done.stdout)
    assert round(price["step_s"] * 1e12) == row["step_ps"], (row, price["step_s"])
    for key in ("mfu", "tokens_per_s", "samples_per_s"):
        assert abs(price[key] / row[key] - 1) < 1e-9, (key, row, price[key])
    assert abs(row["tokens_per_s_per_device"] * 4 / row["tokens_per_s"] - 1) < 1e-9
    assert price["ranks"][0]["peak_bytes"] == row["peak_bytes"] and price["fits"] == row["fits"]
    assert f"{row['step_ps'] * 1e-9:.3f} ms" in line and line.endswith(row["words"]), line
    assert row["words"].startswith(row["mesh"])
print(len(rows))
END2
n=$(python3 rows.py "$dnnc" "$model" "${small[@]}") || { cat rows; fail "the rows"; }

# ---- by cluster and ranks ----
"$dnnc" plan "$model" "${small[@]}" --cluster near.cluster --cluster far.cluster --ranks 2,4 --effort 40 --json >rows.json 2>message ||
  { cat message; fail "several"; }
for ranks in 2 4; do
  for name in near far; do
    "$dnnc" plan "$model" "${small[@]}" --cluster $name.cluster --ranks $ranks --effort 40 --json --quiet >$name$ranks.json || fail "plan"
  done
done
python3 - <<'END2' || { cat rows.json; fail "rows of several"; }
import json
rows = json.load(open("rows.json"))["rows"]
assert [(r["cluster"], r["n_ranks"]) for r in rows] == [(f"{c}.cluster", n) for c in ("near", "far") for n in (2, 4)], rows
for row in rows:
    one = json.load(open(f"{row['cluster'].split('.')[0]}{row['n_ranks']}.json"))
    assert round(one["step_s"] * 1e12) == row["step_ps"] and one["plan"] == row["plan"], row
END2
"$dnnc" plan "$model" "${small[@]}" --cluster near.cluster --ranks 2,4 --effort 40 >rows || fail "words"
[ "$(wc -l <rows)" = 3 ] && head -n 1 rows | grep -q 'a device' || { cat rows; fail "words"; }
# No row fits: the bytes, and exit 2.
"$dnnc" plan "$model" "${small[@]}" --cluster near.cluster --table --effort 20 --what-if memory=1MB >rows 2>message
[ $? = 2 ] && grep -q ': does not fit$' rows && grep -q 'no plan of the table fits' message || { cat rows message; fail "no row fits"; }

# ---- the page ----
"$dnnc" plan "$model" "${small[@]}" --cluster near.cluster --effort 120 --html page.html -o found.plan --json >out.json 2>message ||
  { cat message; fail "the page"; }
python3 - <<'END2' || fail "the object of the page"
import json
out = json.load(open("out.json"))
page, best = out["page"], json.load(open("best.json"))
json.dump(page, open("shown.json", "w"))
search = page["search"]
assert page["step_ps"] == round(out["step_s"] * 1e12) == round(best["step_s"] * 1e12)
assert search["file"] == open("found.plan").read() and "certificate {" in search["file"]
assert search["candidates"] == out["candidates"] and search["space"] == out["space"]
falls = search["falls"]
assert all(a["candidates"] < b["candidates"] and a["step_ps"] > b["step_ps"] for a, b in zip(falls, falls[1:])) and len(falls) > 1
assert search["meshes"][0]["step_ps"] == page["step_ps"] == falls[-1]["step_ps"], (search["meshes"][0], falls)
assert search["data_parallel_step_ps"] >= page["step_ps"]
assert len(page["lines"]) >= 1
END2
python3 "$root/tests/e2e/page_numbers.py" page.html shown.json >numbers || fail "the numbers of the page"
for key in search.candidates search.meshes.0.step_ps search.falls.1.step_ps search.data_parallel_step_ps; do
  grep -q "data-key=\"$key\"" page.html || fail "the page lacks $key"
done
grep -q 'certificate {' page.html || fail "the page lacks the certificate"

# ---- the frontier ----
"$dnnc" plan "$model" "${small[@]}" --cluster near.cluster --frontier --effort 20 --json >rows.json 2>message ||
  { cat message; fail "the frontier"; }
"$dnnc" plan "$model" "${small[@]}" --cluster near.cluster --effort 20 --json --quiet >best.json || fail "plan"
limit=$(python3 -c 'import json; print(json.load(open("rows.json"))["rows"][-1]["peak_bytes"] // 2)')
"$dnnc" plan "$model" "${small[@]}" --cluster near.cluster --effort 20 --what-if memory=${limit}B --json --quiet >half.json || fail "half"
cat >frontier.py <<'END2'
import json, subprocess, sys
dnnc, model, *small = sys.argv[1:]
rows = json.load(open("rows.json"))["rows"]
assert len(rows) >= 4, rows
for a, b in zip(rows, rows[1:]):
    assert a["peak_bytes"] < b["peak_bytes"] and a["step_ps"] > b["step_ps"], (a, b)
for row in rows:
    open("row.plan", "w").write(row["plan"])
    done = subprocess.run([dnnc, "simulate", model, *small, "--plan", "row.plan", "--cluster", "near.cluster", "--json"],
                          capture_output=True, text=True, check=True)
    price = json.loads(done.stdout)
    assert round(price["step_s"] * 1e12) == row["step_ps"], (row, price["step_s"])
    assert price["ranks"][0]["peak_bytes"] == row["peak_bytes"] and row["fits"]
    assert row["memory_bytes"] == 1 << 30, row
# With the memory of a rank, and with half of what the fastest plan needs.
for file, most in (("best.json", 1 << 30), ("half.json", rows[-1]["peak_bytes"] // 2)):
    best = json.load(open(file))
    fastest = min(row["step_ps"] for row in rows if row["peak_bytes"] <= most)
    assert fastest <= round(best["step_s"] * 1e12), (file, fastest, best["step_s"])
print(len(rows))
END2
points=$(python3 frontier.py "$dnnc" "$model" "${small[@]}") || { cat rows.json; fail "the frontier"; }
"$dnnc" plan "$model" "${small[@]}" --cluster near.cluster --frontier --effort 20 >rows 2>message || fail "the frontier as text"
python3 - <<'END2' || { cat rows; fail "rows of the frontier"; }
import json
rows, text = json.load(open("rows.json"))["rows"], open("rows").read().splitlines()[1:]
assert len(rows) == len(text)
for row, line in zip(rows, text):
    assert f"{row['step_ps'] * 1e-9:.3f} ms" in line and line.endswith(row["words"]), (row, line)
END2
# Rows that are not faster than one of fewer ranks are left out.
printf 'cluster gpus {\n device = h100_sxm\n level node { count = 4; link = 450GB/s }\n}\n' >gpus.cluster
"$dnnc" plan "$model" L=1 B=512 C=1024 --cluster gpus.cluster --frontier --ranks 4,1,2 --effort 20 --json >rows.json || fail "ranks"
"$dnnc" plan "$model" "${small[@]}" --cluster far.cluster --frontier --ranks 1,2,4 --effort 20 --json >far.json || fail "far ranks"
"$dnnc" plan "$model" "${small[@]}" --cluster far.cluster --ranks 1,2,4 --effort 20 --json >all.json || fail "all ranks"
python3 - <<'END2' || { cat rows.json far.json; fail "the frontier of ranks"; }
import json
rows, far, every = [json.load(open(f))["rows"] for f in ("rows.json", "far.json", "all.json")]
assert [r["n_ranks"] for r in rows] == [1, 2, 4], rows
assert all(a["step_ps"] > b["step_ps"] for a, b in zip(rows, rows[1:]))
best, kept = None, []
for row in every:
    if best is None or row["step_ps"] < best:
        best = row["step_ps"]
        kept.append(row)
assert far == kept, (far, kept)
END2

# ---- mistakes ----
wrong() { # TEXT OPTION...
  "$dnnc" plan "$model" "${@:2}" >out 2>message && fail "'${*:2}' ends well"
  grep -q -- "$1" message || { cat message; fail "'${*:2}'"; }
}
wrong "takes integers of at least 1" --cluster near.cluster --ranks 0
wrong "takes integers of at least 1" --cluster near.cluster --ranks 2,
wrong "takes integers of at least 1" --cluster near.cluster --ranks 2x
wrong "a table has no plan file" --cluster near.cluster --ranks 2,4 -o x.plan
wrong "a table has no plan file" --cluster near.cluster --frontier -o x.plan
wrong "depends on the machines" --table
wrong "depends on the machines" --frontier
wrong "cannot open 'missing.cluster'" --cluster near.cluster --cluster missing.cluster
wrong "asks for 400 ranks" --cluster near.cluster --ranks 4,400
wrong "cannot write 'missing/page.html'" --cluster near.cluster --html missing/page.html
echo "plan table: $n meshes, $points points of a frontier, clusters and ranks; a page of $(cat numbers)"
