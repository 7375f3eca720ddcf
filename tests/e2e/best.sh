#!/bin/bash
# save_best and patience: the checkpoint of the lowest validation loss stays and
# is named, the run ends after evaluations without a lower one, and a run that
# was stopped or killed anywhere has the same best one and the same end, on one
# rank and two.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
# Labels without a rule: parameters that fit the first 40 rows are wrong for others.
awk 'BEGIN { srand(5); for (i = 0; i < 64; i++) {
  for (j = 0; j < 8; j++) printf "%.3f,", rand() - 0.5
  print int(rand() * 3) } }' >noise.csv
cat >noise.dnn <<'END'
dim B = 8, P = 8, H = 32, K = 3
net noise(x: [B, P]) -> [B, K] {
  param w1: [P, H] = normal(0.5)
  param w2: [H, K] = normal(0.3)
  return dot(tanh(dot(x, w1, P)), w2, H)
}
data set {
  x: [B, P] = csv("noise.csv", 0..7)
  y: i32[B] = csv("noise.csv", 8)
  eval = 24
}
train {
  loss       = cross_entropy(noise(set.x), set.y, K)
  optimizer  = adam(lr = 0.003)
  steps      = 400
  eval_every = 10
  save_every = 15
  keep       = 1
  save_best  = true
  patience   = 4
}
END
run() { # NAME ARGUMENTS...: trains in NAME.ckpt
  local name=$1
  shift
  "$dnnc" run noise.dnn save=$name.ckpt --json "$@" >$name.json 2>$name.err
}
lowest() { sed 1d "$1" | sort -t, -g -k 2 | head -n 1 | cut -d, -f1; }
hash_of() { grep -o '"parameters_sha256":\["[0-9a-f]*' "$1.json" | tail -n 1; }
same() { # NAME: as the run that was not interrupted
  cmp -s whole.ckpt/validation.csv $1.ckpt/validation.csv ||
    { diff whole.ckpt/validation.csv $1.ckpt/validation.csv; fail "$1: other losses"; }
  cmp -s whole.ckpt/best $1.ckpt/best || fail "$1: another best: $(cat $1.ckpt/best)"
  [ "$(field steps $1.json)" = "$end" ] || fail "$1 ends at $(field steps $1.json), not $end"
  [ "$(hash_of $1)" = "$(hash_of whole)" ] || fail "$1: other parameters"
  [ -d $1.ckpt/$(cat $1.ckpt/best) ] || fail "$1: the best checkpoint is not there"
  [ "$(ls -d $1.ckpt/step-* | wc -l)" = 2 ] || fail "$1 holds $(ls $1.ckpt)"
}

run whole || { cat whole.err; fail "training"; }
end=$(field steps whole.json)
best=$(lowest whole.ckpt/validation.csv)
[ "$end" -lt 400 ] && [ "$end" = $((best + 40)) ] || fail "ends at $end, the best is $best"
[ "$(cat whole.ckpt/best)" = "$(printf 'step-%08d' "$best")" ] || fail "best is $(cat whole.ckpt/best)"
grep -q "^ended at step $end: no lower validation loss in 4 evaluations; the lowest is .*, of step $best$" whole.err ||
  { cat whole.err; fail "the end is not said"; }
same whole
"$dnnc" eval noise.dnn --load whole.ckpt/best --json >eval.json || fail "eval of the best"
close "$(field validation_loss eval.json)" "$(sed -n "s/^$best,//p" whole.ckpt/validation.csv)" 1e-6 ||
  fail "the best has the loss $(field validation_loss eval.json)"

# Stopped by --steps, at an evaluation and between two, and killed at any moment.
for at in 5 $best $((best + 7)) $((end - 1)); do
  rm -rf parts.ckpt
  run parts --steps $at || { cat parts.err; fail "up to $at"; }
  run parts --resume || { cat parts.err; fail "from $at"; }
  same parts
done
# A signal at an evaluation saves and does not evaluate.
rm -rf parts.ckpt
run parts --steps $best || fail "up to an evaluation"
sed -i '$d' parts.ckpt/validation.csv
run parts --resume || { cat parts.err; fail "from an evaluation that is missing"; }
same parts
for try in 1 2 3; do
  rm -rf killed.ckpt
  run killed --steps $((end - try)) &
  for _ in $(seq 400); do
    [ -f killed.ckpt/validation.csv ] && [ "$(wc -l <killed.ckpt/validation.csv)" -gt $((try + 1)) ] && break
    sleep 0.05
  done
  pkill -KILL -P $!
  wait $! 2>/dev/null
  sleep 0.3 # the rank ends after its launcher
  run killed --resume || { cat killed.err; fail "after a kill"; }
  same killed
done
# A run that has ended stays so, and one that begins anew forgets.
run whole --resume || fail "resumed at the end"
[ "$(field steps whole.json)" = "$end" ] || fail "goes on after its end"
grep -q "nothing is left to train" whole.err || { cat whole.err; fail "the end is not said again"; }
run whole --steps 10 patience=0 || fail "anew"
[ "$(wc -l <whole.ckpt/validation.csv)" = 2 ] || { cat whole.ckpt/validation.csv; fail "losses of another run"; }
[ "$(cat whole.ckpt/best)" = step-00000010 ] || fail "best of another run"
# Without a place for checkpoints patience counts all the same.
run none --no-save || { cat none.err; fail "--no-save"; }
[ "$(field steps none.json)" = "$end" ] && [ ! -e none.ckpt ] || fail "--no-save ends at $(field steps none.json)"
echo "3,nonsense" >whole.ckpt/validation.csv
run whole --resume && fail "a damaged file of losses"
grep -q "validation.csv:1: expected STEP,LOSS" whole.err || { cat whole.err; fail "a damaged file of losses"; }
rm whole.ckpt/best
"$dnnc" eval noise.dnn --load whole.ckpt/best >out 2>&1 && fail "a best that is not there"

has_mpi || skip "two ranks: needs mpirun"
run two --ranks 2 || { cat two.err; fail "two ranks"; }
[ "$(field steps two.json)" = "$end" ] || fail "two ranks end at $(field steps two.json)"
[ "$(cat two.ckpt/best)" = "$(printf 'step-%08d' "$best")" ] || fail "two ranks: best is $(cat two.ckpt/best)"
