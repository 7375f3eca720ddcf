# server_runs.bash -- starts bundles with servers in the background, for scripts that
# put faults into them; needs lib.sh and namespaces.bash.  Each bundle is $work/NAME,
# built from models/mlp.dnn, of four ranks.

ranks_of() { pgrep -f "$work/[a-z]*/rank-000" 2>/dev/null; }
rank() { # bundle number: the process of a rank
  for pid in $(ranks_of); do
    tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$2" && echo "$pid"
  done
}

start() { # folder bundle [links]: over namespaces
  folder=$1
  rm -rf "$folder"
  mkdir -p "$folder"
  if [ "${3:-}" = links ]; then
    (cd "$folder" && namespaces_run "$work/$2" 4 --data "$root" --json) >"$folder.json" 2>"$folder.err" &
  else
    (cd "$folder" && exec "$work/$2/run" --data "$root" --json) >"$folder.json" 2>"$folder.err" &
  fi
  run=$!
  for _ in $(seq 300); do
    [ -e "$folder/mlp.ckpt/latest" ] && return
    kill -0 $run 2>/dev/null || break
    sleep 0.1
  done
  cat "$folder.err"
  fail "$folder: did not get going"
}
