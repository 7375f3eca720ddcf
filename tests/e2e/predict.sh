#!/bin/bash
# Predictions: the same rows on one rank and two, from a bundle, at -O0 and -O2
# and in any batch; any value by its path; files that are not read may be
# missing; memory does not grow with the records; a signal and a full disk leave
# nothing.
. "$(dirname "$0")/lib.sh"
quick_kernels
export OMP_NUM_THREADS=1
gzip -dc "$root/data/inputs/uci-digits.csv.gz" >all.csv
cut -d, -f1-64 all.csv >x.csv
cut -d, -f65 all.csv >y.csv
cat >digits.dnn <<'END'
dim B = 32, P = 64, H = 48, K = 10

layer linear[I -> O](x: [..., I]) -> [..., O] {
  param w: [I, O] = he_uniform(I)
  param b: [O]    = zeros
  return dot(x, w, I) + b
}

net digits(x: [B, P]) -> [B, K] {
  h = relu(linear[P -> H](x))
  return linear[H -> K](dropout(h, 0.5))
}

data set {
  x: [B, P] = csv("x.csv", 0..63) / 16
  y: i32[B] = csv("y.csv", 0)
  eval = 297
}

train {
  loss      = cross_entropy(digits(set.x), set.y, K)
  optimizer = sgd(lr = 0.1, momentum = 0.9)
  steps     = 100
  metrics   = accuracy(digits(set.x), set.y, K)
  save      = "d.ckpt"
  ema       = 0.9
}
END
"$dnnc" run digits.dnn --quiet --json >run.json || fail "training"
predict() { "$dnnc" predict digits.dnn --load d.ckpt --quiet "$@" || fail "predict $*"; }
# near A B RELATIVE: two tables.
near() {
  paste -d, "$1" "$2" | awk -F, -v r="$3" '{ n = NF / 2
      for (i = 1; i <= n; i++) { d = $i - $(i + n); if (d < 0) d = -d
        m = $i < 0 ? -$i : $i; if (d > r * (m + 0.1)) bad = 1 } }
    END { exit bad || NR == 0 }'
}

# ---- a net without parameters needs no checkpoint ----
cat >plain.dnn <<'END'
dim B = 32, P = 64
net plain(x: [B, P]) -> [B] { return sum(x * x, P) / 256 }
END
"$dnnc" predict plain.dnn --input x=x.csv -o plain.csv --quiet || fail "a net without parameters"
awk -F, '{ s = 0; for (i = 1; i <= NF; i++) s += $i * $i; printf "%.9g\n", s / 256 }' x.csv | near plain.csv - 1e-6 ||
  fail "rows of a net without parameters"
"$dnnc" predict digits.dnn -o none.csv --quiet >out 2>&1 && fail "parameters of no checkpoint"
grep -q "'dnnc predict' needs --load PATH" out || { cat out; fail "parameters of no checkpoint"; }

# ---- against the evaluation and against the parameters ----
predict -o out.csv
[ "$(wc -l <out.csv)" = 297 ] || fail "297 records have $(wc -l <out.csv) rows"
"$dnnc" eval digits.dnn --load d.ckpt --json --quiet >eval.json 2>eval.err || { cat eval.err; fail "eval"; }
[ -s eval.err ] && { cat eval.err; fail "eval says more than its result"; }
paste -d, out.csv <(tail -n 297 y.csv) | awk -F, '{ best = 1
    for (i = 2; i <= 10; i++) if ($i > $best) best = i
    hits += best - 1 == $11 } END { printf "%.9f\n", hits / NR }' >accuracy
close "$(cat accuracy)" "$(field accuracy eval.json)" 1e-6 ||
  fail "accuracy of the rows is $(cat accuracy), the evaluation says $(field accuracy eval.json)"
[ "$(field validation_loss eval.json)" = "$(field validation_loss run.json)" ] ||
  fail "eval differs from the evaluation of the run"
predict -o x-out.csv --value set.x
tail -n 297 x.csv | awk -F, -v OFS=, '{ for (i = 1; i <= NF; i++) $i /= 16; print }' >x-scaled.csv
near x-out.csv x-scaled.csv 1e-6 || fail "the inputs of the rows are not the last records"

# ---- formats, ranks, batches, levels ----
predict -o out.npy
predict -o out.safetensors
[ "$(head -c 6 out.npy | od -An -c | tr -d ' ')" = '223NUMPY' ] || fail "no .npy magic"
[ $(($(stat -c %s out.npy) % 64)) = $((297 * 40 % 64)) ] || fail "the header of .npy is not aligned"
grep -aq "'descr': '<f4', 'fortran_order': False, 'shape': (297,10), }" out.npy || fail "header of .npy"
cmp -s <(tail -c $((297 * 40)) out.npy) <(tail -c $((297 * 40)) out.safetensors) || fail "formats differ"
od -An -v -w40 -t f4 <(tail -c $((297 * 40)) out.npy) | sed 's/^ *//; s/  */,/g' >out-npy.csv
near out.csv out-npy.csv 1e-6 || fail ".csv and .npy differ"
grep -aq '"digits":{"dtype":"F32","shape":\[297,10\],"data_offsets":\[0,11880\]}' out.safetensors || fail "header of .safetensors"
predict -o out-b.csv batch=7 && near out.csv out-b.csv 1e-5 || fail "another batch gives other rows"
predict -o out-0.csv -O0 && near out.csv out-0.csv 1e-5 || fail "-O0 gives other rows"
if has_mpi; then
  for kind in npy csv; do
    predict -o two.$kind --ranks 2
    cmp -s out.$kind two.$kind || fail "two ranks give other bytes (.$kind)"
  done
  predict -o three.npy --ranks 3 batch=100
  predict -o one.npy batch=100
  cmp -s one.npy three.npy || fail "three ranks give other bytes"
  # A plan that shards parameters: all ranks compute each batch together.
  cat >hidden.plan <<'END'
mesh {
  data  = 2
  model = 2
}

plan {
  zero = 3
  shard H over model
}
END
  predict -o sharded.csv --plan hidden.plan
  near out.csv sharded.csv 1e-5 || fail "other rows under a plan"
  "$dnnc" build digits.dnn -o sharded.bundle --quiet --plan hidden.plan || fail "build under a plan"
  sharded.bundle/run --predict --load d.ckpt --output bundled.csv --quiet || fail "run --predict under a plan"
  cmp -s sharded.csv bundled.csv || fail "the bundle gives other rows under a plan"
  predict -o sharded-h.npy --plan hidden.plan --value h
  predict -o whole-h.npy --value h
  od -An -v -w192 -t f4 -j $(($(stat -c %s sharded-h.npy) - 297 * 192)) sharded-h.npy | sed 's/^ *//; s/  */,/g' >sharded-h.csv
  od -An -v -w192 -t f4 -j $(($(stat -c %s whole-h.npy) - 297 * 192)) whole-h.npy | sed 's/^ *//; s/  */,/g' >whole-h.csv
  near whole-h.csv sharded-h.csv 1e-5 || fail "another value under a plan"
fi

# ---- any value ----
predict -o h2.csv --value h
predict -o h0.csv --value h -O0
near h2.csv h0.csv 1e-5 || fail "h differs between -O0 and -O2"
[ "$(head -n 1 h2.csv | tr , '\n' | wc -l)" = 48 ] || fail "h has not 48 columns"
predict -o l2.csv --value 'linear[0]'
awk -F, -v OFS=, '{ for (i = 1; i <= NF; i++) if ($i < 0) $i = 0; print }' l2.csv >l2-relu.csv
near h2.csv l2-relu.csv 1e-6 || fail "h is not relu of the call before it"
predict -o op.npy --value 'linear[1].dot'
predict -o net.npy --value digits
cmp -s net.npy out.npy || fail "the net by its name differs"

# ---- what is not read need not be there ----
mv y.csv labels.csv
predict -o out2.npy
cmp -s out.npy out2.npy || fail "without labels the rows are others"
"$dnnc" eval digits.dnn --load d.ckpt >missing.out 2>&1 && fail "eval without labels"
grep -q "no file 'y.csv'" missing.out || { cat missing.out; fail "eval does not name the file"; }
mv labels.csv y.csv

# ---- other records ----
head -n 50 x.csv >some.csv
predict -o some.npy 'set.x=csv("some.csv", 0..63) / 16'
predict -o some2.npy --input set.x=some.csv
predict -o some3.npy --input x=some.csv
cmp -s some.npy some2.npy && cmp -s some.npy some3.npy || fail "three ways to give a file differ"
[ "$(stat -c %s some.npy)" = $((128 + 50 * 40)) ] || fail "50 records do not give 50 rows"

# ---- bundles; a net without train ----
"$dnnc" build digits.dnn -o d.bundle --quiet || fail "build"
d.bundle/run --predict --load d.ckpt --output bundle.npy --quiet || fail "a bundle does not predict"
cmp -s out.npy bundle.npy || fail "a bundle gives other bytes"
d.bundle/run --eval --load d.ckpt --json >bundle.json || fail "a bundle does not evaluate"
cmp -s eval.json bundle.json || fail "a bundle evaluates to something else"
"$dnnc" build digits.dnn -o h.bundle --quiet --value h || fail "build --value"
h.bundle/run --predict --load d.ckpt --output h.csv --quiet && cmp -s h.csv h2.csv || fail "a bundle of h"
if has_mpi; then
  "$dnnc" build digits.dnn -o d2.bundle --quiet --ranks 2 || fail "build --ranks 2"
  d2.bundle/run --predict --load d.ckpt --output bundle2.npy --quiet || fail "a bundle of two ranks"
  cmp -s out.npy bundle2.npy || fail "a bundle of two ranks gives other bytes"
fi
sed '/^data set/,$d' digits.dnn >alone.dnn
"$dnnc" build alone.dnn -o a.bundle --quiet || fail "build of a net alone"
"$dnnc" run digits.dnn --quiet --no-save --load d.ckpt --steps 0 >/dev/null || fail "steps 0"
sed -i 's/ema       = 0.9/ema = 0/' digits.dnn
rm -rf d.ckpt && "$dnnc" run digits.dnn --quiet || fail "training without averages"
predict -o plain.npy
a.bundle/run --predict --load d.ckpt --output alone.npy --quiet --input x=x-out.csv || fail "a net alone does not predict"
cmp -s plain.npy alone.npy || fail "a net alone gives other bytes"
"$dnnc" predict alone.dnn --load d.ckpt -o alone2.npy --quiet --input x=x-out.csv || fail "predict of a net alone"
cmp -s alone.npy alone2.npy || fail "bundle and command differ"
predict -o x-out.npy --value set.x
predict -o x-out.safetensors --value set.x
for file in x-out.npy x-out.safetensors:set.x; do
  "$dnnc" predict alone.dnn --load d.ckpt -o alone3.npy --quiet --input x=$file || fail "predict from $file"
  cmp -s alone.npy alone3.npy || fail "$file gives other bytes"
done
if has_mpi; then
  "$dnnc" predict alone.dnn --load d.ckpt -o alone4.npy --quiet --input x=x-out.npy --ranks 2 || fail "a net alone on two ranks"
  cmp -s alone.npy alone4.npy || fail "a net alone on two ranks gives other bytes"
  "$dnnc" eval digits.dnn --load d.ckpt --json >one.json && "$dnnc" eval digits.dnn --load d.ckpt --json --ranks 2 >two.json || fail "eval on two ranks"
  close "$(field validation_loss one.json)" "$(field validation_loss two.json)" 1e-6 || fail "two ranks evaluate to something else"
fi
sed 's/return linear\(.*\)/return cast(linear\1, bf16)/; s/-> \[B, K\]/-> bf16[B, K]/' alone.dnn >short.dnn
for kind in npy safetensors; do
  "$dnnc" predict short.dnn --load d.ckpt -o short.$kind --quiet --input x=x-out.npy || fail "bf16 results"
done
[ "$(stat -c %s short.npy)" = $((128 + 297 * 40)) ] || fail "bf16 is not f32 in .npy"
grep -aq '"dtype":"BF16"' short.safetensors || fail "bf16 is not BF16 in .safetensors"
# Another net than the one that is trained, on the arguments that train gives it.
sed 's/^data set/net twice(x: [B, P]) -> [B, K] { return 2 * digits(x) }\n&/; s/mean\|loss      = /loss = 0 * mean(twice(set.x)) + /' digits.dnn >two.dnn
"$dnnc" predict two.dnn --load d.ckpt -o twice.csv --quiet --net twice || fail "--net of a net that train calls"
"$dnnc" predict two.dnn --load d.ckpt -o once.csv --quiet --net digits || fail "--net digits"
awk -F, -v OFS=, '{ for (i = 1; i <= NF; i++) $i *= 2; print }' once.csv >once-twice.csv
near twice.csv once-twice.csv 1e-5 || fail "--net does not choose the net"
"$dnnc" predict two.dnn --load d.ckpt -o alone5.npy --quiet --net twice 'loss=cross_entropy(digits(set.x), set.y, K)' --input x=x-out.npy 2>net.err ||
  fail "--net of a net that train does not call: $(cat net.err)"
if command -v script >/dev/null; then
  script -qec "'$dnnc' predict digits.dnn --load d.ckpt -o terminal.npy" /dev/null | grep -q 'predicting 0/297' ||
    fail "no progress on a terminal"
fi

# ---- messages ----
# says CODE TEXT WORDS...: the exit code and what is printed.
says() {
  want=$1 text=$2
  shift 2
  "$@" >said 2>&1
  [ $? = "$want" ] && grep -qF -- "$text" said && return
  cat said
  fail "not $want and '$text': $*"
}
alone="$dnnc predict alone.dnn --load d.ckpt -o none.npy"
says 1 "input 'x' has no data: give it a file with --input x=FILE" $alone
says 1 "--input takes NAME=FILE, not 'x.csv'" $alone --input x.csv
says 1 "--input: the prediction reads no 'z'; it reads 'x'" $alone --input z=x.csv
says 1 "no file 'none.csv'" $alone --input x=none.csv
says 1 "'none.csv' is one table, but there are 2 results, 'pair[0]' to 'pair[1]': choose one with --value, or write .safetensors" \
  bash -c "sed 's/^net digits.*/net pair(x: [B, P]) {/; s/^  return \(linear.*\)/  return (x, \1)/' alone.dnn >pair.dnn &&
    '$dnnc' predict pair.dnn --load d.ckpt -o none.csv --input x=x-out.csv"
"$dnnc" predict pair.dnn --load d.ckpt -o one.npy --input x=x-out.csv --value 'pair[1]' --quiet || fail "pair[1]"
cmp -s one.npy alone.npy || fail "pair[1] is not the second result"
"$dnnc" predict pair.dnn --load d.ckpt -o both.safetensors --input x=x-out.csv --quiet || fail "both results"
cmp -s <(tail -c $((297 * 40)) both.safetensors) <(tail -c $((297 * 40)) alone.npy) || fail "the second of both"
says 1 "this program has no entry point 'predict'" bash -c "'$dnnc' run digits.dnn -o none.bundle steps=1 --no-save --net digits --quiet &&
  sed 's/-> \[B, K\]/-> []/; s/return linear\(.*\)/return mean(linear\1)/' alone.dnn >scalar.dnn &&
  '$dnnc' build scalar.dnn -o s.bundle --quiet && s.bundle/run --predict --load d.ckpt --output none.npy"
: >empty.csv
says 1 "there are no records to predict" $alone --input x=empty.csv
says 1 "the model reserves no records for evaluation" "$dnnc" eval digits.dnn --load d.ckpt set.eval=0
says 1 "--predict needs --output FILE" d.bundle/run --predict --load d.ckpt
mkdir folder.npy && says 1 "'folder.npy' is no regular file, so it is not replaced" \
  "$dnnc" predict digits.dnn --load d.ckpt -o folder.npy
[ -e none.npy ] || [ -e none.csv ] && fail "a failed prediction left a file"

# ---- docs/predict.md ----
mkdir page && cd page && ln -s "$root/models" . && cp -r "$root/data" .
dnnc() { "$dnnc" "$@"; }
n=0
while IFS= read -r line; do
  eval "$line" >../page.out 2>&1 || { cat ../page.out; fail "docs/predict.md: $line"; }
  n=$((n + 1))
done < <(awk '/^```sh/ { on = 1; next } /^```/ { on = 0 } on' "$root/docs/predict.md")
[ $n -ge 10 ] || fail "$n commands of docs/predict.md"
cmp -s a.npy b.npy && cmp -s b.npy c.npy || fail "docs/predict.md: three ways to give a file differ"
unset -f dnnc
cd ..

# ---- states with the batch dim, streams ----
cat >count.dnn <<'END'
dim B = 4, T = 5, V = 256
net count(x: i32[B, T]) -> [B, V] {
  param e: [V, C:V] = normal(0.1)
  state seen: [B, C:V] = zeros
  h = seen + mean(gather(e, x, V), T)
  seen = h
  return h[C -> V]
}
data text {
  x: i32[B, T] = bytes("letters.txt")
  y: i32[B, T] = next(x)
  order = sequential
  eval = 0.5
}
train {
  loss = mean(count(text.x)) + 0 * mean(text.y)
  optimizer = sgd(lr = 0.1)
  steps = 2
  save = "c.ckpt"
}
END
seq -s ' ' 1 60 >letters.txt
"$dnnc" run count.dnn --quiet || fail "a stream with states"
for batch in 4 3; do
  "$dnnc" predict count.dnn --load c.ckpt -o c$batch.csv --quiet batch=$batch || fail "predict with states"
done
near c4.csv c3.csv 1e-6 || fail "rows with states depend on the batch"

# ---- memory ----
cat >wide.dnn <<'END'
dim B = 64, C = 16, D = 256
net wide(x: [B, C]) -> [B, D] {
  param w: [C, D] = normal(0.1)
  return dot(x, w, C)
}
data set { x: [B, C] = synthetic(records = 2000) }
train { loss = mean(wide(set.x)); optimizer = sgd(lr = 0.1); steps = 1; save = "w.ckpt" }
END
"$dnnc" run wide.dnn --quiet || fail "wide"
for n in 2000 100000; do
  "$dnnc" predict wide.dnn --load w.ckpt -o w.npy --json "set.x=synthetic(records = $n)" >w$n.json || fail "predict $n"
  [ "$(field records w$n.json)" = $n ] || fail "$(field records w$n.json) of $n records"
done
[ "$(stat -c %s w.npy)" = $((128 + 100000 * 1024)) ] || fail "size of 100000 rows"
few=$(field peak_resident_bytes w2000.json) many=$(field peak_resident_bytes w100000.json)
if has_mpi; then
  for n in 2000 100000; do
    "$dnnc" predict wide.dnn --load w.ckpt -o w2.npy --ranks 2 --json "set.x=synthetic(records = $n)" >w2-$n.json || fail "predict $n on two ranks"
  done
  cmp -s w.npy w2.npy || fail "100,000 records on two ranks: other bytes"
  more=$(($(field peak_resident_bytes w2-100000.json) - $(field peak_resident_bytes w2-2000.json)))
  [ $more -lt 4000000 ] || fail "100,000 records of 1 KB take rank 0 of two $more bytes more"
fi
echo "peak of 2,000 records: $few bytes, of 100,000: $many; arena $(field arena_bytes w100000.json)"
[ $((many - few)) -lt 4000000 ] || fail "100,000 records of 1 KB take $((many - few)) bytes more"

# ---- signals and full disks leave nothing and replace nothing ----
echo before >keep.csv
for signal in TERM INT; do
  for ranks in 1 2; do
    [ $ranks = 1 ] || has_mpi || continue
    "$dnnc" predict wide.dnn --load w.ckpt -o keep.csv --quiet --ranks $ranks batch=1 \
      'set.x=synthetic(records = 100000000)' >stop.out 2>&1 &
    pid=$!
    for i in $(seq 100); do ls .keep.csv.*.tmp >/dev/null 2>&1 && break; sleep 0.1; done
    ls .keep.csv.*.tmp >/dev/null || { cat stop.out; fail "the prediction did not begin"; }
    begin=$(date +%s%N)
    kill -$signal $pid
    wait $pid
    code=$?
    ms=$((($(date +%s%N) - begin) / 1000000))
    [ $code = $([ $signal = TERM ] && echo 143 || echo 130) ] || { cat stop.out; fail "SIG$signal with $ranks ranks: exit $code"; }
    in_time $ms 1500 || fail "SIG$signal with $ranks ranks: $ms ms"
    [ -s stop.out ] && { cat stop.out; fail "SIG$signal with $ranks ranks says something"; }
    ls .keep.csv.*.tmp 2>/dev/null && fail "a temporary file is left"
  done
done
[ "$(cat keep.csv)" = before ] || fail "a stopped prediction replaced its file"
if unshare -m true 2>/dev/null; then
  mkdir -p small
  for kind in npy csv; do
    unshare -m bash -c "mount -t tmpfs -o size=1m none small && echo before >small/o.$kind &&
      '$dnnc' predict wide.dnn --load w.ckpt -o small/o.$kind --quiet; code=\$?
      ls -A small; cat small/o.$kind; exit \$code" >full.out 2>full.err
    [ $? = 3 ] || { cat full.err; fail "full disk: not exit 3"; }
    [ "$(cat full.out)" = "o.$kind
before" ] || { cat full.out; fail "a full disk leaves something"; }
    cat full.err
  done
fi
