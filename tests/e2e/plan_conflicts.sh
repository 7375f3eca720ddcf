#!/bin/bash
# Where `dnnc plan` finds no plan, it names pins and limits in conflict: without any
# one of them there is a plan, and each change of its table leads to one.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"
cp "$root/models/chargpt.dnn" "$root/models/pipedream-a.cluster" .

# Plans without each member, and with each change.  A line that names an axis goes with
# the mesh.
cat >try.py <<'END'
import json, re, subprocess, sys
dnnc, model, options, lines = sys.argv[1], sys.argv[2].split(), sys.argv[3].split(), sys.argv[4].split("|")
mesh = [line for line in lines if line.startswith("mesh")]
axes = re.findall(r"(\w+) =", mesh[0]) if mesh else []

def plan(options, lines, *more):
    blocks = [line for line in lines if line.startswith("mesh")]
    blocks += ["plan {"] + [line for line in lines if line and not line.startswith("mesh")] + ["}"]
    open("case.plan", "w").write("\n".join(part.replace("; ", "\n") for part in blocks) + "\n")
    return subprocess.run([dnnc, "plan", *model, "--cluster", "pipedream-a.cluster", "--effort", "24",
                           "--plan", "case.plan", *options, *more], capture_output=True, text=True)

def without(options, lines, text):
    if text.startswith("--"):
        words = text.split()
        at = options.index(words[0])
        return options[:at] + options[at + len(words):], lines
    kept = [line for line in lines if line != text]
    assert len(kept) < len(lines), text
    if text.startswith("mesh"):
        kept = [line for line in kept if not any(re.search(rf"over.*\b{axis}\b", line) for axis in axes)]
    return options, kept

found = plan(options, lines, "--json")
expected = int(sys.argv[5])
written = open("case.plan").read().split("\n")
assert found.returncode == expected, (found.returncode, found.stderr)
report = json.loads(found.stdout)
assert report["plan"] is None
if expected == 2:
    assert report["missing_bytes"] == report["needed_bytes"] - report["memory_bytes"] > 0
members = [member["text"] for member in report["conflict"]]
assert set(sys.argv[6].split("|")) <= set(members), members
assert not set(sys.argv[7].split("|")) & set(members), members
is_each_enough = "without" in found.stderr.split("help: ")[-1].split("\n")[0]
for member in report["conflict"]:
    if "line" in member:
        line = written[member["line"] - 1]
        assert line[member["column"] - 1:].startswith(member["text"].split(" =")[0].split(" {")[0]), member
    if not is_each_enough or "of memory of a device" in member["text"]:
        continue
    if re.match("memory|--what-if memory|--ranks", member["text"]):
        continue  # the changes say how much more
    without_it = plan(*without(options, lines, member["text"]))
    assert without_it.returncode == 0, (member, without_it.stderr)
assert report["relaxations"], "nothing helps"
for change in report["relaxations"]:
    now_options, now = options, lines
    for text in change["drop"]:
        now_options, now = without(now_options, now, text)
    for text in change["add"]:
        if text.startswith("--"):
            now_options = now_options + text.split()
        else:
            now = now + [text]
    result = plan(now_options, now, "--json")
    assert result.returncode == 0, (change["change"], result.stderr)
    step = json.loads(result.stdout)["step_s"]
    assert step == change["step_s"], (change["change"], step, change["step_s"])
steps = [change["step_s"] for change in report["relaxations"]]
assert steps == sorted(steps), steps
print(f"{len(members)} in conflict, {len(steps)} changes: {sys.argv[3]} {sys.argv[4]}")
END
small="chargpt.dnn L=2 B=16 T=8 C=256"
try() { # OPTIONS LINES CODE MEMBERS OTHERS
  python3 try.py "$dnnc" "$small" "$@" || fail "$*"
}
try "--ranks 2" "bucket = 25MB|zero = 0|microbatches = 4|memory = 6MB" 2 "memory = 6MB|--ranks 2" "bucket = 25MB"
try "" "mesh { data = 4 }|bucket = 25MB|zero = 0|shard B over data|microbatches = 4|memory = 6MB" 2 \
  "memory = 6MB|mesh { data = 4 }" "bucket = 25MB"
try "--ranks 4 --what-if memory=401MB" "prefetch = 5MB" 2 "--what-if memory=401MB" "prefetch = 5MB"
try "--microbatches 3 --ranks 4" "zero = 1" 1 "--microbatches 3" "zero = 1|--ranks 4"
try "" "mesh { a = 2; b = 2 }|shard B over a|shard F over b|shard block[0].mlp.gelu: F over (b, a), B over a" 1 \
  "mesh { a = 2; b = 2 }|shard block[0].mlp.gelu: F over (b, a), B over a" "shard B over a"
small="chargpt.dnn L=8 B=16 T=128"
# Two conflicts: each of the lines is too much.
try "" "mesh { data = 4 }|shard B over data|zero = 1|keep block[0..3]|keep block[4..7]|memory = 54MB" 2 \
  "memory = 54MB" "zero = 1"

# An annotation of the model is a pin as well.
sed 's/^  x = x + attn(norm(x))/  @shard(B = data, C = data)\n&/' chargpt.dnn >annotated.dnn
printf 'mesh { data = 4 }\nplan {\n  zero = 1\n}\n' >data.plan
"$dnnc" plan annotated.dnn L=2 B=16 T=8 --cluster pipedream-a.cluster --effort 40 --plan data.plan >none 2>message
[ $? = 1 ] && [ ! -s none ] || { cat none message; fail "an annotation"; }
grep -q "^annotated.dnn:[0-9]*:3: note: '@shard(B = data, C = data)' is here$" message &&
  grep -q "^  without '@shard(B = data, C = data)' .* data 4" message || { cat message; fail "an annotation"; }

# Eight layers of LLaMA 70B on 8 devices of 12 GiB: the bytes, and how many ranks.
"$dnnc" plan "$root/models/llama.dnn" C=8192 F=28672 L=8 H=8 B=16 T=512 --cluster "$root/models/h100x256.cluster" \
  --ranks 8 --effort 12 --what-if memory=12GiB >none 2>message
[ $? = 2 ] && [ ! -s none ] && grep -q "GB are missing" message || { cat none message; fail "LLaMA 70B"; }
grep -q "keeps '--what-if memory=12GiB' and '--ranks 8'$" message && grep -q '^  --ranks [0-9]* .* ms .* GB' message ||
  { cat message; fail "LLaMA 70B: conflict"; }
