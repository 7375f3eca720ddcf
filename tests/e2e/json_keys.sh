#!/bin/bash
# The JSON of every command is read by a strict reader: no object has a key twice.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"

cat >model.dnn <<'END'
dim B = 8, C = 4, K = 3
net line(x: [B, C]) -> [B, K] {
  param w: [C, K] = normal(1)
  return dot(x, w, C)
}
data d {
  x: [B, C] = synthetic()
  y: i32[B] = synthetic(K)
  eval = 11
}
train {
  loss      = cross_entropy(line(d.x), d.y, K)
  metrics   = [f1_score(line(d.x), d.y, K, average = "none"), confusion(line(d.x), d.y, K), accuracy(line(d.x), d.y, K)]
  optimizer = adam(lr = 0.01)
  steps     = 3
  save      = "model.ckpt"
}
END
printf 'mesh { data = 2 }\nplan { shard B over data; zero = 1; }\n' | tr ';' '\n' >model.plan
printf 'mesh { data = 2 }\nplan { shard B over data }\n' >other.plan
printf 'mesh { pipe = 2 }\nplan { microbatches = 2\n cut after h }\n' >stages.plan
sed 's/  return dot(x, w, C)/  param v: [C, F] = normal(1)\n  h = dot(x, v, C)\n  return dot(h, w, F)/
  s/param w: \[C, K\]/param w: [F, K]/; s/K = 3/K = 3, F = 5/; s/  eval = 11//; s/  metrics .*//' model.dnn >deep.dnn
printf 'device core { base = cpu; memory = 1GiB }\ncluster two {\n device = core\n level node { count = 2; link = 1GB/s }\n}\n' >two.cluster
printf '0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n' >list.csv

# check FILE: every line that begins an object or the whole file is JSON.
cat >check.py <<'END'
import json, sys
def once(pairs):
    keys = [key for key, value in pairs]
    twice = {key for key in keys if keys.count(key) > 1}
    if twice:
        sys.exit(f"a key stands twice in an object: {twice}")
    return dict(pairs)
text = open(sys.argv[1]).read()
reader = json.JSONDecoder(object_pairs_hook=once)
at = n = 0
while text[at:].strip():
    at += len(text[at:]) - len(text[at:].lstrip())
    value, at = reader.raw_decode(text, at)
    n += 1
assert n > 0, "nothing was printed"
END
check=$PWD/check.py
declare -A seen
strict() { # COMMAND ARGUMENT...
  seen[$1]=1
  "$dnnc" "$@" --json >out.json 2>out.err || { cat out.err; fail "$*"; }
  python3 "$check" out.json || { cut -c1-1000 out.json; fail "$*"; }
}
cluster=(--cluster two.cluster)
strict check model.dnn
strict plan model.dnn "${cluster[@]}" --effort 20
strict plan model.dnn "${cluster[@]}" --effort 20 --table
strict plan model.dnn "${cluster[@]}" --effort 20 --frontier
strict plan model.dnn "${cluster[@]}" --effort 20 --html page.html
strict plan model.dnn "${cluster[@]}" --ranks 1,2 --effort 20
strict explain model.dnn zero "${cluster[@]}" --plan model.plan --effort 20
strict build model.dnn -o model.bundle
strict run model.dnn
strict eval model.dnn --load model.ckpt
strict predict model.dnn --load model.ckpt -o out.csv
strict verify model.dnn --plan model.plan
strict show model.plan
strict show model.plan --model model.dnn
strict show model.plan --model model.dnn --collectives
strict show model.plan --model model.dnn "${cluster[@]}"
strict show model.plan --model model.dnn "${cluster[@]}" --collectives
strict show stages.plan --model deep.dnn --collectives
strict show stages.plan --model deep.dnn "${cluster[@]}"
strict show two.cluster
strict simulate list.csv
strict schedule 1f1b --ranks 2 --microbatches 2
strict schedule --check list.csv
strict simulate model.dnn --plan model.plan "${cluster[@]}"
strict diff model.plan other.plan --model model.dnn "${cluster[@]}"
# The keys of a plan with stages that docs/inspect.md lists, from plan and simulate alike.
printf 'mesh { pipe = 2 }\n' >pipe.plan
strict plan deep.dnn "${cluster[@]}" --plan pipe.plan -o found.plan
cp out.json plan.json
strict simulate deep.dnn --plan found.plan "${cluster[@]}"
python3 - "$root/docs/inspect.md" <<'END' || { cat plan.json out.json; fail "the keys of a plan with stages"; }
import json, re, sys
page = open(sys.argv[1]).read()
plan, step = json.load(open("plan.json")), json.load(open("out.json"))
table = re.search(r"^\| key \| meaning \|\n(.*?)\n\n", page, re.M | re.S)[1]
listed = set(re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.split("\n")))) - {
    "tokens_per_s", "servers", "steps_of_period"}  # of some plans alone
for shown in plan, step:
    assert listed <= set(shown), listed - set(shown)
    assert 0 < shown["floor_s"] < shown["step_s"] and 0 < shown["bubble"] < 1
    assert [c["stages"] for c in shown["ranks"]] == [[0], [1]] and len(shown["edges"]) >= 2
    assert {e["class"] for e in shown["entry_points"]} == {0, 1}
    for c in shown["ranks"]:
        assert sum(c["arena"].values()) <= c["peak_bytes"] <= c["memory_bytes"], c
        assert set(c) <= set(re.findall(r"`(\w+)`", table)), c
assert plan["floor_s"] == step["floor_s"] and plan["ranks"] == step["ranks"]
assert max(c["peak_bytes"] for c in plan["ranks"]) == plan["peak_bytes"]
END
# No command that takes --json is left out, but those that need more to run.
for name in $("$dnnc" list commands | sed -n 's/^  *\([a-z]*\)  *[A-Z][A-Za-z.]* .*/\1/p'); do
  [ -n "${seen[$name]:-}" ] && continue
  "$dnnc" help "$name" | grep -q -- '--json' || continue
  case $name in
  convert | tune | sample | cluster | ir | list) ;;
  *) fail "no JSON of '$name' was read" ;;
  esac
done

# The arena that decides is one number: of show, simulate, run and the limit of a plan.
# On eight ranks the remainder of 63 samples has the micro-batches of 8 that one rank
# has, so a metric that needs them at once decides.
arena() { grep -o "\"name\":\"$1\",\"arena_bytes\":[0-9]*" out.json | cut -d: -f3; }
sed 's/B = 8,/B = 64,/; s/eval = 11/eval = 127/; s/accuracy(.*)\]/mean(std(tanh(line(d.x)), B))]/' model.dnn >large.dnn
printf 'mesh { data = 8 }\nplan { microbatches = 4 }\n' >eight.plan
printf 'device core { base = cpu; memory = 1GiB }\ncluster eight {\n device = core\n level node { count = 8; link = 1GB/s }\n}\n' >eight.cluster
strict show eight.plan --model large.dnn
largest=$(arena eval_remainder)
[ "$largest" -gt "$(arena train)" ] || { cat out.json; fail "the remainder is not the largest"; }
[ "$(field arena out.json)" = "$largest" ] || { cat out.json; fail "the arena of show"; }
grep -q "\"whole_batch_for\":\"'mean'\"" out.json || { cat out.json; fail "which metric"; }
"$dnnc" show eight.plan --model large.dnn >words || fail "show"
grep -q "^  eval_remainder  *$largest  1 micro-batch: 'mean' needs the batch at once$" words ||
  { cat words; fail "the table of entry points"; }
"$dnnc" show eight.plan --model large.dnn --cluster eight.cluster >words || fail "show"
grep -q "^  other entry points .* of 'eval_remainder', more than a training step$" words ||
  { cat words; fail "what holes are"; }
for limit in $((largest - 1)) "$largest"; do
  printf 'mesh { data = 8 }\nplan { microbatches = 4; memory = %dB }\n' "$limit" | tr ';' '\n' >limit.plan
  fits=$([ "$limit" = "$largest" ] && echo true || echo false)
  strict simulate large.dnn --plan limit.plan --cluster eight.cluster
  [ "$(field fits out.json)" = "$fits" ] || { cat out.json; fail "simulate, $limit bytes"; }
  "$dnnc" build large.dnn --plan limit.plan -o large.bundle 2>out.err
  [ $? = "$([ "$fits" = true ] && echo 0 || echo 2)" ] || { cat out.err; fail "build, $limit bytes"; }
done
"$dnnc" simulate large.dnn --plan limit.plan --cluster eight.cluster >words || fail "simulate"
grep -q "^the entry point 'eval_remainder' needs it, a training step " words || { cat words; fail "what needs it"; }

# So it is where the files that say how large the remainder is are found by an option.
mkdir -p far/files near
for i in $(seq 191); do echo "1,2,3,4,$((i % 3))"; done >far/files/rows.csv
ln -s ../far/files/rows.csv near/rows.csv
sed 's/x: .*= s.*/x: [B, C] = csv("rows.csv", 0..3)/; s/y: .*= s.*/y: i32[B] = csv("rows.csv", 4)/' large.dnn >near/m.dnn
sed 's/memory = .*B/memory = 1GiB/' limit.plan >near/m.plan
sed "s/memory = .*B/memory = $((largest - 1))B/" limit.plan >near/less.plan
cd near || exit 1
priced=(--cluster ../eight.cluster)
for found in "--data ../far/files" --follow-links; do
  strict build m.dnn --plan m.plan -o m.bundle $found
  built=$(field arena_bytes out.json)
  [ "$built" = "$largest" ] || fail "build $found: $built, not $largest"
  strict show m.plan --model m.dnn $found
  [ "$(field arena out.json)" = "$built" ] || { cat out.json; fail "the arena of show $found"; }
  strict show m.plan --model m.dnn "${priced[@]}" $found
  grep -q "\"peak_bytes\":$built," out.json || { cat out.json; fail "the memory of show $found"; }
  strict diff m.plan m.plan --model m.dnn "${priced[@]}" $found
  [ "$(grep -o "\"peak_bytes\":$built," out.json | wc -l)" = 2 ] || { cat out.json; fail "diff $found"; }
  strict simulate m.dnn --plan less.plan "${priced[@]}" $found
  [ "$(field fits out.json)" = false ] || { cat out.json; fail "simulate $found"; }
  if has_mpi; then
    "$dnnc" run m.dnn --plan less.plan $found 2>out.err
    [ $? = 2 ] || { cat out.err; fail "run $found"; }
  fi
done
# A remainder is left out where the files are not found.
for without in "--data ." "--data nowhere" ""; do
  rm -f rows.csv
  strict simulate m.dnn --plan less.plan "${priced[@]}" $without
  [ "$(field fits out.json)" = true ] && [ ! -s out.err ] ||
    { cat out.json out.err; fail "simulate $without without files"; }
  "$dnnc" build m.dnn --plan less.plan -o less.bundle $without 2>out.err ||
    { cat out.err; fail "build $without without files"; }
done
for option in "--data ../far/files" --follow-links; do
  "$dnnc" show m.plan $option 2>out.err && fail "show $option without a model"
  grep -q "^help: name it with --model MODEL$" out.err || { cat out.err; fail "show $option without a model"; }
done
cd ..

# Memory that this machine does not have is missed before anything is compiled.
sed 's/C = 4,/C = 2000000,/; s/K = 3/K = 2000000/; s/, confusion([^)]*), d.y, K)//; s/f1_score(line(d.x), d.y, K, average = "none"), *//' model.dnn >huge.dnn
"$dnnc" run huge.dnn 2>out.err
code=$?
[ $code = 3 ] && grep -q "^dnnc: error: '[a-z]*' needs [0-9.]* TB of memory on a rank, and this machine has " out.err &&
  ! grep -q kernels out.err || { cat out.err; fail "a huge model: exit $code"; }
exit 0
