#!/bin/bash
# `clip` over several servers that wait for all workers: servers tell each other the squares of the norms of their
# gradients.  A run has the bits of data parallelism; where servers divide a table, whose squares are added in another
# order, norm and parameters are within 1 ulp after a step.  Tables under which a server would wait for ever are refused
# before a run.  A server that is killed or stalled, and a link between servers that is cut, ends all ranks within 10 s.
#   server_norms.sh DNNC [all]    all: a stall beside a link that is cut
# Links are cut between network namespaces, one to a rank, which only root may make.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/namespaces.bash"
. "$root/tests/e2e/server_runs.bash"
has_mpi || skip "needs mpirun"
quick_kernels
prefix=dnnn$$
trap 'namespaces_remove; rm -rf "$work"' EXIT
ns_prefix=$prefix ns_count=0
export OMP_NUM_THREADS=1

microbatches=1
write() { # workers servers: the plan plan.plan
  printf 'mesh { data = %d }\nplan {\n  microbatches = %d\n' "$1" "$microbatches" >plan.plan
  [ "$2" = 0 ] || printf '  sync = server(ranks = %d..%d, staleness = 0)\n' "$1" $(($1 + $2 - 1)) >>plan.plan
  echo '}' >>plan.plan
}

train() { # workers servers model arguments...
  rm -rf made.ckpt
  write "$1" "$2"
  "$dnnc" run "$3.dnn" --plan plan.plan save=made.ckpt --json "${@:4}" >log 2>err </dev/null || { cat err; fail "$* does not train"; }
  python3 - "$root" "$1-$2-$3" <<'PY'
import json, sys
sys.path.insert(0, sys.argv[1] + "/tests/e2e")
import versions
lines = [json.loads(line) for line in open("log") if line.startswith("{")]
steps = [(line["loss"], line["norm"]) for line in lines if "norm" in line]
tensors = [[name, list(values)] for name, values in sorted(versions.read_tensors("made.ckpt").items())]
json.dump([steps, tensors], open(sys.argv[2], "w"))
PY
}

# ---- the bits of data parallelism ----

python3 "$root/tests/e2e/versions.py" data . || fail "the data"
cp "$root/tests/e2e/versions.dnn" integers.dnn
cat >few.dnn <<'END2'
dim B = 12, P = 5, K = 3
net few(x: [B, P]) -> [B, K] {
  param w: [P, K] = normal(0.5)
  param b: [K] = zeros
  return dot(x, w, P) + b
}
data d {
  x: [B, P] = synthetic()
  y: i32[B] = synthetic(K)
}
train {
  loss      = cross_entropy(few(d.x), d.y, K)
  optimizer = lamb(lr = 0.1)
  clip      = 0.1
  steps     = 6
}
END2
cat >tables.dnn <<'END2'
dim B = 12, T = 4, V = 101, C = 8, D = 8
net lm(x: i32[B, T]) -> [B, T, V] {
  param wte: [V, C] = normal(0.1)
  param head: [V, D] = normal(0.1)
  param w: [C, D] = normal(0.1)
  h = gather(wte, x, V)
  return dot(relu(dot(h, w, C)), head, D)
}
data d {
  x: i32[B, T] = synthetic(V)
  y: i32[B, T] = synthetic(V)
}
train {
  loss      = cross_entropy(lm(d.x), d.y, V)
  optimizer = sgd(lr = 0.5)
  clip      = 0.01
  steps     = 8
}
END2
sed -e 's/  steps .*/  steps = 4\n  clip = 0.5/' "$root/benchmarks/systems/lenet.dnn" >lenet.dnn

same() { # workers servers model arguments...
  train "$1" 0 "${@:3}"
  for servers in $2; do
    train "$1" "$servers" "${@:3}"
    cmp -s "$1-0-$3" "$1-$servers-$3" || fail "$3: $1 workers and $servers servers are not data parallelism"
  done
  [ "$(wc -c <"$1-0-$3")" -gt 300 ] || fail "no results"
  echo "$3, $1 workers, $2 servers: the bits of data parallelism"
}

same 4 3 integers --steps 20 clip=2 ema=0.5
# Two of the servers have no parameters.
microbatches=2
same 3 4 few
microbatches=1
same 2 2 lenet
cp 2-0-lenet clipped
train 2 0 lenet clip=0
cmp -s 2-0-lenet clipped && fail "clip changes nothing"
# No table is divided.
same 3 2 tables "optimizer=adam(lr = 0.01)"

# ---- tables of which servers have rows ----

near() { # ulps steps
  python3 - "$@" <<'PY' || fail "divided tables"
import json, struct, sys
def bits(x):
    n = struct.unpack("<i", struct.pack("<f", x))[0]
    return n if n >= 0 else -(n & 0x7fffffff)
wanted, found = [json.load(open(name)) for name in ("3-0-tables", "3-%s-tables" % sys.argv[2])]
apart = [abs(bits(a[1]) - bits(b[1])) for a, b in zip(wanted[0], found[0])]
for (name, a), (other, b) in zip(wanted[1], found[1]):
    assert name == other and len(a) == len(b), name
    apart += [abs(bits(x) - bits(y)) for x, y in zip(a, b)]
print("norm and parameters: %d numbers, at most %d ulp" % (len(apart), max(apart)))
sys.exit(max(apart) > int(sys.argv[1]))
PY
}
train 3 0 tables --steps 1
train 3 3 tables --steps 1 --server-log logs
grep -q '# parameter wte rows' logs/server-1.log || fail "the table is on one server"
near 1 3

# ---- what would wait for ever is found before a run ----

real=$(command -v "${CC:-cc}")
"$real" -std=gnu11 -O1 -D_GNU_SOURCE -I"$root" -c -o faults.o "$root/tests/e2e/exchange_faults.c" || fail "cannot compile exchange_faults.c"
cat >faulty-cc <<END2
#!/bin/sh
case " \$* " in
*libdnnrank.a*) exec "$real" "$work/faults.o" -Wl,--wrap=servers_open "\$@" ;;
esac
exec "$real" "\$@"
END2
chmod +x faulty-cc
write 3 3
CC=$work/faulty-cc "$dnnc" build tables.dnn --plan plan.plan -o faulty --quiet 2>err || { cat err; fail "not built"; }
faulty/run --steps 1 >out 2>&1 </dev/null || { cat out; fail "without a fault"; }
refused() { # fault message
  DNNC_FAULT=$1 timeout 20 faulty/run --steps 1 >out 2>&1 </dev/null && fail "the fault $1 runs"
  grep -q "error: .*$2" out || { cat out; fail "the fault $1"; }
}
refused lost "the servers on ranks 3 and 5 have other collectives"
refused counts "the servers on ranks 3 and 5 have other collectives"
refused group "the server on rank 3 has a collective that is not one of all servers"
refused staleness "the server on rank 3 would wait for other servers"
echo "four faults in tables of the exchange are refused"

# ---- a server that is lost in the exchange ----

write 2 2
"$dnnc" build "$root/models/mlp.dnn" --plan plan.plan -o bsp --quiet epochs=400 save_every=100 eval_batches=1 clip=0.5 \
  optimizer="sgd(lr = 0.01, momentum = 0.9)" --data "$root" || fail "build of bsp"
write 2 0
"$dnnc" build "$root/models/mlp.dnn" --plan plan.plan -o data --quiet epochs=400 save_every=100 eval_batches=1 clip=0.5 \
  optimizer="sgd(lr = 0.01, momentum = 0.9)" --data "$root" || fail "build of data"
ends() { # what names the fault
  local begin=$SECONDS step
  while kill -0 $run 2>/dev/null || [ -n "$(ranks_of)" ]; do
    in_time $((1000 * (SECONDS - begin))) 10000 || { cat "$folder.err"; fail "$folder: still running after 10 s"; }
    sleep 0.1
  done
  wait $run 2>/dev/null && fail "$folder: exit 0"
  grep -q "$1" "$folder.err" || { cat "$folder.err"; fail "$folder: nothing says '$1'"; }
  grep -qE "^(note: )?rank [0-9]+ .*step [0-9]+" "$folder.err" || { cat "$folder.err"; fail "$folder: names no step"; }
  step=$(sed 's/step-0*//' "$folder/mlp.ckpt/latest") || fail "$folder: no checkpoint"
  [ -z "$(find "$folder" -name '*unfinished*')" ] || fail "$folder: half a checkpoint is left"
  (cd "$folder" && "$work/data/run" --data "$root" --json --resume --no-save --steps $((step + 2))) >again.json 2>again.err ||
    { cat again.err; fail "$folder: does not resume"; }
  [ "$(grep -c '"step":' again.json)" -ge 2 ] || fail "$folder: resumed nothing"
  echo "$folder: $(grep "$1" "$folder.err" | head -n 1)"
}
start killed bsp
kill -KILL "$(rank bsp 3)" || fail "no rank 3"
ends "rank 3"
links=no
namespaces_allowed "${prefix}t" && links=yes
if [ $links = no ] || [ "${2:-}" = all ]; then
  start stalled bsp
  kill -STOP "$(rank bsp 3)" || fail "no rank 3"
  ends "rank 3"
fi
if [ $links = yes ]; then
  namespaces_make "$prefix" 4 || fail "network namespaces"
  start cut bsp links
  namespaces_cut 2 3
  ends "no contact between rank 2 and rank 3"
  namespaces_heal 2 3
else
  echo "cut: skipped: network namespaces need root"
fi
