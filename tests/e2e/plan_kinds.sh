#!/bin/bash
# `dnnc plan` bounds plans on devices of several kinds, by the work that they share or, without
# stages, by the loads of the slowest kind, and no stage that it finds crosses the border of an island.
. "$(dirname "$0")/lib.sh"
cat >deep.dnn <<'EOF'
dim B = 64, C = 512, K = 8
layer linear[I -> O](x: [..., I]) -> [..., O] {
  param w: [I, O] = he_uniform(I)
  return dot(x, w, I)
}
net deep(x: [B, C]) -> [B, K] {
  repeat i in 12 { x = relu(linear[C -> C](x)) }
  return linear[C -> K](x)
}
data d { x: [B, C] = synthetic(); y: i32[B] = synthetic(K) }
train { loss = cross_entropy(deep(d.x), d.y, K); optimizer = sgd(lr = 0.01); steps = 20 }
EOF
# Three ranks and five: groups of two or four equal ones would cross the border.
cluster() { # KIND FAST SLOW
  cat <<EOF
device fast { base = cpu; memory = 1GiB; flops_f32 = $2 }
device slow { base = cpu; memory = 1GiB; flops_f32 = $3 }
cluster made {
  $1 east { device = fast; level node { count = 3; link = 200MB/s } }
  $1 west { device = slow; level node { count = 5; link = 200MB/s } }
  level room { link = 20MB/s; latency = 1ms }
}
EOF
}
cluster group 40G 10G >kinds.cluster
cluster island 40G 40G >islands.cluster
plan() { "$dnnc" plan deep.dnn --cluster "$@" --quiet; }
verify() { "$dnnc" verify deep.dnn --plan "$1" --cluster "$2" --certificate >out 2>&1; }
raise() {
  awk -v by="$2" '/^  step /{ s = $3 + 0 } /^  bound /{ b = $3 * by; $0 = sprintf("  bound = %.9fms", b) }
    /^  gap /{ $0 = sprintf("  gap = %.17g", 1 - b / s) } /^  search_gap /{ next } { print }' "$1"
}

for of in kinds islands; do
  plan $of.cluster --search stages -o $of.plan && plan $of.cluster --search stages --json >$of.json || fail "plan on $of"
  [ "$(grep -c '^  stage ' $of.plan)" -ge 2 ] || { cat $of.plan; fail "no stages on $of"; }
  # Each stage has ranks 0..2 or ranks 3..7.
  grep -E '^  stage ' $of.plan | sed -E 's/.* on ([0-9]+)(\.\.([0-9]+))?.*/\1 \3/' |
    awk '{ last = NF > 1 ? $2 : $1; if ($1 < 3 && last >= 3) exit 1 }' || { cat $of.plan; fail "a stage on both sides of a border"; }
  grep -q 'restrictions = "any_stages single_cuts all_ranks' $of.plan || { cat $of.plan; fail "restrictions on $of"; }
  grep -q 'weights *= "kind_0 [^,"]*, kind_1 [^,"]*"' $of.plan || { cat $of.plan; fail "weights on $of"; }
  awk -v b="$(field bound_s $of.json)" -v f="$(field floor_s $of.json)" -v s="$(field step_s $of.json)" -v l="$(field load_s $of.json)" \
    'BEGIN { print "bound " b " s, load " l " s, step " s " s"; exit !(f < b && b <= l && l <= s) }' || fail "bound on $of"
  verify $of.plan $of.cluster && grep -q '^bound: computed again' out || { cat out; fail "the bound on $of"; }
  raise $of.plan 1.001 >raised.plan
  ! verify raised.plan $of.cluster && grep -q 'the bound is not one' out || { cat out; fail "a raised bound on $of"; }
  sed -E 's/any_stages single_cuts/one_stage/' $of.plan >other.plan
  ! verify other.plan $of.cluster && grep -q 'has stages' out || { cat out; fail "a bound of plans without stages"; }
done

# Other prices give another bound, and one kind too few gives none.
sed -E 's/(weights *= )"[^"]*"/\1"kind_0 0.01, kind_1 1"/' kinds.plan >prices.plan
! verify prices.plan kinds.cluster && grep -q 'the bound is not one' out || { cat out; fail "other prices"; }
sed -E 's/(weights *= )"[^"]*"/\1"kind_0 1"/' kinds.plan >few.plan
! verify few.plan kinds.cluster || fail "one kind too few"
for wrong in kind_1 "kind_0 1, link 2, kind_1" "forward_stream 64, backward_stream 64, kind_0" "kind_0 2, kind_1"; do
  sed -E "s/(weights *= )\"[^\"]*\"/\1\"$wrong 1\"/" kinds.plan >wrong.plan
  ! verify wrong.plan kinds.cluster && grep -q 'do not add up' out || { cat out; fail "weights '$wrong'"; }
done

# Without stages each rank has as large a part, so the slow ones bind.
plan kinds.cluster -o one.plan && verify one.plan kinds.cluster && grep -q '^bound: computed again' out || { cat out; fail "one stage"; }
grep -q 'restrictions = "one_stage all_ranks.* whole_sums' one.plan || { cat one.plan; fail "restrictions of one stage"; }
grep -q "limit .*, on the devices '" one.plan || { cat one.plan; fail "the kind that binds"; }
raise one.plan 1.001 >raised.plan
! verify raised.plan kinds.cluster && grep -q 'the bound is not one' out || { cat out; fail "a raised bound of one stage"; }
sed 's/ whole_sums//' one.plan >sums.plan
! verify sums.plan kinds.cluster && grep -q 'the bound is not one' out || { cat out; fail "a bound of all sums"; }

# Stages suit machines of several kinds: who looked for none is told how.
"$dnnc" plan deep.dnn --cluster kinds.cluster -o one.plan 2>told && grep -q 'search stages looks for them' told || { cat told; fail "a word on stages"; }
"$dnnc" plan deep.dnn --cluster kinds.cluster --search stages -o one.plan 2>told && ! grep -q 'looks for them' told || { cat told; fail "stages were looked for"; }

# Three fast ranks alone may be faster than all eight; who asks for a number of ranks has no such line.
"$dnnc" plan deep.dnn --cluster kinds.cluster -o one.plan 2>told || { cat told; fail "a plan for all ranks"; }
grep -q '^data parallelism on the first 3 ranks alone takes .*: --ranks 3 plans for these$' told || { cat told; fail "fewer ranks"; }
"$dnnc" plan deep.dnn --cluster kinds.cluster --ranks 8 -o one.plan 2>told && ! grep -q 'first 3 ranks' told || { cat told; fail "as many ranks as asked for"; }
