# trained.bash -- trains models and reads what the runs print; for scripts that
# have read lib.sh.

# train NAME ARGUMENTS...: trains and writes its lines.
train() {
  local name=$1
  shift
  "$dnnc" run --quick --json "$@" >"$name.json" 2>"$name.err" </dev/null ||
    { cat "$name.err"; fail "$name does not train"; }
}
# The digests of a run.
digest() { grep -o '"parameters_sha256":\[[^]]*' "$1.json" | cut -d[ -f2 | tr , '\n' | sort -u; }
last_loss() { grep -o '"final":true.*' "$1.json" | grep -o '"loss":[^,]*' | cut -d: -f2; }
