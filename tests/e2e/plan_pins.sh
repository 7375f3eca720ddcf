#!/bin/bash
# `dnnc plan` places every operator under the mesh, settings and lines that are written,
# and bounds the plans that keep mesh and settings.
. "$(dirname "$0")/lib.sh"
cluster=$root/models/pipedream-a.cluster
cat >small.dnn <<'END_OF_MODEL'
dim B = 64, C = 512, F = 2048, K = 512
net small(x: [B, C]) -> [B, K] {
  param a: [C, F] = normal(0.1)
  param b: [F, K] = normal(0.1)
  return dot(relu(dot(x, a, C)), b, F)
}
data set { x: [B, C] = synthetic(); y: [B, K] = synthetic() }
train { loss = mse(small(set.x), set.y); optimizer = sgd(lr = 0.1); steps = 3 }
END_OF_MODEL

plan() { # LINES: writes found.plan and out.json
  printf 'mesh {\n  far = auto\n  near = 4\n  one = 1\n}\nplan {\n%s}\n' "$1" >pins.plan
  "$dnnc" plan small.dnn --cluster "$cluster" --ranks 8 --plan pins.plan --quiet >found.plan 2>message ||
    { cat pins.plan message; fail "no plan"; }
  "$dnnc" plan small.dnn --cluster "$cluster" --ranks 8 --plan pins.plan --quiet --json >out.json || fail "JSON"
}
step_of() { # PLAN
  "$dnnc" simulate small.dnn --plan "$1" --cluster "$cluster" --json >simulated.json 2>message || { cat message; fail "simulate $1"; }
  field step_s simulated.json
}

# Lines about operators, names, parameters and saved values.
lines='  shard "!dot[0]": B over far, F over near
'
for more in '' '  zero = 1
' '  microbatches = 2
' '  shard K over near
' '  shard a: F over near
' '  keep relu
' '  shard B over far
'; do
  plan "$lines$more"
  grep -q '^  space *= "operators and values over ' found.plan || { cat found.plan; fail "no operator is placed: $more"; }
  grep -q '^  bound *= ' found.plan || { cat found.plan; fail "no bound: $more"; }
  grep -qx '  far *= 2' found.plan && grep -qx '  near *= 4' found.plan || { cat found.plan; fail "lost the mesh"; }
  # Written again, the lines change nothing: none of them was lost.
  sed '/^certificate/,$d' found.plan >again.plan
  printf 'plan {\n%s}\n' "$(grep -v keep <<<"$lines$more")
" >>again.plan
  [ "$(step_of found.plan)" = "$(step_of again.plan)" ] || { cat again.plan; fail "lost a line: $more"; }
done

# Plans with other lines that keep mesh and settings are no faster than the bound; what is found is no slower than they are.
plan '  zero = 1
'
for line in '' 'shard F over near' 'shard F over (far, near)' 'shard C over near' 'shard "!dot[0]": B over far, F over near' \
  'shard "!dot[1]": F over (far, near)'; do
  printf 'mesh {\n  far = 2\n  near = 4\n}\nplan {\n  zero = 1\n  %s\n}\n' "$line" >other.plan
  awk -v b="$(field bound_s out.json)" -v found="$(field step_s out.json)" -v s="$(step_of other.plan)" \
    'BEGIN { exit !(s >= b && s >= found) }' || { cat other.plan out.json; fail "faster: $line"; }
done

# Four axes are no mesh that units are placed over.
printf 'mesh {\n  a = 2\n  b = 2\n  c = 2\n  d = 2\n}\n' >axes.plan
"$dnnc" plan small.dnn --cluster "$cluster" --plan axes.plan --effort 40 --quiet >found.plan 2>message || { cat message; fail "four axes"; }
grep -q '^  space *= "no operator placed by itself (the written mesh has more than three axes)' found.plan && ! grep -q '^  bound' found.plan ||
  { cat found.plan; fail "four axes"; }

# Tiny values over slow links: no slower than the whole batch on each rank, with a layer computed again since it does not fit
# else.
cat >tiny.dnn <<'END_OF_MODEL'
dim B = 12, T = 5, C = 8, V = 6, F = 64
layer lin(x: [B, T, C]) {
  param w: [C, F] = normal(0.1)
  return silu(dot(x, w, C))
}
net m(x: i32[B, T]) -> [B, T, F] {
  param table: [V, C] = normal(0.1)
  x = gather(table, x, V)
  x = lin(x)
  return x
}
data d { x: i32[B, T] = synthetic(V); y: [B, T, F] = synthetic() }
train { loss = mse(m(d.x), d.y); optimizer = adam(lr = 0.1); steps = 2 }
END_OF_MODEL
printf 'plan {\n  zero = 1\n  memory = 41791B\n}\n' >pins.plan
printf 'mesh { data = 2 }\nplan {\n  zero = 1\n  shard B over none\n  remat lin\n  memory = 41791B\n}\n' >other.plan
"$dnnc" plan tiny.dnn --ranks 2 --cluster "$cluster" --plan pins.plan --quiet --json >out.json 2>message || { cat message; fail "a tiny model"; }
"$dnnc" simulate tiny.dnn --cluster "$cluster" --plan other.plan --json >simulated.json 2>message || { cat message; fail "a whole batch"; }
awk -v found="$(field step_s out.json)" -v s="$(field step_s simulated.json)" 'BEGIN { exit !(found <= s) }' ||
  { cat out.json simulated.json; fail "slower than a whole batch"; }

# A line about a head that only training has: evaluation has nothing to do for it.
printf 'mesh {\n  data = 2\n}\nplan {\n  shard "side_head[0].linear[0]!dot": N over data\n}\n' >head.plan
"$dnnc" simulate "$root/models/googlenet.dnn" thin=8 --cluster "$cluster" --plan head.plan >out 2>message ||
  { cat message; fail "a head of training alone"; }
