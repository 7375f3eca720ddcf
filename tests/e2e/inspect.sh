#!/bin/bash
# What a plan costs, looked at from all sides: on a changed cluster (--what-if),
# as a timeline (--trace), by path, by line and as a page (show), and as the
# difference of two plans (diff).
. "$(dirname "$0")/lib.sh"
plans=$root/benchmarks/plans systems=$root/benchmarks/systems
printf 'cluster two {\n device = one_core\n level node { count = 4; link = 100MB/s; latency = 50us }\n}\n' >two.cluster
printf 'device one_core { base = cpu; memory = 1GiB }\n' >>two.cluster

wrong() { # MESSAGE COMMAND...
  local message=$1
  shift
  "$@" >out 2>message && fail "'$*' ends well"
  grep -q -- "$message" message || { cat message; fail "'$*'"; }
}

# ---- --what-if ----
price() { "$dnnc" simulate "$systems/mlp.dnn" --plan "$plans/data.plan" --cluster two.cluster "$@"; }
step() { price --json "$@" >out.json || fail "simulate $*"; field step_s out.json; }
before=$(step) faster=$(step --what-if link.node=2x) slower=$(step --what-if link.node=0.5x)
awk -v a="$faster" -v b="$before" -v c="$slower" 'BEGIN { exit !(a < b && b < c) }' ||
  fail "links: $faster $before $slower"
[ "$(step --what-if link.node=100MB/s)" = "$before" ] || fail "the same value"
[ "$(step --what-if link.node=2x --what-if link.node=0.5x)" = "$before" ] || fail "there and back"
[ "$(step --what-if latency.node=0s)" != "$before" ] || fail "latency"
sed -i 's/100MB/200MB/' two.cluster
[ "$(step)" = "$faster" ] || fail "a factor is not what the file would say"
sed -i 's/200MB/100MB/' two.cluster
[ "$(step --what-if flops=2x)" != "$before" ] || fail "flops"
[ "$(step --what-if flops.f32=200T)" != "$before" ] || fail "flops of a dtype"
[ "$(step --what-if bandwidth=2x)" != "$before" ] || fail "bandwidth"
step --what-if memory=1KB >/dev/null
[ "$(field fits out.json)" = false ] || fail "memory"
wrong "has no level 'rack'" price --what-if link.rack=2x
wrong "help: its levels are node" price --what-if link.rack=2x
wrong "names no level" price --what-if latency=2x
wrong "nothing is called 'speed'" price --what-if speed=2x
wrong "it changes one of link.LEVEL, latency.LEVEL, flops, flops.DTYPE, memory" price --what-if speed=2x
wrong "a device has a rate for each dtype" price --what-if flops=3T
wrong "no device of cluster 'two' has it" price --what-if host_link=2x
wrong "'2' is no value" price --what-if memory=2
wrong "as in 5us" price --what-if latency.node=5GB/s
wrong "'0x' is no value" price --what-if link.node=0x
wrong "'0.0000001x' is no value" price --what-if link.node=0.0000001x
wrong "is too large" price --what-if memory=9999999999x
wrong "leaves nothing" price --what-if cores=0.1x
wrong "takes NAME=VALUE, not 'memory'" price --what-if memory
wrong "takes NAME=VALUE, not '=2x'" price --what-if =2x

# ---- --trace: the stream has no gap, and its events add up to the step ----
for pair in mlp:data mlp:zero3_microbatches gpt:sequence_zero3; do
  "$dnnc" simulate "$systems/${pair%:*}.dnn" --plan "$plans/${pair#*:}.plan" \
    --cluster two.cluster --trace step.json --json >out.json || fail "a trace of $pair"
  python3 - "$pair" <<'END' || fail "the trace of $pair"
import json, sys
events = json.load(open("step.json"), parse_float=lambda text: int(text.replace(".", "")))["traceEvents"]
step = round(json.load(open("out.json"))["step_s"] * 1e12)
slices = [e for e in events if e["ph"] == "X"]
tracks = {}
for e in slices:
    tracks.setdefault(e["tid"], []).append((e["ts"], e["dur"]))
at = 0
for begin, length in tracks[0]:
    assert begin == at and length > 0, (begin, at)
    at += length
assert at == step, (at, step)
for tid, spans in tracks.items():
    spans.sort()
    for (begin, length), after in zip(spans, spans[1:]):
        assert begin + length <= after[0], f"track {tid} overlaps"
names = {e["tid"]: e["args"]["name"] for e in events if e.get("name") == "thread_name"}
assert names[0] == "stream" and len(tracks) > 1 and set(tracks) <= set(names)
assert any(e["name"].startswith("wait: ") for e in slices)
END
done
wrong "cannot" price --trace nowhere/step.json
echo "inspect: timelines"
