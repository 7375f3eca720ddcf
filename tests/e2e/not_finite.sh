#!/bin/bash
# The first value that is not finite has the same path at every -O, on ranks
# and in micro-batches: the operator that made it, the parameter, or the
# gradient.  Infinities that do no harm, as in masks, are none of them.
. "$(dirname "$0")/lib.sh"

# finds WHERE NAME: the body is read from the input; more options follow.
finds() {
  local where=$1 name=$2 settings=${3:-} lr=${lr:-0.1}
  shift 3
  { printf 'dim B = 4, C = 3\n%snet f(x: [B, C]) -> [] {\n' "${layer:-}"
    printf '  param w: [C] = ones\n%s\n}\n' "$(cat)"
    printf 'data d { x: [B, C] = synthetic() }\n'
    printf 'train { loss = f(d.x); optimizer = sgd(lr = %s); steps = 30 }\n' "$lr"
    printf '%s\n' "$settings"; } >"$name.dnn"
  for level in -O0 -O1 -O2; do
    "$dnnc" run "$name.dnn" $level --no-save "$@" >out.txt 2>&1
    local code=$?
    [ $code = 1 ] || { cat out.txt; fail "$name $level: exit $code"; }
    grep -qF "; the first value that is not is in $where" out.txt ||
      { cat out.txt; fail "$name $level: not in $where"; }
    if grep -q optimizer out.txt; then fail "$name $level: $(cat out.txt)"; fi
  done
  echo "$name: in $where"
}

finds "'log' (forward)" negative "" <<<'  return mean(log(0 - exp(x * w)))'
finds "'div' (forward)" zero "" <<<'  y = x * w
  return mean(y / (y - y))'
finds "'exp' (forward)" overflow "" <<<'  return mean(exp(x * w * 1000))'
finds "the gradient of 'sqrt' (backward)" root "" <<<'  return mean(sqrt(x * w * 0))'
finds "'dot' (forward)" product "" <<<'  param v: [C, D:2] = 1e30
  return mean(dot(x * w * 1e20, v, C))'
finds "the norm of all gradients" norm "" <<<'  param v: [C] = ones
  return mean(x * w * 1e20) + mean(v * x * 1e25)'
lr=1e39 finds "the update of 'w' in step 1" rate "" <<<'  return mean(x * w)'
finds "'log' (forward)" scan "" <<<'  y = scan B (h: [C] = 0) {
    h = h + log(x * w)
    return h
  }
  return mean(y)'
finds "'mul[0]' (forward)" carry "" <<<'  y = scan B (h: [C] = 1) {
    h = h * h * 1e20 * w
    return h + x
  }
  return mean(y)'
finds "'log' (forward)" unrolled "" <<<'  @unroll(3)
  y = scan B (h: [C] = 0) {
    h = h + log(x * w)
    return h
  }
  return mean(y)'
layer='layer block(x) {
  param g: [C] = 1e10
  y = x * x * g
  return tanh(y) + y
}
' finds "'block[2].mul[0]' (forward)" blocks "" <<<'  repeat i in 5 { x = block(x) }
  return mean(x)'

# A masked score and a logarithm that nothing takes are no causes.
finds "'log' (forward)" masked "" <<<'  p = softmax(mask(x * w, C >= 1), C)
  return mean(log(p - 2))'
finds "'sub' (forward)" row "" <<<'  y = mask(x * w, C >= 5)
  return mean(exp(y - max(y, C)))'
finds "'log[1]' (forward)" taken "" <<<'  y = select(x > 100, log(x - 100), x * w)
  return mean(y) + mean(log(x * w))'

# The scale is halved until it is below 1.
short='precision { compute = bf16; loss_scale = dynamic }'
finds "'exp' (forward)" bf16 "$short" <<<'  param v: [C, D:2] = 1
  return mean(exp(dot(x * x * w, v, C) * 200))'
grep -q "the loss scale fell below 1" out.txt || fail "bf16: $(cat out.txt)"
finds "'dot[0]' (forward)" f16 "${short/bf16/f16}" <<<'  param v: [C, D:2] = 10000
  return mean(dot(dot(x * w * 10000, v, C), v, D))'

# A parameter that is loaded.
{ header='{"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}     '
  printf '\x40\0\0\0\0\0\0\0%-64s' "$header"
  printf '\0\0\x80\x3f\0\0\xc0\x7f\0\0\x80\x3f'; } >nan.safetensors
finds "the parameter 'w'" loaded "" --load nan.safetensors <<<'  return mean(x * w)'

# The operators that become one attention operator have its path.
finds "'o' (forward)" attention "" <<<'  param q, k, v: [C, D:4] = normal(1e20)
  x = x[B -> T]
  s = dot(dot(x, q, C), dot(x, k, C)[T -> S], D) / 2
  o = dot(softmax(s, S), dot(x, v, C)[T -> S], S)
  return mean(o) + 0 * sum(w)'

finds "'log' (forward)" micro "plan { microbatches = 2 }" <<<'  return mean(log(x * w))'
has_mpi || skip "ranks: needs mpirun"
two='mesh { data = 2 }
plan { shard B over data }'
finds "'log' (forward)" ranks "$two" <<<'  return mean(log(x * w + 1))'
finds "'log' (forward)" both "${two/data \}/data; microbatches = 2 \}}" <<<'  return mean(log(x * w + 1))'
finds "the gradient of 'sqrt' (backward)" ranks_root "$two" <<<'  return mean(sqrt(x * w * 0))'
