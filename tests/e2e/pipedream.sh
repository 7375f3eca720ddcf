#!/bin/bash
# bench_pipedream: messages about options and profiles, small profiles whose best plan is known,
# a graph with too many antichains, and PipeDream's own profiles.
. "$(dirname "$0")/lib.sh"
bench="$(dirname "$dnnc")/bench_pipedream"
[ -x "$bench" ] || skip "needs bench_pipedream of a build"

# node NUMBER NAME FORWARD BACKWARD ACTIVATION PARAMETERS
node() {
  printf 'node%s -- %s -- forward_compute_time=%s, backward_compute_time=%s, activation_size=%s, parameter_size=%s\n' "$@"
}
edge() { printf '\tnode%s -- node%s\n' "$@"; }
# refused LINE MESSAGE: the profile on standard input is refused with this.
refused() {
  cat >graph
  "$bench" graph --machines 2 --bandwidth 1e9 >out 2>err
  [ $? = 1 ] && [ ! -s out ] || { cat graph out; fail "the profile is not refused: $2"; }
  [ "$(cat err)" = "graph$1: error: $2" ] || { cat graph err; fail "not refused for: $2"; }
}
refused "" "the profile has no node but inputs" <<<""
refused "" "the profile has no node but inputs" < <(node 1 Input0 1 0 0 0)
refused "" "no node takes any time" < <(node 1 View 0 0 1 1)
refused :1 "expected 'ID -- DESCRIPTION -- TIMES AND SIZES', or an edge after a tab" <<<"node1 -- Linear"
refused :2 "'nod2' is not node and a number" < <(node 1 Linear 1 1 1 1; node 2 Linear 1 1 1 1 | sed s/node/nod/)
refused :1 "forward_compute_time: '1.x' is not a number" < <(node 1 Linear 1.x 1 1 1)
refused :1 "backward_compute_time: -1 is not between 0 and 1e+07" < <(node 1 Linear 1 -1 1 1)
refused :1 "activation_size: 'nan' is not a number" < <(node 1 Linear 1 1 nan 1)
refused :1 "activation_size: the list has no ']'" < <(node 1 Linear 1 1 '[1; 2' 1)
refused :1 "activation_size: '' is not a number" < <(node 1 Linear 1 1 '[]' 1)
refused :1 "activation_size: ' ' is not a number" < <(node 1 Linear 1 1 '[1;  ; 2]' 1)
refused :1 "parameter_size: 1e+15 is not between 0 and 1e+14" < <(node 1 Linear 1 1 1 1e15)
refused :1 "expected 'parameter_size=' at 'size=1'" < <(node 1 Linear 1 1 1 1 | sed s/parameter_//)
refused :1 "expected 'parameter_size=' at ''" < <(node 1 Linear 1 1 1 1 | sed 's/, parameter.*//')
refused :1 "unexpected 'more=1'" < <(node 1 Linear 1 1 1 '1, more=1')
refused :3 "node1 is also on line 1" < <(node 1 Linear 1 1 1 1; node 2 Linear 1 1 1 1; node 1 ReLU 1 1 1 1)
refused :2 "no line above describes the node 'node3'" < <(node 1 Linear 1 1 1 1; edge 1 3)
refused :2 "expected 'ID -- ID' after the tab" < <(node 1 Linear 1 1 1 1; printf '\tnode1\n')
refused :4 "this edge is there already" < <(node 1 A 1 1 1 1; node 2 B 1 1 1 1; edge 1 2; edge 1 2)
refused :2 "node1 is part of a circle of edges" < <(node 1 A 1 1 1 1; edge 1 1)
refused :6 "node2 is part of a circle of edges" < <(for n in 1 2 3; do node $n A 1 1 1 1; done; edge 1 2; edge 3 2; edge 2 3)
refused :2 "a byte is 0: this is no text" < <(node 1 A 1 1 1 1; printf 'x\0\n')

node 1 Linear 1 1 1 1 >graph
wrong() { # MESSAGE OPTIONS
  "$bench" "${@:2}" >out 2>err
  [ $? = 1 ] && [ "$(head -n 1 err)" = "$1" ] || { cat out err; fail "options: $1"; }
}
wrong "usage: bench_pipedream FILE --machines N [N ...] --bandwidth B [B ...]"
wrong "usage: bench_pipedream FILE --machines N [N ...] --bandwidth B [B ...]" graph
wrong "error: --machines has 2 numbers, --bandwidth has 1" graph --machines 2 2 --bandwidth 1e9
wrong "error: --machines takes numbers from 1 to 1024: '0'" graph --machines 0 --bandwidth 1e9
wrong "error: --bandwidth takes bytes a second, from 1 to 1e18: 'fast'" graph --machines 2 --bandwidth fast
wrong "error: --sync takes sum4, sum2 or max: 'sum3'" graph --machines 2 --bandwidth 1e9 --sync sum3
wrong "error: unknown option: '--jsn'" graph --machines 2 --bandwidth 1e9 --jsn
wrong "error: a value is missing: '--bandwidth'" graph --machines 2 --bandwidth --json
wrong "error: a value is missing: '--sync'" graph --machines 2 --bandwidth 1e9 --sync
wrong "error: there is one FILE: 'other'" graph --sync max other --machines 2 --bandwidth 1e9
wrong "error: there are at most 4 levels of machines: '2'" graph --machines 2 2 2 2 2 --bandwidth 1e9
"$bench" none --machines 2 --bandwidth 1e9 2>err && fail "a file that is not there"
grep -q "none" err || { cat err; fail "the file is not named"; }

# A large layer of few parameters, then many parameters: 3-1 at 1 GB/s.  The input, and the part
# of a result that nothing reads, take 1 s and are no part of it; the list is summed.
{
  node 9 "Input" 1000 0 1e9 0
  node 1 "Conv2d(3, 64, kernel_size=(3, 3))" 100 200 '[600000.0; 400000.0]' 0.0
  node 2 "Linear(a=1)" 30 70 4000 1e9
  node 3 "__getitem__(1)" 1000 0 1 1
  edge 9 1
  edge 1 2
  edge 2 3
} >chain
"$bench" chain --machines 4 --bandwidth 1e9 >out || fail "a chain"
diff out - <<'END' || fail "the text of a chain"
chain: 2 nodes, 2 states, 400.000 ms on one machine
4 machines at 1 GB/s, sync max: 3-1
stage    replicas  nodes  compute ms   sync ms  receive ms   send ms   cost ms
0               3      1     100.000     0.000       0.000     0.000   100.000
cut after node1 Conv2d(3, 64, kernel_size=(3, 3)): 1.000 MB
1               1      1     100.000     0.000       2.000     0.000   100.000
100.000 ms a minibatch, 4.00 x one machine, 3.75 x data parallelism (375.000 ms)
END
"$bench" chain --json --machines 2 2 --bandwidth 4e9 1e9 --sync sum4 >out || fail "levels"
# The last layer on two devices: (100 ms + 4 / 2 * 1 GB / 4 GB/s) / 2.
diff <(python3 -c 'import json, sys
plan = json.load(sys.stdin)
print(plan["plan"], round(plan["minibatch_s"] * 1e3, 6), plan["states"], plan["sync"], plan["machines"], plan["bandwidth"])
print([(s["replicas"], s["nodes"], s["sends"], s["send_bytes"], [t["replicas"] for t in s["stages"]]) for s in plan["stages"]])' <out) - <<'END' || fail "the JSON of levels"
2 | 2 300.0 2 sum4 [2, 2] [4000000000.0, 1000000000.0]
[(1, ['node1'], ['node1'], 1000000, [2]), (1, ['node2'], [], 0, [2])]
END

# Four branches of 14 layers have 50,000 antichains.
{
  for n in $(seq 1 58); do node "$n" Conv2d 1 2 1000 10; done
  for branch in 0 1 2 3; do
    edge 1 $((14 * branch + 2))
    for n in $(seq $((14 * branch + 2)) $((14 * branch + 14))); do edge "$n" $((n + 1)); done
    edge $((14 * branch + 15)) 58
  done
} >wide
"$bench" wide --machines 8 --bandwidth 1e9 --sync sum4 >out || fail "too many antichains"
grep -qx "too many antichains (more than 20000): cut at 1 single tensors; of 2 pieces, 1 branch by branch, 0 of these node by node" out &&
  grep -q "^wide: 58 nodes, 58 states" out || { cat out; fail "the cuts of many antichains"; }

profiles=$root/../shared/data/pipedream
[ -r "$profiles/vgg16/graph.txt" ] || skip "the rest needs PipeDream's profiles in ../shared/data/pipedream"
python3 "$root/benchmarks/pipedream.py" "$bench" "$profiles" >table || { cat table; fail "PipeDream's objectives"; }
cat table
