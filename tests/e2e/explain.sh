#!/bin/bash
# `dnnc explain` says what a plan decides and what each alternative loses: its losses
# are those of the plans that `dnnc plan` finds with the alternative as a pin.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"
cp "$root/models/chargpt.dnn" "$root/models/pipedream-a.cluster" .
small="chargpt.dnn L=2 B=16"
"$dnnc" plan $small --cluster pipedream-a.cluster --ranks 4 --effort 60 -o found.plan --quiet || fail "a plan"
printf 'mesh {\n  data = 2\n  tensor = 2\n}\nplan {\n  zero = 1\n  shard F, H over tensor\n}\n' >written.plan
"$dnnc" simulate $small --plan written.plan --cluster pipedream-a.cluster --json >simulated.json || fail "simulate"

# Each alternative that was searched is what `dnnc plan` finds with its pin.
cat >losses.py <<'END'
import json, subprocess, sys
dnnc, model, path = sys.argv[1], sys.argv[2].split(), sys.argv[3]
report = json.load(open("explained.json"))
searched = [one for one in report["alternatives"] if one["searched"]]
assert len(searched) == int(sys.argv[4]), searched
for one in searched:
    open("pin.plan", "w").write(one["pins"])
    found = subprocess.run([dnnc, "plan", *model, "--cluster", "pipedream-a.cluster", "--ranks", "4",
                            "--effort", str(report["effort"]), "--plan", "pin.plan", "--json", "--quiet"],
                           capture_output=True, text=True)
    if "step_s" not in one:
        assert found.returncode != 0, one
        continue
    step = json.loads(found.stdout)["step_s"]
    assert step == one["step_s"], (one["pin"], step, one["step_s"])
    assert abs(one["loss_s"] - (step - report["step_s"])) < 1e-11, one
steps = [one.get("step_s", float("inf")) for one in report["alternatives"]]
assert steps == sorted(steps), steps
print(f"{path}: " + ", ".join(f"{one['pin']} {one.get('loss_s', 0) * 1e3:+.3f} ms" for one in searched))
END
explain() { # PATH LINES
  "$dnnc" explain $small "$1" --plan written.plan --cluster pipedream-a.cluster --effort 30 --lines "$2" --json \
    >explained.json 2>err.txt || { cat err.txt; fail "explain $1"; }
  python3 losses.py "$dnnc" "$small" "$1" "$2" || { cut -c1-2000 explained.json; fail "losses of $1"; }
  [ "$(field step_s simulated.json)" = "$(grep -o '"step_s":[^,]*' explained.json | head -n 1 | cut -d: -f2)" ] ||
    fail "$1: the step of the plan"
}
explain zero 3
explain mesh 2
explain F 2
explain 'block[0].attn.q' 2
explain 'block.mlp!dot[0]' 2

# A line changed alone is what `simulate` prices.
explain zero 0
changed=$(grep -o '"pin":"zero = 3".*' explained.json | grep -o '"changed_step_s":[^,]*' | head -n 1 | cut -d: -f2)
sed 's/zero = 1/zero = 3/' written.plan >zero3.plan
"$dnnc" simulate $small --plan zero3.plan --cluster pipedream-a.cluster --json >simulated.json || fail "simulate zero 3"
[ "$changed" = "$(field step_s simulated.json)" ] || fail "zero = 3 in this plan: $changed"

# The decision of the plan, whose certificate names its cluster.
"$dnnc" explain $small 'block[0].attn.wq' --plan written.plan --cluster pipedream-a.cluster --lines 1 --effort 20 >words ||
  fail "a parameter"
grep -qx 'block\[0\].attn.wq: f32\[C:128@data, H:4@tensor, D:32\]' words &&
  grep -q '^\* shard block\[0\].attn.wq: H over tensor .* ms ' words && grep -q '^  update ' words ||
  { cat words; fail "a parameter"; }
"$dnnc" explain $small block --plan written.plan --cluster pipedream-a.cluster --lines 0 >words || fail "a layer"
grep -q '^  remat block .* not searched$' words && grep -q '^  all_reduce over tensor  *forward  *4 ' words ||
  { cat words; fail "a layer"; }
"$dnnc" explain $small microbatches --plan found.plan --lines 1 --effort 20 >words || fail "the cluster of the certificate"
grep -q '^\* microbatches = 1 ' words || { cat words; fail "micro-batches"; }

# Mistakes.
"$dnnc" explain $small 'block[0].atn.q' --plan found.plan >none 2>message && fail "no such path"
[ ! -s none ] && grep -q "^command line:1:1: error: nothing of 'chargpt' is called 'block\[0\].atn.q'$" message &&
  grep -q "^help: did you mean 'block\[0\].attn.q'?$" message || { cat message; fail "no such path"; }
"$dnnc" explain $small zero --cluster pipedream-a.cluster 2>message && fail "no plan"
grep -q "name it with --plan FILE" message || { cat message; fail "no plan"; }
"$dnnc" explain chargpt.dnn 2>message && fail "no path"
grep -q "'dnnc explain' needs a model and a path" message || { cat message; fail "no path"; }

# A path of a plan with stages is priced on the ranks of its stage, which the words
# name; so are messages.  Schedules are alternatives.
staged="$root/benchmarks/systems/gpt.dnn"
in_stage() { # PATH TEXT
  "$dnnc" explain "$staged" "$1" --plan "$root/benchmarks/plans/pipe_gpt.plan" --lines 0 \
    --cluster "$root/models/h100x256.cluster" >words 2>message || { cat message; fail "explain $1 in a stage"; }
  grep -q "$2" words || { cat words; fail "explain $1: no '$2'"; }
}
in_stage 'block[0].mlp.dot[0]' '^block\[0\].mlp.dot\[0\]: stage 0 on rank 0; dot f32'
grep -q '^  dgrad  *0\.[0-9]*[1-9]' words || { cat words; fail "no time in the first stage"; }
in_stage 'block[1].mlp.dot[0]' ': stage 1 on rank 1; dot f32'
grep -q '^  dgrad  *0\.[0-9]*[1-9]' words || { cat words; fail "no time in the last stage"; }
in_stage schedule '^schedule: schedule = 1f1b, 2 stages$'
grep -q '^  schedule = gpipe ' words && grep -q '^\* schedule = 1f1b ' words || { cat words; fail "no other schedules"; }

# ---- settings of stages ----
in_stage cuts '^cuts: cut after block\[0\]$'
in_stage bubble '^bubble: the slowest ranks wait [0-9.]* % of a step for other stages$'
in_stage stages '^stages: 2 stages on 2 groups of ranks$'
priced() { # KEY PLAN: what `simulate` says of a plan
  "$dnnc" simulate "$staged" --plan "$2" --cluster pipedream-a.cluster --json >simulated.json 2>message ||
    { cat message; fail "simulate $2"; }
  field "$1" simulated.json
}
of_stages() { # SUBJECT LINES
  "$dnnc" explain "$staged" "$1" --plan cut.plan --cluster pipedream-a.cluster --effort 30 --lines "$2" --json \
    >explained.json 2>message || { cat message; fail "explain $1"; }
}
printf 'mesh { pipe = 2 }\nplan {\n  schedule = 1f1b\n  microbatches = 4\n  cut after block[0]\n}\n' >cut.plan
of_stages cuts 0
# Each other cut is priced as `simulate` prices the plan with it, and so are plans of the search; an estimate is called
# one.  What ranks do and wait for is a step.
cat >stages.py <<'END'
import json, subprocess, sys
dnnc, model, kind = sys.argv[1:4]
report = json.load(open("explained.json"))
def step_of(text):
    open("other.plan", "w").write(text)
    out = subprocess.run([dnnc, "simulate", model, "--plan", "other.plan", "--cluster", "pipedream-a.cluster", "--json"],
                         capture_output=True, text=True)
    return json.loads(out.stdout)["step_s"]
assert abs(report["step_s"] - step_of(open("cut.plan").read())) < 1e-12
for row in report["classes"]:
    parts = row["kernels_s"] + row["transfers_s"] + row["warm_up_s"] + row["steady_s"] + row["drain_s"]
    assert abs(parts - row["step_s"]) < 1e-12, row
    assert abs(row["warm_up_s"] + row["steady_s"] + row["drain_s"] - row["bubble"] * row["step_s"]) < 1e-9, row
assert [row["stages"] for row in report["classes"]] == [[0], [1]], report["classes"]
n = 0
for one in report["alternatives"]:
    if kind == "cuts":
        new, old = one["pin"].split(", not ")
        assert old == "block[0]", one
        step = step_of(open("cut.plan").read().replace("cut after block[0]", new))
        assert abs(step - one["changed_step_s"]) < 1e-12, (one, step)
        assert abs(one["changed_loss_s"] - (step - report["step_s"])) < 1e-12, one
        n += 1
    elif "step_s" in one:
        assert one["priced_by"] in ("simulator", "estimate"), one
        assert abs(one["loss_s"] - (one["step_s"] - report["step_s"])) < 1e-12, one
        if one["priced_by"] == "simulator":
            assert abs(step_of(one["plan"]) - one["step_s"]) < 1e-12, one
            n += 1
print(f"{kind}: {n} of {len(report['alternatives'])} alternatives were priced")
if kind == "stages":
    assert [one["pin"] for one in report["alternatives"]].count("no stages") == 1, report["alternatives"]
    assert any(one["pin"] == "2 groups of ranks" for one in report["alternatives"]), report["alternatives"]
assert n >= 2 and (kind != "schedule" or sum("step_s" in one for one in report["alternatives"]) > 8), n
END
python3 stages.py "$dnnc" "$staged" cuts || { cut -c1-3000 explained.json; fail "cuts"; }
of_stages stages 2
python3 stages.py "$dnnc" "$staged" stages || { cut -c1-3000 explained.json; fail "numbers of stages"; }
of_stages schedule 3
python3 stages.py "$dnnc" "$staged" schedule || { cut -c1-3000 explained.json; fail "schedules"; }
# Lines `stage` end elsewhere likewise, and each is the plan with this cut; branches on other ranks have no other cuts.
printf 'plan {\n  schedule = 1f1b\n  microbatches = 4\n  stage 0: wte, wpe, block[0] on 0\n  stage 1: block[1], norm on 1\n}\n' >cut.plan
of_stages cuts 0
python3 - "$dnnc" "$staged" <<'END' || { cut -c1-3000 explained.json; fail "lines 'stage'"; }
import json, re, subprocess, sys
report = json.load(open("explained.json"))
for one in report["alternatives"]:
    new = re.fullmatch(r"stage 0 ends after (.*), not (.*)", one["pin"])[1]
    open("other.plan", "w").write("mesh { pipe = 2 }\nplan {\n  schedule = 1f1b\n  microbatches = 4\n  cut after %s\n}\n" % new)
    out = subprocess.run([sys.argv[1], "simulate", sys.argv[2], "--plan", "other.plan", "--cluster", "pipedream-a.cluster", "--json"],
                         capture_output=True, text=True)
    assert abs(json.loads(out.stdout)["step_s"] - one["changed_step_s"]) < 1e-12, (one, out.stdout[:200])
assert len(report["alternatives"]) == 2, report["alternatives"]
END
printf 'plan {\n  microbatches = 2\n  place block[0] on 1\n}\n' >place.plan
"$dnnc" explain "$staged" cuts --plan place.plan --cluster pipedream-a.cluster >words 2>message || { cat message; fail "lines 'place'"; }
grep -q "^other cuts of a plan with lines 'place' are not supported yet" words || { cat words; fail "lines 'place'"; }
"$dnnc" explain "$staged" bubble --plan "$root/benchmarks/plans/tensor.plan" --cluster pipedream-a.cluster >words || fail "no stages"
grep -qx 'bubble: there is one stage' words || { cat words; fail "one stage"; }
exit 0
