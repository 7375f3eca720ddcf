#!/bin/bash
# `dnnc tune` where something never ends, or fails: a plan keeps to its share of
# the budget, steps that are too long give kernels of a smaller batch, and plans
# run where no probe does.  No result depends on the speed of the machine: ranks
# of what has to be slow sleep, for longer than any budget.
. "$(dirname "$0")/lib.sh"
[ "$(nproc)" -ge 2 ] || skip "one core"
quick_kernels
model=$root/benchmarks/systems/mlp.dnn
cat >slow.h <<'END'
#include <unistd.h>
__attribute__((constructor)) static void sleep_long(void) { sleep(1000); }
END
# The compiler for what has $SLOW in the words of its `dnnc` or in its plan: its
# ranks sleep; for what has $FAILS: none.
cat >slow-cc <<END
#!/bin/bash
words=\$(tr '\\0' ' ' </proc/\$PPID/cmdline)
plan=\${words#* --plan }
words="\$words \$(cat "\${plan%% *}" 2>/dev/null)"
is() { [[ -n "\$1" && "\$words" =~ \$1 ]]; }
case "\$*" in *" -c "*program.c*)
  is "\${FAILS:-}" && exit 1
  is "\${SLOW:-}" && ! is "\${QUICK:-}" && set -- -include "$work/slow.h" "\$@" ;;
esac
exec $CC "\$@"
END
chmod +x slow-cc
export CC=$work/slow-cc
# A kernel that sleeps must be in no other cache.
fresh_cache() {
  XDG_CACHE_HOME=$(mktemp -d "$work/cache-XXXXXX")
  export XDG_CACHE_HOME
}

# ---- a plan that never makes a step, the first of the list ----
fresh_cache
printf 'mesh { ranks = 2 }\nplan {\n  shard H1 over ranks\n  microbatches = 16\n}\n' >slow.plan
SLOW='--plan slow\.plan' "$dnnc" tune $model --data "$root" --budget 60s -o both --plan slow.plan --plan auto --effort 40 \
  --json >out.json 2>log || { cat log; fail "tune with a plan and auto"; }
python3 - <<'END' || { cat out.json log; fail "a plan and auto"; }
import json
plans = [json.loads(line) for line in open("out.json")]
assert plans[0] == {"plan": "slow.plan", "left_out": "it took longer than its share of the budget"}, plans[0]
assert len(plans) >= 3 and len({p["plan"] for p in plans}) == len(plans), plans
ran = [p for p in plans if "measured_s" in p]
assert ran and all(p["predicted_s"] > 0 and p["measured_s"] > 0 for p in ran), plans
assert all("left_out" in p for p in plans if p not in ran), plans
print(min(ran, key=lambda p: p["measured_s"])["plan"])
END
grep -q '^both.plan: .*, the fastest$' log || { cat log; fail "the fastest beside a slow one"; }
[ -s both.plan ] && ! cmp -s both.plan slow.plan || fail "the fastest beside a slow one"

# ---- steps of the whole batch that are too long ----
fresh_cache
SLOW='ranks = 1' QUICK='B=1 ' "$dnnc" tune $model --data "$root" --no-plans --budget 120s -o small >log 2>&1 &
pid=$!
while kill -0 $pid 2>/dev/null && ! grep -q "1 rank, B = 1:" log; do sleep 0.2; done
kill -TERM $pid 2>/dev/null
wait $pid
grep -qx "left out 1 rank: it took longer than the budget" log || { cat log; fail "a probe that never ends"; }
grep -q "^measured 1 rank, B = 1: [1-9]" log || { cat log; fail "a smaller batch"; }
"$dnnc" simulate $model --ranks 2 --cluster small.cluster --profile small.profile >out 2>&1 ||
  { cat out; fail "prices from a smaller batch"; }

# ---- no probe can be built ----
fresh_cache
FAILS=probe.plan
export FAILS
"$dnnc" tune $model --data "$root" --no-plans --budget 60s -o none >log 2>&1 && fail "nothing was measured"
grep -q "error: nothing could be measured" log || { cat log; fail "nothing was measured"; }
! grep -q "the budget ended" log || { cat log; fail "the budget is not why"; }
printf 'mesh { ranks = 2 }\nplan {\n  shard B over ranks\n}\n' >data.plan
"$dnnc" tune $model --data "$root" --budget 60s -o none --plan data.plan --json >out.json 2>log ||
  { cat log; fail "a plan where no probe runs"; }
grep -q "nothing was measured, so plans are predicted by constants" log || { cat log; fail "whose predictions"; }
awk -v s="$(field measured_s out.json)" 'BEGIN { exit !(s > 0) }' || { cat out.json log; fail "a plan where no probe runs"; }
cmp -s none.plan data.plan || fail "the fastest where no probe runs"
[ ! -e none.cluster ] && [ ! -e none.profile ] || fail "files of nothing"
echo "tune: a plan and a probe that never end, and probes that fail"
