#!/bin/bash
# `dnnc plan` finds a plan that `simulate` prices alike, keeps what is written, and says
# what does not fit.
. "$(dirname "$0")/lib.sh"
cluster=$root/models/pipedream-a.cluster

step_of() { # MODEL PLAN OPTION...
  "$dnnc" simulate "$1" --plan "$2" --cluster "$cluster" --json "${@:3}" >simulated.json || fail "simulate $2"
  field step_s simulated.json
}

# Linear layers of AlexNet over the ranks, in place of their gradients over 10 Gb/s.
"$dnnc" plan "$root/models/alexnet.dnn" --cluster "$cluster" --effort 150 -o alexnet.plan 2>words ||
  { cat words; fail "alexnet"; }
grep -q '^a step takes .* ms (estimate), .*samples a second, MFU .* of 16.46 GB; data parallelism alone takes ' words ||
  { cat words; fail "summary"; }
found=$(step_of "$root/models/alexnet.dnn" alexnet.plan)
printf 'mesh { data = 16 }\nplan { shard N over data }\n' >data.plan
plain=$(step_of "$root/models/alexnet.dnn" data.plan)
awk -v a="$found" -v b="$plain" 'BEGIN { exit !(a < b / 2) }' || fail "found $found, data parallelism $plain"
grep -q "^  model *= \"$root/models/alexnet.dnn\"$" alexnet.plan && grep -q '^  floor *= ' alexnet.plan ||
  { cat alexnet.plan; fail "certificate"; }
"$dnnc" show alexnet.plan >shown || fail "the plan is not shown"
# Plans of the bound, and plans beside those that place one operator otherwise: without them a step takes 16.5 ms.
"$dnnc" plan "$root/models/alexnet.dnn" --cluster "$root/models/pipedream-b.cluster" --json --quiet >fast.json || fail "pipedream-b"
awk -v s="$(field step_s fast.json)" 'BEGIN { exit !(s < 0.0145) }' || { cat fast.json; fail "a slow plan"; }

grep -q '^[a-z_]* [0-9]' words && [ "$(wc -l <words)" = 3 ] || { cat words; fail "the plan in words, in three lines"; }
grep -q '^start it with: dnnc build .*/alexnet.dnn --plan alexnet.plan --target cuda -o alexnet.bundle && mpirun --hostfile HOSTS -n 16 alexnet.bundle/rank-0000$' words ||
  { cat words; fail "commands"; }
SLURM_JOB_ID=7 "$dnnc" plan "$root/models/alexnet.dnn" --cluster "$cluster" --ranks 8 --effort 2 2>words >/dev/null || fail "Slurm"
grep -q ' && srun -n 8 --ntasks-per-node=4 FILE.bundle/rank-0000$' words || { cat words; fail "commands of Slurm"; }

# The commands work as they are printed: on one machine `run` starts the ranks, on several mpirun would.
mkdir "a folder"
cat >"a folder/small.dnn" <<'END'
dim B = 64, C = 32, F = 256
net small(x: [B, C]) -> [B, C] {
  param a: [C, F] = normal(0.1)
  param b: [F, C] = normal(0.1)
  return dot(relu(dot(x, a, C)), b, F)
}
data set { x: [B, C] = synthetic(); y: [B, C] = synthetic() }
train { loss = mse(small(set.x), set.y); optimizer = sgd(lr = 0.1); steps = 3 }
END
"$dnnc" plan "a folder/small.dnn" F=128 --cluster "$root/models/laptop.cluster" --effort 20 -o "a folder/my.plan" 2>words ||
  { cat words; fail "a plan for a laptop"; }
grep -qx "start it with: dnnc build 'a folder/small.dnn' F=128 --plan 'a folder/my.plan' -o 'a folder/my.bundle' && 'a folder/my.bundle/run'" words ||
  { cat words; fail "commands of one machine"; }
if has_mpi; then
  (PATH="$(dirname "$dnnc"):$PATH" && eval "$(sed -n 's/^start it with: //p' words)") >run.txt 2>&1 && grep -q '^step 3/3 ' run.txt ||
    { cat run.txt; fail "the commands do not work"; }
  mpirun --allow-run-as-root --oversubscribe -n 2 "a folder/my.bundle/rank-0000" >run.txt 2>&1 && grep -q '^step 3/3 ' run.txt ||
    { cat run.txt; fail "rank-0000 under mpirun"; }
fi

# A step may be too long for its number, with and without the blocks that a candidate leaves out.
"$dnnc" plan "$root/models/gpt3.dnn" --cluster "$root/models/laptop.cluster" --what-if memory=2TB --effort 3 --search descent \
  -o long.plan 2>words || { cat words; fail "GPT-3 on a laptop"; }
grep -q '^a step takes 1152921504.607 ms or more (estimate)' words || { cat words; fail "a step that is too long"; }
grep -E '^ *(step|bound|floor|gap) .*-' words long.plan && fail "a time below zero"

# No plan is below the floor: on one rank of a laptop, which has both cores, it was above.
for ranks in 1 2; do
  "$dnnc" plan "a folder/small.dnn" B=4096 C=2048 F=2048 --cluster "$root/models/laptop.cluster" --ranks $ranks --effort 10 --json --quiet \
    >out.json || fail "floor"
  awk -v f="$(field floor_s out.json)" -v s="$(field step_s out.json)" 'BEGIN { exit !(f > s / 4 && f <= s) }' ||
    { cat out.json; fail "floor on $ranks ranks"; }
done

# JSON has the same step; the same input gives the same bytes.
small="$root/models/chargpt.dnn L=2 B=16"
"$dnnc" plan $small --cluster "$cluster" --ranks 4 --effort 60 --json --quiet >out.json || fail "JSON"
"$dnnc" plan $small --cluster "$cluster" --ranks 4 --effort 60 --quiet >a.plan || fail "a plan"
taskset -c 0 "$dnnc" plan $small --cluster "$cluster" --ranks 4 --effort 60 --quiet >b.plan || fail "on one processor"
cmp a.plan b.plan || fail "other bytes on one processor"
"$dnnc" simulate $small --plan a.plan --cluster "$cluster" --json >simulated.json || fail "simulate"
[ "$(field step_s simulated.json)" = "$(field step_s out.json)" ] || fail "another step than simulate"
[ "$(field candidates out.json)" -le 60 ] || fail "more plans than --effort"

# `search_s` is there, and is the search without front end, passes and judge: of a descent, which prices alone, it is little.
for search in elimination descent; do
  TIMEFORMAT='%U %S'
  { time "$dnnc" plan $small --cluster "$cluster" --ranks 4 --effort 60 --search $search --json --quiet >out.json; } 2>seconds ||
    fail "search_s of $search"
  awk -v s="$(field search_s out.json)" -v search=$search '{ exit !(s > 0 && s < (search == "descent" ? 0.2 : 0.9) * ($1 + $2)) }' seconds ||
    { cat out.json seconds; fail "search_s of $search"; }
done

# The space says whether operators were placed one by one: those of a model with loops are, those on four axes are not.
grep -q '^  space *= "operators and values over meshes' alexnet.plan || { cat alexnet.plan; fail "the space of units"; }
"$dnnc" plan "$root/models/gnmt8.dnn" --cluster "$root/models/h100x256.cluster" --ranks 2 --effort 4 --quiet >loop.plan || fail "a loop"
grep -q '^  space *= "operators and values over meshes' loop.plan || { cat loop.plan; fail "the space of a loop"; }
grep -q '^  restrictions = ".*whole_loops' loop.plan || { cat loop.plan; fail "the restriction of a loop"; }
printf 'mesh {\n  a = 2\n  b = 2\n  c = 2\n  d = 2\n}\nplan {\n  shard B over a\n}\n' >four_axes.plan
"$dnnc" plan "$root/models/mlp.dnn" --cluster "$root/models/h100x256.cluster" --ranks 16 --effort 4 --quiet --plan four_axes.plan \
  >axes.plan || fail "four axes"
grep -q '^  space *= "no operator placed by itself (the written mesh has more than three axes)' axes.plan ||
  { cat axes.plan; fail "the space of four axes"; }

# Searches have names.
for search in elimination descent; do
  "$dnnc" plan $small --cluster "$cluster" --ranks 4 --effort 60 --search $search --quiet >b.plan || fail "--search $search"
done
"$dnnc" plan $small --cluster "$cluster" --search guess 2>message >none && fail "an unknown search"
[ ! -s none ] && grep -q "error: --search has no 'guess'" message && grep -q 'help: there are elimination, stages, engine, descent' message ||
  { cat message; fail "an unknown search"; }

# Lines that change nothing are left out: without those about paths, if there are any, a step takes another time.
for ranks in 2 4; do
  "$dnnc" plan $small --cluster "$cluster" --ranks $ranks --effort 60 --quiet >full.plan || fail "a plan on $ranks ranks"
  grep -vE '^  (shard .*:|replicate )' full.plan >bare.plan
  cmp -s full.plan bare.plan || [ "$(step_of "${small% L=2 B=16}" full.plan L=2 B=16)" != "$(step_of "${small% L=2 B=16}" bare.plan L=2 B=16)" ] ||
    { cat full.plan; fail "lines that change nothing"; }
done
# A line that shards no dim of an operator replicates it, however it is written.
for line in 'shard block[0].mlp!dot[0]: B over none' 'replicate block[0].mlp!dot[0]' ''; do
  printf 'mesh { data = 4 }\nplan {\n  %s\n}\n' "$line" >operator.plan
  "$dnnc" simulate $small --plan operator.plan --cluster "$cluster" --json >simulated.json || fail "$line"
  field step_s simulated.json
done >steps
[ "$(sed -n 1p steps)" = "$(sed -n 2p steps)" ] && [ "$(sed -n 2p steps)" != "$(sed -n 3p steps)" ] ||
  { cat steps; fail "an operator that no dim shards"; }

# Written lines stay.
printf 'mesh {\n  outer = auto\n  inner = 2\n}\nplan {\n  zero = 1\n  shard F over inner\n}\n' >pins.plan
"$dnnc" plan $small --cluster "$cluster" --ranks 4 --effort 40 --plan pins.plan --microbatches 2 --quiet >kept.plan ||
  fail "pins"
for line in '  outer = 2' '  inner = 2' '  zero         = 1' '  microbatches = 2' '  shard F over inner'; do
  grep -qx "$line" kept.plan || { cat kept.plan; fail "lost '$line'"; }
done

# The ranks of a written mesh need not divide the batch, nor its written micro-batches those of a rank.
printf 'mesh {\n  outer = 2\n  inner = 2\n}\n' >mesh.plan
"$dnnc" plan "$root/models/chargpt.dnn" L=2 B=3 --cluster "$cluster" --effort 100 --plan mesh.plan --quiet >other.plan ||
  fail "a mesh that does not divide the batch"
printf 'mesh {\n  outer = 4\n}\nplan {\n  microbatches = 16\n}\n' >micro.plan
"$dnnc" plan $small --cluster "$cluster" --effort 100 --plan micro.plan --quiet >other.plan ||
  fail "micro-batches of one sample"
grep -qx '  microbatches = 16' other.plan || { cat other.plan; fail "micro-batches of one sample"; }
printf 'mesh {\n  outer = 4\n}\nplan {\n  microbatches = 16\n  shard F over outer\n}\n' >micro.plan
"$dnnc" plan $small --cluster "$cluster" --effort 100 --plan micro.plan --quiet >other.plan ||
  fail "a written line takes the axis from the batch"

# The text is that of a bundle, without lines for annotations, and leads to the step that was found.
sed -e 's/^layer block/@remat\nlayer block/' "$root/models/chargpt.dnn" >annotated.dnn
annotated="annotated.dnn L=3 B=16"
"$dnnc" plan $annotated --cluster "$cluster" --ranks 4 --effort 40 -o annotated.plan --json 2>words >out.json ||
  { cat words; fail "a model with annotations"; }
"$dnnc" build $annotated --plan annotated.plan -o annotated.bundle >/dev/null || fail "build"
sed '/^certificate {/,$d' annotated.plan | sed '$d' | cmp - annotated.bundle/plan.plan || fail "another text than a bundle has"
grep -q '^  remat' annotated.plan && { cat annotated.plan; fail "the annotation is repeated"; }
"$dnnc" simulate $annotated --plan annotated.plan --cluster "$cluster" --json >simulated.json || fail "simulate"
[ "$(field step_s simulated.json)" = "$(field step_s out.json)" ] || fail "annotations: another step than simulate"

# The certificate: no warning about the lines that the search wrote, one about another program, a note where a line is
# another one.  It names files from the folder of the plan, with the sizes of the command line.
[ ! -s words ] || grep -q warning words && { cat words; fail "warnings of the search"; }
"$dnnc" simulate $annotated --plan annotated.plan --cluster "$cluster" 2>message >/dev/null || fail "simulate"
[ ! -s message ] || { cat message; fail "a message about the lines of the search"; }
"$dnnc" simulate annotated.dnn L=2 B=16 --plan annotated.plan --cluster "$cluster" 2>message >/dev/null || fail "L=2"
grep -q "warning: the certificate is of another program than 'chargpt' is" message || { cat message; fail "another program"; }
sed 's/microbatches = 1/microbatches = 2/' annotated.plan >edited.plan
"$dnnc" simulate $annotated --plan edited.plan --cluster "$cluster" 2>message >/dev/null || fail "edited"
grep -q 'note: the certificate is of other lines' message || { cat message; fail "edited lines"; }
# Priced again, the step is that of the certificate; another step is found, and other lines are refused.
"$dnnc" verify $annotated --plan annotated.plan --cluster "$cluster" >words || { cat words; fail "verify"; }
grep -qx 'certificate: priced again, a step takes as long as it says' words || { cat words; fail "verify in words"; }
"$dnnc" verify $annotated --plan annotated.plan --cluster "$cluster" --json >out.json && [ "$(field certificate_ok out.json)" = true ] ||
  { cat out.json; fail "certificate_ok"; }
sed -E 's/^  step *= /&1/; /^  (bound|gap|search_gap|limit|weights|restrictions) /d' annotated.plan >slower.plan
"$dnnc" verify $annotated --plan slower.plan --cluster "$cluster" --json >out.json && fail "another step"
[ "$(field certificate_ok out.json)" = false ] && [ "$(field equal out.json)" = true ] &&
  grep -q '"certificate_fault":"a step takes [0-9.]* ms, not 1[0-9.]* ms"' out.json || { cat out.json; fail "another step"; }
# Behind a line about a path stands what it costs: half of 128 x 512 elements of 12 bytes for parameter and state, and what
# readers wait for.  Comments are no part of the lines, and plans that are read are printed with the same ones.
printf 'mesh { tensor = 2 }\nplan { shard block[0].mlp.w1: F over tensor }\n' >pin.plan
"$dnnc" plan $small --cluster "$cluster" --plan pin.plan --effort 4 --quiet -o priced.plan || fail "a plan with predictions"
grep -qx '  shard block\[0\].mlp.w1: F over tensor  # held 393.22 kB' priced.plan && grep -q '  # time [0-9.]* ms' priced.plan ||
  { cat priced.plan; fail "no predictions"; }
"$dnnc" plan $small --cluster "$cluster" --plan priced.plan --effort 1 --quiet -o again.plan || fail "predictions are read"
diff <(sed '/^certificate/,$d' priced.plan) <(sed '/^certificate/,$d' again.plan) || fail "other predictions"
"$dnnc" verify $small --plan priced.plan --cluster "$cluster" --certificate >alone || { cat alone; fail "a certificate of lines with predictions"; }
# A bound agrees with step, gaps, weights and restrictions.
grep -q '^  bound *= ' a.plan || { cat a.plan; fail "no bound"; }
grep -q '^  search_gap *= 0' a.plan || { cat a.plan; fail "no search gap"; }
"$dnnc" verify $small --plan a.plan --cluster "$cluster" >words || { cat words; fail "a plan with a bound"; }
# The certificate alone takes no play, and says so; a plan without one is no answer.
"$dnnc" verify $small --plan a.plan --cluster "$cluster" --certificate >alone || { cat alone; fail "the certificate alone"; }
grep -qx 'nothing was played: whether the plan computes what one rank does is not checked' alone && ! grep -q 'equal to one rank' alone &&
  grep -qx 'bound: computed again, no plan of its space that fits is faster' alone || { cat alone; fail "the certificate alone, in words"; }
"$dnnc" verify $small --plan a.plan --cluster "$cluster" --certificate --json >out.json && [ "$(field certificate_ok out.json)" = true ] &&
  [ "$(field played out.json)" = false ] && ! grep -q '"equal"' out.json || { cat out.json; fail "the certificate alone, as JSON"; }
sed 's/^  gap .*/  gap = 0.9999/' a.plan >claim.plan
"$dnnc" verify $small --plan claim.plan --cluster "$cluster" --certificate >alone && fail "a wrong certificate alone"
grep -qx 'certificate: the gap is not that of bound and step' alone || { cat alone; fail "a wrong certificate alone"; }
sed '/^certificate/,$d' a.plan >bare.plan
"$dnnc" verify $small --plan bare.plan --cluster "$cluster" --certificate >alone 2>message && fail "no certificate"
grep -q "error: 'bare.plan' has no certificate" message || { cat message; fail "no certificate"; }
for change in 's/^  bound .*/  bound = 100s/' 's/^  gap .*/  gap = 0.9999/' 's/^  search_gap .*/  search_gap = 0.9999/' 's/forward_stream [0-9]*/forward_stream 1/' \
  's/two_axes//' '/^  weights/d' '/^  restrictions/d'; do
  sed "$change" a.plan >claim.plan
  cmp -s a.plan claim.plan && fail "no change: $change"
  "$dnnc" verify $small --plan claim.plan --cluster "$cluster" --json >out.json && fail "verified: $change"
  [ "$(field certificate_ok out.json)" = false ] || { cat out.json; fail "not refused: $change"; }
done
grep -qx 'bound: computed again, no plan of its space that fits is faster' words || { cat words; fail "the bound is not computed again"; }
# A bound raised by 0.1 % with its gap is refused, and so is one that a pin raised if it does not say so; a lower one is a bound, too.
scale_bound() { awk -v by="$1" '$1 == "search_gap" { next } $1 == "step" { step = $3 + 0 } $1 == "bound" { unit = $3; gsub(/[0-9.]/, "", unit); $3 = sprintf("%.9f%s", bound = ($3 + 0) * by, unit) }
  $1 == "gap" { $3 = sprintf("%.17g", 1 - bound / step) } { print }' "$2"; }
scale_bound 1.001 a.plan >claim.plan
"$dnnc" verify $small --plan claim.plan --cluster "$cluster" --json >out.json && fail "a raised bound"
grep -q '"certificate_fault":"the bound is not one: plans of .* may take [0-9.]* ms, see .limit.' out.json || { cat out.json; fail "a raised bound"; }
scale_bound 0.9 a.plan >claim.plan
"$dnnc" verify $small --plan claim.plan --cluster "$cluster" >words || { cat words; fail "a lower bound"; }
"$dnnc" verify $annotated --plan edited.plan --cluster "$cluster" >words 2>message && fail "edited lines are verified"
[ ! -s words ] && grep -q "the certificate of 'edited.plan' is of other lines" message || { cat message; fail "edited lines"; }
"$dnnc" verify $annotated --plan edited.plan >words 2>message || { cat message; fail "edited lines without a cluster"; }
echo 'certificate { lines = "0" }' >alone.plan
"$dnnc" verify $annotated --plan alone.plan --cluster "$cluster" 2>message && fail "a certificate without a plan"
mkdir plans
"$dnnc" plan $annotated --cluster "$cluster" --ranks 4 --effort 4 -o plans/near.plan --quiet || fail "a plan elsewhere"
grep -qx '  model  *= "../annotated.dnn"' plans/near.plan && grep -qx '  sizes  *= "L=3 B=16"' plans/near.plan ||
  { cat plans/near.plan; fail "names of files"; }
"$dnnc" show plans/near.plan >shown || fail "show"
grep -q "^chargpt on 4 ranks of pipedream_a .*a step takes" shown || { cat shown; fail "the model of the certificate"; }
# So does a line that keeps values, also where computing them again would fit.
long="$root/models/chargpt.dnn L=8 B=16 T=128"
printf 'mesh { data = 4 }\nplan {\n  shard B over data\n  zero = 1\n  microbatches = 1\n  memory = 53MB\n}\n' >again.plan
sed 's/^}/  keep block\n}/' again.plan >stored.plan
"$dnnc" plan $long --cluster "$cluster" --effort 40 --plan again.plan --quiet >kept.plan 2>message ||
  { cat message; fail "blocks computed again"; }
"$dnnc" plan $long --cluster "$cluster" --effort 40 --plan stored.plan --quiet >kept.plan 2>message
[ $? = 2 ] || { cat kept.plan; fail "lost 'keep block'"; }

# Open axes are no mistake: 8 micro-batches of 4 samples, two axes of auto.
"$dnnc" plan $small --cluster "$cluster" --ranks 4 --effort 60 --microbatches 8 --quiet >open.plan 2>message ||
  { cat message; fail "micro-batches for other axes"; }
grep -qx '  microbatches = 8' open.plan || { cat open.plan; fail "8 micro-batches"; }
printf 'mesh {\n  a = auto\n  b = auto\n}\n' >open_mesh.plan
"$dnnc" plan $small --cluster "$cluster" --ranks 4 --effort 60 --plan open_mesh.plan --quiet >open.plan 2>message ||
  { cat message; fail "two open axes"; }

# Nothing fits: the bytes, and exit 2.
"$dnnc" plan $small --cluster "$cluster" --ranks 2 --effort 40 --what-if memory=1MB >none 2>message
[ $? = 2 ] && [ ! -s none ] && grep -q 'none of [0-9]* plans fits: the smallest needs .* are missing' message ||
  { cat none message; fail "no plan"; }
# A pin that no plan can have: its mistake.
printf 'mesh {\n  a = 2\n  b = 2\n}\nplan {\n  shard B over a\n  shard F over b\n  shard block[0].mlp.gelu: F over (b, a), B over a\n}\n' >wrong.plan
"$dnnc" plan $small --cluster "$cluster" --plan wrong.plan 2>message >none && fail "a wrong pin"
[ ! -s none ] && grep -q "error: " message || { cat message; fail "a wrong pin"; }
"$dnnc" plan $small 2>message && fail "no cluster"
grep -q 'what a step costs depends on the machines' message || { cat message; fail "no cluster"; }

# A signal (bash ignores SIGINT behind &): the best plan so far.  A busy machine needs longer for the first one.
for seconds in 2 10 40; do
  "$dnnc" plan "$root/models/gpt3.dnn" L=24 --cluster "$root/models/a100x1024.cluster" --ranks 64 --search descent >stopped.plan 2>message &
  pid=$!
  sleep $seconds
  kill -TERM $pid
  wait $pid
  code=$?
  [ $code = 143 ] || { cat message; fail "the exit code after a signal: $code"; }
  grep -q 'search was stopped' message || { cat message; fail "nothing says that the search was stopped"; }
  grep -q '^plan gpt2 {$' stopped.plan && break
  grep -qE 'stopped before it had priced a plan|none of [0-9]* plans fits' message || { cat message; fail "a message after a signal"; }
done
grep -q '^plan gpt2 {$' stopped.plan || { cat stopped.plan; fail "no plan after a signal"; }
# The first one is answered at once although a price takes seconds, and a second one does not wait for that price.  A quick machine may
# be done with it before.
for seconds in 2 5 10 20 40; do
  "$dnnc" plan "$root/models/gpt3.dnn" --cluster "$root/models/h100x256.cluster" --search stages -o twice.plan >message 2>&1 &
  pid=$!
  sleep $seconds
  kill -TERM $pid
  sleep 0.5
  kill -TERM $pid 2>/dev/null
  wait $pid
  code=$?
  [ $code = 143 ] || { cat message; fail "a second signal: exit code $code"; }
  [ "$(grep -c 'again: at once' message)" = 1 ] && ! grep -q 'search was stopped' message && break
done
[ "$(grep -c 'again: at once' message)" = 1 ] || { cat message; fail "nothing says that a signal has come"; }
! grep -q 'search was stopped' message || { cat message; fail "a second signal does not end the search"; }
