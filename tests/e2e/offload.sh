#!/bin/bash
# A plan with "offload" changes no bit: losses and parameters after
# four steps are those of the plan without the line.  The arenas of the device
# and of the host are as predicted, and both are touched to their last byte; that
# of the device falls, in four pairs by at least 40 %.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
# Scratch of oneDNN, which offload leaves where it is, depends on the instructions
# of the processor: a convolution has 4 MB more with AVX-512.
export ONEDNN_MAX_CPU_ISA=AVX2

run() { # PLAN, then MODEL and sizes: prints losses, digest, arenas
  DNN_POISON=1 "$dnnc" run "${@:2}" --plan "$1" --data "$root" --quick --json \
    --steps 4 --no-save eval_batches=2 >out.json 2>err || { cat err; return 1; }
  losses=$(grep -o '"loss":[^,}]*' out.json)
  number() { tail -n 1 out.json | grep -o "\"$1\":\[\?[0-9]*" | grep -o '[0-9]*$'; }
  digest=$(tail -n 1 out.json | grep -o '"parameters_sha256":[^]]*')
  arena=$(number arena_bytes) touched=$(number arena_touched_bytes)
  host=$(number host_arena_bytes) host_touched=$(number host_arena_touched_bytes)
  return 0
}
shown() { # the bytes in host memory that `dnnc show` predicts
  "$dnnc" show "$1" --model "${@:2}" --json >show.json 2>err || { cat err; return 1; }
  grep -o '"host_arena":[0-9]*' show.json | grep -o '[0-9]*$'
}
pairs=0 large=0
pair() { # NAME, LINE, MODEL and sizes; the plan without it has run
  printf 'plan {\n  offload %s\n}\n' "$2" >own.plan
  run own.plan "${@:3}" || fail "$1: run"
  [ -n "$digest" ] && [ "$losses" = "$losses0" ] && [ "$digest" = "$digest0" ] ||
    fail "$1: other losses or parameters: $losses, not $losses0"
  [ "$arena" = "$touched" ] && [ "$host" = "$host_touched" ] ||
    fail "$1: arenas $arena and $host, touched $touched and $host_touched"
  [ "$arena" -lt "$arena0" ] || fail "$1: arena $arena, without $arena0"
  [ "$(shown own.plan "${@:3}")" = "$host" ] || fail "$1: show, not $host"
  pairs=$((pairs + 1))
  [ $((arena * 10)) -le $((arena0 * 6)) ] && large=$((large + 1))
  echo "$1: equal; arena $arena of $arena0, host memory $host"
}
echo 'plan { }' >without.plan
model() { # NAME, saved values, parameters, MODEL and sizes
  run without.plan "${@:4}" || fail "$1: run"
  losses0=$losses digest0=$digest arena0=$arena
  pair "$1, saved values" "$2" "${@:4}"
  pair "$1, parameters" "$3" "${@:4}"
  pair "$1, optimizer state" optimizer "${@:4}"
  pair "$1, all" "$2, $3, optimizer" "${@:4}"
}
matrices="wte, wpe, block.attn.wq, block.attn.wk, block.attn.wv, block.attn.wo, block.mlp.w1, block.mlp.w2"
model chargpt block "$matrices" "$root/models/chargpt.dnn" L=2
model vgg16 "unit, x" "unit.conv2d.w, linear.w" "$root/models/vgg16.dnn" \
  N=128 side=32 F=32 K=10 width=8 "depths=[1,1,1,1,1]"
model charlstm lstm "emb, lstm.wx, lstm.wh, linear.w" "$root/models/charlstm.dnn" B=16
printf 'plan {\n  remat block\n  offload block.attn.q\n}\n' >idle.plan
"$dnnc" show idle.plan --model "$root/models/chargpt.dnn" >/dev/null 2>idle ||
  { cat idle; fail "an idle line"; }
grep -qF "idle.plan:3:3: warning: 'offload' changes nothing: no step stores any" idle ||
  { cat idle; fail "no warning about an idle line"; }
[ $pairs = 12 ] && [ $large -ge 4 ] || fail "$large of $pairs pairs fall by 40 %"
echo "$large of $pairs arenas fall by at least 40 %"
