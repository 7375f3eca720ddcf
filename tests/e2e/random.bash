# random.bash -- what exact.sh and levels.sh share: the helper that makes models
# and compares, and one training step of one.  After lib.sh.
build=$(dirname "$dnnc")
exact="$work/exact"
${CC:-cc} -std=gnu11 -O1 -D_GNU_SOURCE -I"$root" -o "$exact" \
  "$root/tests/e2e/exact.c" "$build/librandom.a" "$build/libexact.a" \
  "$build/libfrontend.a" "$build/libpasses.a" "$build/libinterp.a" \
  "$build/libir.a" "$build/libdnnrank.a" -fopenmp -lm -ldl -lpthread ||
  fail "cannot compile the helper"

# libraries SEED: odd seeds do without oneDNN.
libraries() {
  unset DNN_ONEDNN_LIB
  [ $(($1 % 2)) = 0 ] || export DNN_ONEDNN_LIB=none
}

# made FOLDER: sets loss and checkpoint to what a run has written.
made() {
  loss=$(grep '"step"' "$1/out.json" | grep -o '"loss":[^,}]*' | cut -d: -f2)
  checkpoint="$1/out.ckpt/step-00000001"
}

# try_step FOLDER ARGUMENTS: trains the model in it; sets loss and checkpoint.
try_step() {
  local folder=$1
  shift
  rm -rf "$folder/out.ckpt"
  "$dnnc" run "$folder/model.dnn" --load "$folder/first.ckpt" --json \
    "save=$PWD/$folder/out.ckpt" "$@" >"$folder/out.json" 2>"$folder/out.err" ||
    return
  made "$folder"
}

step() {
  try_step "$@" || { cat "$1/out.err"; fail "$*"; }
}
