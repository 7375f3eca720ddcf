#!/bin/bash
# Starts and ends a tiny model on two ranks again and again: what goes wrong
# once in some hundred times on a busy machine shows here.
#   ranks.sh DNNC [COUNT]     default 200 runs
set -u
dnnc=$(realpath "$1") count=${2:-200}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
cat >tiny.dnn <<'M'
dim B = 4, A = 3
net m(x: [B, A]) -> [] {
  param w: [A] = normal(0.5)
  return mean(x * w * x * w)
}
data d { x: [B, A] = synthetic() }
train { loss = m(d.x); optimizer = sgd(lr = 0.1); steps = 3 }
M
"$dnnc" build tiny.dnn --ranks 2 -o bundle --quiet || exit 1
failed=0 said=0
for i in $(seq "$count"); do
  timeout 60 bundle/run --no-save >out 2>err || {
    failed=$((failed + 1))
    echo "run $i: $(cat err)"
  }
  grep -q '^warning: mpirun' err && said=$((said + 1))
done
echo "$count runs, $failed failed, mpirun crashed on the way out of $said"
[ "$failed" = 0 ]
