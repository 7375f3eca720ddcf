#!/bin/bash
# `dnnc plan --search stages` cuts a net with loops, which no elimination takes, by the simulated times of its nodes.
. "$(dirname "$0")/lib.sh"
cat >slow.cluster <<'EOF'
device core { base = cpu; memory = 1GiB }
cluster made {
  device = core
  level machine { count = 1; link = 10GB/s }
  level network { count = 4; link = 100MB/s }
}
EOF
model="$root/models/gnmt8.dnn B=32 S=8 T=8 V=128 C=128 L=2"
plan() { "$dnnc" plan $model --cluster slow.cluster --effort 60 --quiet "$@"; }
verify() { "$dnnc" verify $model --plan "$1" --cluster slow.cluster "${@:2}" >out 2>&1; }
step_of() { "$dnnc" simulate $model --plan "$1" --cluster slow.cluster --json >out.json 2>message && field step_s out.json; }

# ---- faster than without stages, by the simulator ----
plan --search stages -o staged.plan || fail "plan"
plan --search elimination -o one.plan || fail "plan of one program"
[ "$(grep -cE '^  (stage|cut after) ' staged.plan)" -ge 2 ] || { cat staged.plan; fail "no stages"; }
awk -v a="$(step_of staged.plan)" -v b="$(step_of one.plan)" 'BEGIN { print a " s in stages, " b " s without"; exit !(a > 0 && a < 0.6 * b) }' ||
  fail "stages are not faster"
grep -q 'space .*cut where up to four values go on by the simulated times of nodes' staged.plan || { cat staged.plan; fail "space"; }

# ---- no slower than stages that a person wrote ----
cat >hand.plan <<'EOF'
plan {
  schedule = 1f1b
  microbatches = 4
  stage 0: lstm[0..2] on 0..1 as (data = 2)
  stage 1: lstm[3..4], look, linear on 2..3 as (data = 2)
}
EOF
awk -v a="$(step_of staged.plan)" -v b="$(step_of hand.plan)" 'BEGIN { exit !(a > 0 && a <= b) }' || fail "a written plan is faster"

awk -v a="$(step_of staged.plan)" -v b="$("$dnnc" simulate $model --ranks 1 --cluster slow.cluster --json >out.json && field step_s out.json)" \
  'BEGIN { exit !(a > 0 && a < 0.7 * b) }' || fail "one rank is as fast"

# ---- lines about stages are kept ----
pinned() { # lines, what the plan has to have
  printf '%s\n' "$1" >pins.plan
  plan --search stages --plan pins.plan -o kept.plan 2>message || { cat message; fail "pins: $1"; }
  grep -qF "$2" kept.plan || { cat kept.plan; fail "lost: $2"; }
}
pinned 'mesh { pipe = 2; data = auto } plan { schedule = 1f1b; cut after lstm[2] }' '  cut after lstm[2]'
pinned 'plan { microbatches = 8
  stage 0: lstm[0..2], gather[0] on 0..1
  stage 1: linear on 2..3 }' '  stage 1: linear on 2..3'
printf 'mesh { pipe = 2; data = 1; tensor = 2 } plan { }\n' >pins.plan
! plan --search stages --plan pins.plan 2>message >none && grep -q '^pins.plan:1:1: error: not supported yet: .* of several axes' message ||
  { cat message; fail "several axes"; }

# ---- a stage on ranks of its own names each loop once ----
cat >unlike.cluster <<'EOF'
device core { base = cpu; memory = 1GiB }
device late { base = core; flops_f32 = 2G }
cluster unlike {
  group first { device = core
    level machine { count = 2; link = 10GB/s } }
  group last { device = late
    level machine { count = 1; link = 10GB/s } }
  level network { link = 100MB/s }
}
EOF
"$dnnc" plan $model --cluster unlike.cluster --effort 60 --quiet --search stages -o own.plan || fail "plan on unlike ranks"
awk '/^  stage / { sub(/ on [0-9.]+.*/, ""); sub(/^  stage [0-9]+: /, ""); n = split($0, names, ", "); lines++
    for (i = 1; i <= n; i++) if (seen[names[i]]++) bad = 1 } END { exit bad || !lines }' own.plan || { cat own.plan; fail "a name twice"; }

# ---- the floor is the bound ----
grep -q '^  restrictions = "floor_alone"' staged.plan && [ "$(awk '/^  (bound|floor) /{ print $3 }' staged.plan | uniq | wc -l)" = 1 ] ||
  { cat staged.plan; fail "the bound is not the floor"; }
plan --search stages --json >plan.json && [ "$(field bound_s plan.json)" = "$(field floor_s plan.json)" ] || fail "the bound of --json"
verify staged.plan || { cat out; fail "verify"; }
grep -q 'equal to one rank' out && grep -q '^bound: computed again' out || { cat out; fail "verify says"; }
awk '/^  step /{ s = $3 } /^  floor /{ f = $3; if (f ~ /us/) { f = f / 1000 } } { line[NR] = $0 }
  END { for (i = 1; i <= NR; i++) { if (line[i] ~ /^  bound /) line[i] = sprintf("  bound = %.9fms", f * 1.001);
    if (line[i] ~ /^  gap /) line[i] = sprintf("  gap = %.17g", 1 - f * 1.001 / (s + 0)); print line[i] } }' staged.plan >raised.plan
! verify raised.plan --certificate && grep -q 'the bound is above the floor' out || { cat out; fail "a raised bound"; }

# ---- the same bytes again, on one core, and the plan as pins ----
plan --search stages -o again.plan && cmp staged.plan again.plan || fail "another plan the second time"
taskset -c 0 "$dnnc" plan $model --cluster slow.cluster --effort 60 --quiet --search stages -o core.plan && cmp staged.plan core.plan ||
  fail "another plan on one core"
plan --search stages --plan staged.plan -o pinned.plan || fail "the plan as pins"
lines() { sed '/^certificate/,$d' "$1"; }
[ "$(lines staged.plan)" = "$(lines pinned.plan)" ] && [ "$(step_of staged.plan)" = "$(step_of pinned.plan)" ] ||
  { diff staged.plan pinned.plan; fail "another plan as pins"; }
