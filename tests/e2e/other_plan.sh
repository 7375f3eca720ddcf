#!/bin/bash
# A plan for another net is an error in every command that takes a plan, before
# anything is compiled, measured or said of it; a plan without a name fits.
. "$(dirname "$0")/lib.sh"
cp "$root/models/chargpt.dnn" .
printf 'cluster two {\n device = one_core\n level node { count = 4; link = 100MB/s; latency = 50us }\n}\n' >two.cluster
printf 'device one_core { base = cpu; memory = 1GiB }\n' >>two.cluster
lines='{\n  shard H, F, V over tensor\n}\n'
# shellcheck disable=SC2059
{
  printf "mesh { tensor = 2 }\nplan other $lines" >other.plan
  printf "mesh { tensor = 2 }\nplan $lines" >any.plan
  printf "mesh { tensor = 2 }\nplan chargpt $lines" >own.plan
}
refuse() {
  timeout 60 "$dnnc" "$@" >out 2>err
  local code=$?
  [ $code = 1 ] && [ ! -s out ] || { cat out err; fail "$*: exit $code"; }
  grep -q "^other.plan:2:6: error: this plan is for 'other', not for 'chargpt'$" err ||
    { cat err; fail "$*: message"; }
}
for words in build run verify simulate ir predict eval sample tune; do
  case $words in
  simulate) refuse simulate chargpt.dnn --plan other.plan --cluster two.cluster ;;
  predict) refuse predict chargpt.dnn --plan other.plan --load x -o x.npy ;;
  eval | sample) refuse $words chargpt.dnn --plan other.plan --load x ;;
  *) refuse $words chargpt.dnn --plan other.plan ;;
  esac
done
refuse tune chargpt.dnn --hold-out other.plan
refuse show other.plan --model chargpt.dnn
refuse show other.plan --model chargpt.dnn --cluster two.cluster
refuse diff any.plan other.plan --model chargpt.dnn --cluster two.cluster
for plan in any own; do
  "$dnnc" show $plan.plan --model chargpt.dnn >$plan.out 2>err || { cat err; fail "$plan.plan"; }
done
cmp any.out own.out || fail "a name changes the plan"

# A model may have plans of its other nets, and of no others.
cat >two_nets.dnn <<'END'
dim B = 4, C = 3
net f(x: [B, C]) -> [B, C] { return 2 * x }
net g(x: [B, C]) -> [B, C] { return 3 * x }
data set { x: [B, C] = synthetic(records = 32) }
plan g { shard B over data }
END
"$dnnc" ir two_nets.dnn --net f >out 2>err || { cat err; fail "a plan of another net of the model"; }
sed -i 's/plan g/plan h/' two_nets.dnn
"$dnnc" ir two_nets.dnn --net f >out 2>err && fail "a plan of no net of the model"
grep -q "^two_nets.dnn:5:6: error: this plan is for 'h', not for 'f'$" err || { cat err; fail "its message"; }
exit 0
