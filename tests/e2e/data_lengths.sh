#!/bin/bash
# Data blocks that a step reads together have one length, or the shorter one says
# `cycle = true` and repeats until the longest ends: in training, when it resumes,
# on ranks, in an evaluation and a prediction.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
seq 0 11 >long.csv
seq 0 4 >short.csv
cat >m.dnn <<'END'
dim B = 2
net f(x: [B], y: [B]) -> [B] {
  param w: [] = ones
  return w * (100 * x + y)
}
data long {
  x: [B] = csv("long.csv", 0)
  order = sequential
  eval = 5
}
data short {
  x: [B] = csv("short.csv", 0)
  order = sequential
  eval = 2
}
train {
  loss = sum(f(long.x, short.x))
  optimizer = sgd(lr = 0)
  epochs = 2
  save = "m.ckpt"
  save_every = 2
  keep = 9
}
END
losses() { sed -n 's/.*"step":\([0-9]*\),"loss":\([0-9.]*\),.*/\1 \2/p' "$1" | tr '\n' ','; }
# refused TEXT COMMAND...: exit 1, with this text.
refused() {
  "${@:2}" >said 2>&1
  [ $? = 1 ] && grep -qF -- "$1" said || { cat said; fail "not refused with '$1': ${*:2}"; }
}

# ---- unequal lengths ----
message="error: 'short' has 3 samples to train on, but 'long' has 7: a step reads both"
refused "m.dnn:11:6: $message" "$dnnc" run m.dnn --quick
grep -qF "m.dnn:6:6: note: 'long' is here" said || fail "no note"
grep -qF "help: 'cycle = true' in 'short' repeats it until 'long' ends" said || fail "no help"
refused "m.dnn:11:6: $message" "$dnnc" build m.dnn --quick
[ -e m.ckpt ] && fail "a refused run left a checkpoint"
seq 0 8 >nine.csv # 7 to train on, as in `long`
refused "error: 'short' has 2 samples to evaluate, but 'long' has 5: a step reads both" \
  "$dnnc" run m.dnn --quick 'short.x=csv("nine.csv", 0)'
"$dnnc" ir m.dnn --entry eval >/dev/null 2>said || { cat said; fail "a graph needs data of one length"; }
mv short.csv away # the bundle says so where the compiler has not seen the file
"$dnnc" build m.dnn --quick --quiet -o m.bundle >/dev/null 2>&1 || fail "build without a file"
mv away short.csv
refused "error: 'short' has 3 samples to train on, but 'long' has 7; 'cycle = true' in 'short' repeats it until 'long' ends" \
  m.bundle/run --quiet
refused "'cycle' must be true or false, not 2" "$dnnc" run m.dnn short.cycle=2

# ---- cycle ----
sed -i 's/  eval = 2/&\n  cycle = true/' m.dnn
"$dnnc" run m.dnn --quick --json >run.json 2>err || { cat err; fail "a block that cycles"; }
# Training: 0 to 6 beside 0 1 2 0 1 2; a sum of two.  Each epoch begins anew.
got=$(losses run.json)
[ "$got" = "1 101,2 502,3 903,4 101,5 502,6 903," ] || fail "samples of two epochs: $got"
# Evaluation: 7 to 11 beside 3 4 3 4 3.
[ "$(field validation_loss run.json)" = 1586.2 ] || { cat run.json; fail "samples of the evaluation"; }
"$dnnc" predict m.dnn --load m.ckpt -o rows.csv --quick --quiet || fail "predict"
[ "$(tr '\n' ' ' <rows.csv)" = "703 804 903 1004 1103 " ] || { cat rows.csv; fail "rows of a prediction"; }
"$dnnc" eval m.dnn --load m.ckpt --quick --json >eval.json || fail "eval"
[ "$(field validation_loss eval.json)" = "$(field validation_loss run.json)" ] || fail "eval differs"
sed 's/cycle = true/cycle = false/' m.dnn >no.dnn
refused "'short' has 2 samples to evaluate, but 'long' has 5" "$dnnc" predict no.dnn --load m.ckpt -o no.csv --quick
refused "'short' has 2 samples to evaluate, but 'long' has 5" "$dnnc" eval no.dnn --load m.ckpt --quick \
  'short.x=csv("nine.csv", 0)'
echo $(ls m.ckpt) | grep -q "step-00000002.*step-00000004" || fail "checkpoints: $(ls m.ckpt)"

# ---- resumed inside of a repetition; on two ranks ----
rm -rf m.ckpt
"$dnnc" run m.dnn --quick --json --steps 2 >first.json 2>err || { cat err; fail "two steps"; }
"$dnnc" run m.dnn --quick --json --resume >second.json 2>err || { cat err; fail "--resume"; }
[ "$(losses first.json)$(losses second.json)" = "$got" ] || fail "resumed: $(losses second.json)"
if has_mpi; then
  "$dnnc" run m.dnn --quick --json --no-save --ranks 2 >two.json 2>err || { cat err; fail "two ranks"; }
  [ "$(losses two.json)" = "$got" ] || fail "two ranks: $(losses two.json)"
fi

# ---- each repetition is a permutation of its own ----
sed 's/sequential/shuffle/; s/eval = .*/eval = 0/; s/B = 2/B = 4/; s/epochs = 2/epochs = 1/
  s/100 \* x + y/0 * x + y * cast(iota(y, B), f32)/' m.dnn >shuffled.dnn
seq 0 399 >long.csv
seq 0 3 >short.csv
"$dnnc" run shuffled.dnn --quick --json --no-save >out.json 2>err || { cat err; fail "shuffled"; }
losses out.json | tr , '\n' | cut -d' ' -f2 | awk 'NF' | sort -n | uniq -c >sums
# 0 to 3 times its place: the sum is 4 to 14, by the order.
awk '$2 < 4 || $2 > 14 { exit 1 } END { exit NR < 6 }' sums || { cat sums; fail "repetitions are not permuted anew"; }
[ "$(losses out.json | tr , '\n' | grep -c .)" = 100 ] || fail "steps of an epoch"

# ---- streams ----
cat >stream.dnn <<'END'
dim B = 2, T = 2
net f(x: i32[B, T], y: i32[B, T]) -> [] {
  param w: [] = ones
  return w * sum(100 * x + y)
}
data long {
  x: i32[B, T] = bytes("long")
  order = sequential
}
data short {
  x: i32[B, T] = bytes("short")
  order = sequential
  cycle = true
}
train {
  loss = f(long.x, short.x)
  optimizer = sgd(lr = 0)
  epochs = 2
}
END
printf '\1\1\2\2\3\3\4\4\5\5\6\6' >long   # two rows of 3 windows
printf '\1\1\2\2\3\3\4\4' >short          # two rows of 2
"$dnnc" run stream.dnn --quick --json --no-save >out.json 2>err || { cat err; fail "a stream that cycles"; }
# 1 + 4, 2 + 5, 3 + 6 beside 1 + 3, 2 + 4, 1 + 3, each twice
[ "$(losses out.json)" = "1 1008,2 1412,3 1808,4 1008,5 1412,6 1808," ] || fail "streams: $(losses out.json)"
refused "'short' has 4 samples to train on, but 'long' has 6" "$dnnc" run stream.dnn --quick --no-save short.cycle=0
