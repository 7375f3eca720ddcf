#!/bin/bash
# Files that a command writes: a pipe and a device are written into, a link stays
# and its target is replaced, a full device is an error, and a folder that is not
# there is found before the work begins.  Devices are reached through links, so
# that a fault here cannot remove those of the machine.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
systems=$root/benchmarks/systems plan=$root/benchmarks/plans/data.plan
printf 'cluster two {\n device = one_core\n level node { count = 4; link = 100MB/s; latency = 50us }\n}\n' >two.cluster
printf 'device one_core { base = cpu; memory = 1GiB }\n' >>two.cluster
show() { "$dnnc" show "$plan" --model "$systems/mlp.dnn" --cluster two.cluster --lines 1 "$@"; }

# ---- links, pipes and devices ----
mkdir there
for option in --html --dot --trace; do
  show $option plain >tables 2>err || { cat err; fail "$option"; }
  for turn in "a link that leads nowhere" "a link to a file"; do
    ln -sf there/target link
    show $option link >out || fail "$option through $turn"
    [ -L link ] && cmp -s there/target plain || fail "$option through $turn: the file"
  done
  rm there/target link
  mkfifo pipe
  cat pipe >read &
  show $option pipe >out || fail "$option into a pipe"
  wait $!
  [ -p pipe ] && cmp -s read plain || fail "$option into a pipe: what it read"
  rm pipe
  ln -s /dev/full full
  show $option full >out 2>err
  [ $? = 3 ] && [ -L full ] && [ ! -s out ] || { cat err; fail "$option on a full device"; }
  grep -qx "dnnc: error: cannot write 'full': No space left on device" err ||
    { cat err; fail "$option on a full device: message"; }
  rm full
  # A file that standard output goes to has both.
  show $option /dev/stdout >both || fail "$option to standard output"
  cat plain tables | cmp -s - both || fail "$option to standard output: what it has"
done
mkfifo pipe
head -c 1 pipe >read &
"$dnnc" cluster detect -o pipe 2>err
code=$?
wait $!
[ $code = 0 ] || { [ $code = 3 ] && grep -q 'Broken pipe' err; } ||
  { cat err; fail "a reader that goes: exit $code"; }

# ---- before the work begins ----
# early CODE MESSAGE COMMAND...: nothing was compiled, and no file is left.
cp "$root/models/mlp.dnn" .
cat >stopped-cc <<END
#!/bin/sh
[ "\$1" = --version ] || touch $work/compiled
exit 1
END
chmod +x stopped-cc
touch file
early() {
  local want=$1 message=$2
  shift 2
  CC=$work/stopped-cc "$dnnc" "$@" >out 2>err
  local code=$?
  [ $code = "$want" ] && [ "$(cat err)" = "dnnc: error: $message" ] ||
    { cat err; fail "$*: exit $code"; }
  [ ! -e compiled ] || fail "$*: it compiled first"
}
missing() { # OPTION COMMAND...
  local option=$1
  shift
  early 1 "cannot write 'no/f': no folder 'no/'; make it first" "$@" $option no/f
}
for option in --trace --profile --transfers -o; do missing $option run mlp.dnn; done
for option in --kernels -o; do missing $option build mlp.dnn; done
for option in --html --dot --trace; do
  missing $option show "$plan" --model mlp.dnn --cluster two.cluster
done
missing --trace simulate mlp.dnn --cluster two.cluster
missing -o cluster detect
early 1 "cannot write 'no/f.cluster': no folder 'no/'; make it first" tune mlp.dnn -o no/f
early 1 "cannot write 'no/f.npy': no folder 'no/'; make it first" \
  predict mlp.dnn --load x -o no/f.npy
early 3 "cannot write to the folder 'file/x': Not a directory" \
  convert x --map x.map -o file/x
early 1 "'file' exists and is not a bundle; remove it or give another path with -o" \
  build mlp.dnn -o file
early 1 "'file' exists and is not a bundle; remove it or give another path with -o" \
  run mlp.dnn -o file
early 1 "cannot write 'there': it is a folder" \
  show "$plan" --model mlp.dnn --cluster two.cluster --html there
early 1 "cannot dump the graph: cannot create folder 'file': File exists" \
  ir mlp.dnn --dump file/x

# ---- the ranks of a bundle ----
"$dnnc" build mlp.dnn --data "$root" H1=16 H2=8 eval_batches=1 --quiet -o m.bundle || fail "build"
for option in --trace --profile --transfers; do
  m.bundle/run --data "$root" --steps 1 --no-save $option no/f >out 2>err
  [ $? = 1 ] && ! grep -q '^step' out &&
    grep -qx "error: cannot write 'no/f': no folder 'no/'; make it first" err ||
    { cat out err; fail "$option of a bundle"; }
done

# ---- the result of predict ----
"$dnnc" run mlp.dnn --data "$root" H1=16 H2=8 eval_batches=1 --steps 1 --quiet >out 2>err ||
  { cat err; fail "run"; }
for turn in 1 2; do
  ln -sf there/target.npy link.npy
  "$dnnc" predict mlp.dnn --data "$root" H1=16 H2=8 --load mlp.ckpt -o link.npy --quiet 2>err ||
    { cat err; fail "predict through a link"; }
  [ -L link.npy ] && [ -s there/target.npy ] || fail "predict through a link: the file"
done
exit 0
