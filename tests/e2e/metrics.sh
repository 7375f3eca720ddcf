#!/bin/bash
# Metrics and the validation loss are those that PyTorch and scikit-learn
# compute (tests/reference/metrics.py), however the evaluation is divided into
# batches, over ranks and micro-batches.
. "$(dirname "$0")/lib.sh"
reference=$root/tests/reference
cp "$root/tests/e2e/metrics.dnn" .
tr -d '[]' <"$reference/metrics.txt" >wanted.txt
# The records stand there twice: the first half trains, the second is evaluated.
cat "$reference/metrics.csv" "$reference/metrics.csv" >metrics.csv

# One line `name value...` for each metric, as in metrics.txt.
lines() { # file of JSON lines
  grep '"final"' "$1" | sed 's/.*"validation_loss":/"loss":/; s/"metrics":{//
    s/},"accuracy".*//; s/,"/\n"/g' | tr -d '"[]' | sed 's/:/ /' | tr ',' ' '
}
# Relative to the greater of both and 1: the second is what was recorded.
same() { # tolerance
  awk -v tolerance="$1" 'NR == FNR { wanted[$1] = $0; n++; next }
    { seen++
      count = split(wanted[$1], w, " ")
      bad = count != NF
      for (i = 2; i <= NF && !bad; i++) {
        d = $i - w[i]; m = w[i] < 0 ? -w[i] : w[i]
        bad = ($i == "null") != (w[i] == "null") || \
              (d < 0 ? -d : d) > tolerance * (m > 1 ? m : 1)
      }
      if (bad) { print $0 " is not " wanted[$1]; status = 1 } }
    END { if (seen != n) { print seen " metrics of " n; status = 1 }
          exit status }' wanted.txt -
}
check() { # tolerance, arguments
  local tolerance=$1
  shift
  "$dnnc" run metrics.dnn --json --no-save "$@" >out.json 2>out.err ||
    { cat out.err; fail "metrics.dnn $*"; }
  lines out.json | same "$tolerance" || fail "$*"
}
for batch in 1 2 3 4 23; do check 2e-6 train.batch=$batch; done
check 2e-2 precision.compute=bf16
quick_kernels
# Micro-batches, and a remainder of 3, 5 and 1 samples.
check 2e-6 train.batch=4 --microbatches 2
check 2e-6 train.batch=6 --microbatches 3
check 2e-6 train.batch=22 --microbatches 22
check 2e-2 train.batch=22 --microbatches 11 precision.compute=bf16

if has_mpi; then
  check 2e-6 train.batch=12 --microbatches 3 --ranks 2
  for batch in 2 4 6 22; do check 2e-6 train.batch=$batch --ranks 2; done
  check 2e-6 train.batch=3 --ranks 3
fi

# Two labels of four count: the figure does not depend on the batch.  Then none
# counts: no value, a warning that says why, null in JSON.
cat >few.dnn <<'END'
dim B = 4, K = 4
net logits(x: [B, K]) -> [B, K] {
  param w: [K] = ones
  return x * w
}
data d {
  x: [B, K] = csv("few.csv", 0..3)
  y: i32[B] = csv("few.csv", 4)
  eval = 4
}
train {
  loss      = cross_entropy(logits(d.x), d.y, K, ignore = -1)
  metrics   = [perplexity(logits(d.x), d.y, K, ignore = -1), f1_score(logits(d.x), d.y, K, ignore = -1),
               accuracy(logits(d.x), d.y, K, ignore = -1), confusion(logits(d.x), d.y, K, ignore = -1)]
  optimizer = sgd(lr = 0)
  steps     = 1
}
END
few() { # labels..., arguments
  local row=0 x=(3,1,0,0 0,2,1,0 1,0,2,0 0,0,1,1)
  for label in "$1" "$2" "$3" "$4" "$1" "$2" "$3" "$4"; do
    echo "${x[row++ % 4]},$label"
  done >few.csv
  shift 4
  "$dnnc" run few.dnn --no-save "$@" >out.txt 2>out.err ||
    { cat out.err; fail "few.dnn $*"; }
}
for batch in 1 2 4; do
  few 0 1 -1 -1 train.batch=$batch --json
  figure=$(field perplexity out.txt)
  close "$figure" "${first:=$figure}" 1e-6 || fail "batch $batch: $figure, $first"
done
few 0 1 -1 -1 --microbatches 2 loss='mse(logits(d.x), d.x)' --json
close "$(field perplexity out.txt)" "$first" 1e-6 || fail "micro-batches"
few -1 -1 -1 -1 train.batch=2 --json
[ "$(field validation_loss out.txt) $(field f1_score out.txt)" = "null null" ] ||
  fail "a value of nothing: $(cat out.txt)"
few -1 -1 -1 -1 train.batch=2
cat >wanted.txt <<'END'
warning: 'loss' has no value: nothing that it counts is in the evaluation data, such as a label other than 'ignore'
warning: 'perplexity' has no value: nothing that it counts is in the evaluation data, such as a label other than 'ignore'
warning: 'f1_score' has no value: nothing that it counts is in the evaluation data, such as a label other than 'ignore'
warning: 'accuracy' has no value: nothing that it counts is in the evaluation data, such as a label other than 'ignore'
END
grep '^warning' out.err | diff wanted.txt - || fail "warnings"
few 0 1 -1 2 train.batch=2
cat >wanted.txt <<'END'
step 1/1 | validation loss 0.5704 | perplexity 1.7690 | f1_score 1.0000 | accuracy 1.0000 | 4 samples
confusion: a row for each label, a column for each prediction
     0  1  2  3
  0  1  0  0  0
  1  0  1  0  0
  2  0  0  1  0
  3  0  0  0  0
END
grep -v '^step 1/1 | loss' out.txt | diff wanted.txt - || fail "the table"

# For more classes a table has the most frequent mistakes, at most 20 lines.
cat >many.dnn <<'END'
dim B = 10, K = 25
net logits(x: i32[B]) -> [B, K] {
  param w: [K, V:25] = eye
  return gather(9 * w, x, K)[V -> K]
}
data d {
  x: i32[B] = csv("many.csv", 0)
  y: i32[B] = csv("many.csv", 1)
  eval = 100
}
train {
  loss      = cross_entropy(logits(d.x), d.y, K)
  metrics   = confusion(logits(d.x), d.y, K)
  optimizer = sgd(lr = 0)
  steps     = 1
}
END
for half in 1 2; do # prediction i, label i + 0, 1, 2 or 3
  for i in $(seq 0 99); do echo "$((i % 25)),$(((i % 25 + i / 25) % 25))"; done
done | sed '101,$s/^24,[0-9]*/24,3/' >many.csv
"$dnnc" run many.dnn --no-save >out.txt 2>out.err || { cat out.err; fail many; }
tail -n 100 many.csv | awk -F, '$1 != $2 { n[$2 " " $1]++ }
  END { for (pair in n) print n[pair], pair }' | sort -k1,1nr -k2,2n -k3,3n \
  >pairs.txt
{ echo "confusion: predictions that differ from the label, by count"
  head -n 20 pairs.txt | awk '{ print "  label " $2 " predicted as " $3 ": " $1 }'
  echo "  and $(($(wc -l <pairs.txt) - 20)) more pairs"; } >wanted.txt
sed -n '/^confusion/,$p' out.txt | diff wanted.txt - || fail "many classes"

# Losses train alike on one rank and on two.
has_mpi || exit 0
all='loss=cross_entropy(logits(d.x), d.y, K, ignore = -1, weight = [1, 0.2, 3, 1]) +
  bce(logits(d.x), sigmoid(d.x), pos_weight = 2) + huber(logits(d.x), d.x + 1) +
  kl(log_softmax(logits(d.x), K), softmax(d.x, K), K) + cosine(logits(d.x), 1 - d.x, K)'
few 0 1 -1 2 "$all" optimizer='sgd(lr = 0.1)' steps=5 --json
one=$(field loss out.txt) validation=$(field validation_loss out.txt)
few 0 1 -1 2 "$all" optimizer='sgd(lr = 0.1)' steps=5 --json --ranks 2
close "$(field loss out.txt)" "$one" 1e-5 || fail "losses on two ranks"
close "$(field validation_loss out.txt)" "$validation" 1e-5 || fail "its evaluation"
