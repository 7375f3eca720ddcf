#!/bin/bash
# Attention whose scores are very low finite numbers, on one rank and as ring
# attention over two, against f64 code of this test's own.
. "$(dirname "$0")/lib.sh"

# All scores of a query are equal, because its last element is 0.  What differs
# between keys then acts on the gradient of the queries alone.  The gradient of
# y is the result itself.
write_model() { # q, k, keys of the second half, what softmax sees
  cat >low.dnn <<END
dim T = 8, D = 8
net f(x: [B:1, T, D]) -> [] {
  param y, zq, zk, zv: [T, D] = zeros
  t    = cast(iota(x, T), f32)
  last = iota(x, D) >= 7
  q    = select(last, 0.0, x * 0 + ($1)) + $5(zq)
  row  = select(iota(x, T) >= 4, $3, $2)
  k    = select(last, x * 0 + t / 8, row) + $5(zk)
  v    = cast(iota(x, D), f32) / 8 - t / 4 + zv
  k    = k[T -> S]
  v    = v[T -> S]
  s    = dot(q, k, D)
  o    = dot(softmax($4, S), v, S)
  g    = t / 8 - cast(iota(x, D), f32) / 4
  return sum(o * (g + y))
}
data d { x: [B:1, T, D] = synthetic() }
train {
  loss      = f(d.x)
  optimizer = sgd(lr = 1)
  steps     = 1
  save      = "low.ckpt"
}
END
}

# Elements of a parameter, which started as 0: minus its gradient.
elements() { # name
  local file begin head
  file=$(find low.ckpt -name '*.safetensors')
  head=$(od -An -tu8 -N8 "$file" | tr -d ' ')
  begin=$(head -c $((8 + head)) "$file" | tr -d '\0' |
    grep -o "\"$1\":{[^}]*" | grep -o 'offsets":\[[0-9]*' | cut -d[ -f2)
  od -An -v -tf4 -w4 -j $((8 + head + begin)) -N 256 "$file"
}

# Computes it in f64.  Prints what is further away than `limit` of the sum of the
# magnitudes that an element is the sum of.
compare() { # q, k, second half of k, is causal, limit, names
  for name in $6; do
    elements "$name" | awk -v name="$name" '{ print name, NR - 1, $1 }'
  done | awk -v Q="$1" -v K="$2" -v L="$3" -v causal="$4" -v limit="$5" '
    function absolute(a) { return a < 0 ? -a : a }
    { got[$1, $2] = -$3; names[$1] = 1 }
    function q(t, d) { return d < 7 ? Q : 0 }
    function k(s, d) { return d == 7 ? s / 8 : s >= 4 ? L : K }
    function v(s, d) { return d / 8 - s / 4 }
    function g(t, d) { return t / 8 - d / 4 }
    function add(name, i, value) {
      want[name, i] += value
      size[name, i] += absolute(value)
    }
    END {
      for (t = 0; t < 8; t++) {
        most = 0; delta = 0; n = 0
        for (s = 0; s < 8; s++) {  # no score is above 0
          seen[s] = (!causal || s <= t) && k(s, 0) < 1e38
          score[s] = 7 * Q * k(s, 0)
          if (seen[s] && (n++ == 0 || score[s] > most)) most = score[s]
        }
        sum = 0
        for (s = 0; s < 8; s++) {
          p[s] = seen[s] ? exp(score[s] - most) : 0
          sum += p[s]
        }
        for (s = 0; s < 8; s++) p[s] /= sum
        for (s = 0; s < 8; s++) for (d = 0; d < 8; d++) {
          add("y", t * 8 + d, p[s] * v(s, d))
          add("zv", s * 8 + d, p[s] * g(t, d))
          delta += p[s] * v(s, d) * g(t, d)
        }
        for (s = 0; s < 8; s++) {
          ds = -delta
          for (d = 0; d < 8; d++) ds += g(t, d) * v(s, d)
          for (d = 0; d < 8; d++) {
            add("zq", t * 8 + d, p[s] * ds * k(s, d))
            add("zk", s * 8 + d, p[s] * ds * q(t, d))
          }
        }
      }
      for (name in names) for (i = 0; i < 64; i++) {
        away = absolute(got[name, i] - want[name, i])
        count++
        if (!(away <= limit * (size[name, i] + 1e-3)) || got[name, i] == "")
          print name "[" i "]: " got[name, i] ", not " want[name, i]
      }
      if (count < 64) print "no elements"
    }'
}

check() { # dtype, plan or "", q, k, second half of k, mask, limit, names
  local causal=0 softmax=s of=stop_gradient
  [ "$6" = causal ] && causal=1 softmax="mask(s, T >= S)"
  [ "$8" = "y" ] || of=""
  write_model "$3" "$4" "$5" "$softmax" "$of"
  rm -rf low.ckpt
  "$dnnc" run low.dnn --quick "precision.compute=$1" ${2:+--plan "$2"} \
    >out 2>&1 || { cat out; fail "$*"; }
  compare "$3" "$4" "$5" "$causal" "$7" "$8" >wrong
  [ ! -s wrong ] || { head -n 5 wrong; fail "$*"; }
}

printf 'mesh { m = 2 }\nplan { attention = ring; shard T over m }\n' |
  tr ';' '\n' >ring.plan
plans=("")
if has_mpi; then plans+=(ring.plan); fi
for plan in "${plans[@]}"; do
  for mask in causal all; do
    dtypes="f32 bf16 f16"
    [ $mask = all ] && dtypes=f32
    for dtype in $dtypes; do
      low=-8070450532247928832.0 high=4611686018427387904.0 limit=1e-2
      [ $dtype = f16 ] && low=-57344.0 high=32768.0
      [ $dtype = f32 ] && limit=1e-4
      # Values hold however low scores are; gradients as long as the log of a
      # sum of 8 is not lost beside them (benchmarks/README.md).
      check $dtype "$plan" "$low" "$high" "$high" $mask $limit y
      check $dtype "$plan" -8.0 14.0 14.0 $mask $limit "y zq zk zv"
      # Keys of the second half have scores of -inf.
      check $dtype "$plan" "$low" "$high" 3e38 $mask $limit y
    done
  done
  echo "low scores: ${plan:-one rank}"
done
