#!/bin/bash
# A plan with "offload" changes no bit on the mock GPU either, with
# streams that run ahead and with streams that run late; and waits between the
# streams of swaps and of kernels are needed: some that are left out are seen.  It changes
# none of two stages on a rank either.
. "$(dirname "$0")/lib.sh"
. "$root/tests/mock/lib.sh"
mock_ready
model=$root/benchmarks/systems/gpt.dnn
printf 'plan {\n  offload block, optimizer, wte, wpe, block.attn.wq, block.attn.wk, block.attn.wv, block.attn.wo, block.mlp.w1, block.mlp.w2\n}\n' >off.plan
echo 'plan { }' >none.plan
printf 'plan {\n  schedule = 1f1b\n  microbatches = 4\n  stage 0: wte, wpe, block[0] on 0\n  stage 1: block[1], norm on 0\n}\n' >stages.plan
{ grep -v '^}' stages.plan && tail -n +2 off.plan; } >off_stages.plan
for plan in none off stages off_stages; do
  mock_build_file $plan "$model" --plan $plan.plan --target cuda:sm_90 --quick || {
    grep -q NVRTC $plan.log && skip "no NVRTC ($(tail -n 1 $plan.log))"
    cat $plan.log
    fail "a build"
  }
done
# steps BUNDLE EAGER: losses, norms and parameters of two steps.
steps() {
  DNN_MOCK_EAGER=$2 mock_run "$1" --steps 2 --json 2>&1 | tee out.json |
    grep -o '"loss":[^,]*\|"norm":[^,]*\|"parameters_sha256":[^]]*\|^error.*\|^mock:.*'
}
number() { tail -n 1 out.json | grep -o "\"$1\":\[[0-9]*" | grep -o '[0-9]*$'; }
expected=$(steps none 1)
echo "$expected" | grep -q sha256 || fail "two steps: $expected"
arena=$(number arena_bytes)
for eager in 0 1; do
  found=$(steps off $eager)
  [ "$found" = "$expected" ] || fail "eager $eager: $found, not $expected"
done
smaller=$(number arena_bytes) host=$(number host_arena_bytes)
[ $((smaller * 10)) -le $((arena * 6)) ] && [ "$host" -gt 0 ] ||
  fail "arena $smaller of $arena, host memory $host"
seen=0
for wait in 15 16 20 25 30 40 50 60; do
  for eager in 0 1; do
    [ "$(DNN_MOCK_DROP_WAIT=$wait steps off $eager)" = "$expected" ] ||
      { seen=$((seen + 1)); break; }
  done
done
[ $seen -ge 2 ] || fail "$seen of 8 missing waits are noticed"
echo "equal on the mock GPU; arena $smaller of $arena, host memory $host;" \
  "$seen of 8 missing waits are noticed, the others are of idle streams"
expected=$(steps stages 1)
echo "$expected" | grep -q sha256 || fail "two steps of stages: $expected"
arena=$(number arena_bytes)
for eager in 0 1; do
  found=$(steps off_stages $eager)
  [ "$found" = "$expected" ] || fail "stages, eager $eager: $found, not $expected"
done
smaller=$(number arena_bytes) host=$(number host_arena_bytes)
[ $((smaller * 10)) -le $((arena * 6)) ] && [ "$host" -gt 0 ] ||
  fail "stages: arena $smaller of $arena, host memory $host"
echo "stages are equal on the mock GPU; arena $smaller of $arena, host memory $host"
