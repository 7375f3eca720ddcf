#!/bin/bash
# Every plan resumes what every other one saved: one rank, replicas, shards of
# tensors, ZeRO 3, two and four stages that share a table, four on two groups of two
# replicas, two with meshes of their own.  Parameters and optimizer state have the bits that were saved, and the next
# loss is that of the plan that saved, to 1e-6.  Usage: stage_resume.sh DNNC [WORD]:
# what plans saved whose name has the word.
. "$(dirname "$0")/lib.sh"
has_mpi || skip "no mpirun"
word=${2:-}
export OMP_NUM_THREADS=1
plans='one data tensor zero two four virtual unequal'

printf 'mesh { }\n' >one.plan
printf 'mesh { data = 2 }\n' >data.plan
printf 'mesh { tensor = 2 }\nplan { shard H, F over tensor }\n' >tensor.plan
printf 'mesh { data = 2 }\nplan { zero = 3\n microbatches = 2 }\n' >zero.plan
printf 'mesh { pipe = 2 }\nplan { microbatches = 4\n cut after block[1] }\n' >two.plan
printf 'mesh { pipe = 4 }\nplan { microbatches = 2\n cut after block[0]\n cut after block[1]\n cut after block[2] }\n' >four.plan
{
  printf 'mesh { pipe = 2; data = 2 }\nplan { microbatches = 2\n schedule = interleaved(v = 2)\n'
  printf ' cut after block[%d]\n' 0 1 2
  echo '}'
} >virtual.plan
printf 'plan { microbatches = 2\n zero = 1\n shard H, F over tensor\n %s\n %s }\n' \
  'stage 0: wte, wpe, block[0..2] on 0..3 as (tensor = 2, data = 2)' 'stage 1: block[3], norm on 4..5 as (data = 2)' \
  >unequal.plan

build() { # bundle, plan, overrides
  "$dnnc" build "$root/benchmarks/systems/gpt.dnn" L=4 "${@:3}" --quick --plan "$2.plan" --quiet -o "$1" 2>err ||
    { cat err; fail "$2 is not built"; }
}

# train FOLDER BUNDLE ARGUMENTS...: prints the loss of step 6.
train() {
  (cd "$1" && "../$2/run" --json "${@:3}") >out 2>err </dev/null || { cat err; fail "$2 in $1"; }
  sed -n 's/^{"step":6,"loss":\([^,]*\),.*/\1/p' out
}
# hashes FILE...: name and hash of each tensor of a checkpoint.
hashes() { grep -aoh '"xxh3:[^,}]*' "$@" | sort; }

# A step of a bundle `still` changes nothing: its rate is 0, the factors of the
# moments are 1 in f32, and what it adds to them is below 1e-38.  So what it saves is
# what it loaded.
for plan in $plans; do
  build "$plan.bundle" "$plan"
  build "$plan.still" "$plan" 'optimizer=adamw(lr=0, betas=(0.999999999, 0.999999999))' clip=1e-38
done

cells=0
for from in $plans; do
  case $from in *$word*) ;; *) continue ;; esac
  mkdir "$from"
  train "$from" "$from.bundle" --steps 5
  cp -r "$from" "$from.on"
  loss=$(train "$from.on" "$from.bundle" --steps 6 --resume)
  for to in $plans; do
    cp -r "$from" cell
    is=$(train cell "$to.still" --steps 6 --resume)
    close "$is" "$loss" 1e-6 || fail "$to resumes $from: loss $is, not $loss"
    hashes cell/*/step-00000005/*.safetensors >saved
    hashes cell/*/step-00000006/*.safetensors >loaded
    [ "$(grep -c adamw.v/ saved)" -gt 10 ] || fail "$from saves no moments"
    cmp -s saved loaded || { diff saved loaded; fail "$to resumes $from: other bits"; }
    rm -rf cell
    cells=$((cells + 1))
  done
done
[ $cells -gt 0 ] || fail "no plan has '$word'"
