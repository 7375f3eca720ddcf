#!/bin/bash
# Every model of models/ is checked, shown and built: all that dnnc itself does,
# with a stub for the C compiler, so that it is quick and runs under
# sanitizers.  The same model gives the same bytes twice.
. "$(dirname "$0")/lib.sh"
stub_cc
models=0
try() {
  "$dnnc" "$@" >out 2>err || { cat err; fail "dnnc $*"; }
}
for model in "$root"/models/*.dnn; do
  name=$(basename "$model" .dnn)
  [ "$name" = lib ] && continue
  try check "$model"
  try ir "$model" --verify-ir --stop-after=list_schedule
  try build "$model" --quiet --no-cache --keep-source -o one.bundle
  try build "$model" --quiet --no-cache --keep-source -o two.bundle
  diff -r one.bundle two.bundle >/dev/null || fail "$name: two bundles of one model"
  models=$((models + 1))
done
echo "$models models"
[ $models -ge 28 ] || fail "too few models"
