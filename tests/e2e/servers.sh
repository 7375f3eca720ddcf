#!/bin/bash
# Servers of parameters (sync = server(...)): with a staleness of 0 a run has the bits of data parallelism of the same
# workers.  With more, and with none, a reference that replays the logs of the servers gets equal bits where one worker
# is slow, and finds that the staleness keeps its bound.  A run that repeats logs has the same bits although another
# worker is slow.  The model does not round but for the update.
#   servers.sh DNNC [RUNS]
. "$(dirname "$0")/lib.sh"
has_mpi || skip "needs mpirun"
runs=${2:-1}
python3 "$root/tests/e2e/versions.py" data . || fail "the data"
cp "$root/tests/e2e/versions.dnn" model.dnn
export OMP_NUM_THREADS=1

# write WORKERS SERVERS STALENESS: the plan plan.plan.
write() {
  printf 'mesh { data = %d }\nplan {\n' "$1" >plan.plan
  [ "$2" = 0 ] || printf '  sync = server(ranks = %d..%d, staleness = %s)\n' "$1" $(($1 + $2 - 1)) "$3" >>plan.plan
  echo '}' >>plan.plan
}

# ---- staleness 0 is data parallelism ----

train() { # arguments...
  rm -rf made.ckpt
  "$dnnc" run model.dnn --plan plan.plan save=made.ckpt --json "$@" >log 2>err </dev/null || { cat err; fail "$* does not train"; }
}

# Losses, and the tensors of the last checkpoint, optimizer state included.
results() {
  grep -o '"[a-z_]*loss":[^,}]*' log
  sed 's/.*"parameters_sha256":\["\([^"]*\)".*/\1/; t; d' log
  python3 - "$root" <<'END'
import sys
sys.path.insert(0, sys.argv[1] + "/tests/e2e")
import versions
for path, values in sorted(versions.read_tensors("made.ckpt").items()):
    print(path, values)
END
}

same() { # workers arguments...
  write "$1" 0
  train "${@:3}"
  results >wanted
  [ "$(wc -l <wanted)" -gt 20 ] || fail "no results"
  for servers in $2; do
    write "$1" "$servers" 0
    train "${@:3}"
    results >found
    cmp -s wanted found || { diff wanted found | head; fail "$1 workers and $servers servers are not data parallelism"; }
  done
}

same 2 "1 2" --steps 40 eval_every=15 save_every=20
same 4 3 --steps 40 eval_every=15 save_every=20
# Stopped and resumed.
for steps in 20 40; do
  "$dnnc" run model.dnn --plan plan.plan save=half.ckpt save_every=20 --steps $steps --resume --json >log 2>err </dev/null ||
    { cat err; fail "resumed with servers"; }
done
grep -qF "$(grep -o '"parameters_sha256":\["[^"]*' log)" <(sed 's/^\([0-9a-f]\{64\}\)$/"parameters_sha256":["\1/' wanted) ||
  fail "a resumed run with servers has other bits"
same 6 4 --steps 13 B=12 eval_every=5 optimizer="adam(lr = 0.25)"
same 3 1 --steps 13 B=12 -O0
# Averages are on the servers, and evaluation reads the copies of the workers; one server has the norm of all gradients.
same 2 "1 2" --steps 13 eval_every=5 save_every=10 ema=0.5
same 3 1 --steps 13 B=12 eval_every=5 clip=2 ema=0.75
# A group of parameters has its own arguments on each server.
cp model.dnn plain.dnn
for arguments in "lr = 0.5x; momentum = 0.25" "lr = 0.5x; decay = 0; betas = (0.5, 0.75)"; do
  sed '$ s/^}/  group linear[1], linear[3] { '"$arguments"' }\n}/' plain.dnn >model.dnn
  case $arguments in
  *betas*) same 2 2 --steps 20 eval_every=15 save_every=20 "optimizer=adamw(lr = 0.25, decay = 0.125)" ;;
  *) same 2 2 --steps 20 eval_every=15 save_every=20 ;;
  esac
done
mv plain.dnn model.dnn
# Each server has rows of tables that are larger than the rest: optimizer state is saved as that of any plan.
mv model.dnn plain.dnn
cat >model.dnn <<'END'
dim B = 8, T = 4, V = 101, C = 8, D = 8
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
  optimizer = adam(lr = 0.01)
  steps     = 12
}
END
same 3 1 --steps 12 B=12 save_every=6 clip=0.1
same 2 3 --steps 12 save_every=6 ema=0.75
same 2 "3 4" --steps 12 save_every=6
"$dnnc" run model.dnn --plan plan.plan save=half.ckpt save_every=6 --steps 6 --quiet </dev/null 2>err || { cat err; fail "a table"; }
write 2 3 0
"$dnnc" run model.dnn --plan plan.plan save=half.ckpt --steps 12 --resume --json --server-log table.logs >log 2>err </dev/null ||
  { cat err; fail "resumed with tables on 3 servers instead of 4"; }
grep -qF "$(grep -o '"parameters_sha256":\["[^"]*' log)" <(sed 's/^\([0-9a-f]\{64\}\)$/"parameters_sha256":["\1/' wanted) ||
  fail "resumed with tables on other servers: other bits"
grep -qx '# parameter wte rows 68' table.logs/server-2.log || fail "the table is on one server"
train --steps 12 save_every=6 optimizer="lamb(lr = 0.01)" --server-log table.logs
grep -q '# parameter wte rows' table.logs/server-*.log && fail "lamb needs the norm of the table"
mv plain.dnn model.dnn
echo "staleness 0: the bits of data parallelism"

# ---- with staleness ----

real=$(command -v "${CC:-cc}")
"$real" -std=gnu11 -O1 -D_GNU_SOURCE -I"$root" -c -o delays.o "$root/tests/e2e/delays.c" || fail "cannot compile delays.c"
"$real" -std=gnu11 -O1 -D_GNU_SOURCE -I"$root" -c -o no_wait.o "$root/tests/e2e/no_wait.c" || fail "cannot compile no_wait.c"
compiler() { # file, arguments of the linker: a compiler that delays ranks
  cat >"$1" <<END
#!/bin/sh
case " \$* " in
*libdnnrank.a*) exec "$real" -Wl,--wrap=comm_create "$work/delays.o" ${*:2} "\$@" ;;
esac
exec "$real" "\$@"
END
  chmod +x "$1"
}
compiler late-cc
compiler hasty-cc -Wl,--wrap=servers_open "$work/no_wait.o"

build() { # workers servers staleness compiler
  write "$@"
  CC=$work/${4:-late-cc} "$dnnc" build model.dnn --plan plan.plan -o late "save=$work/made.ckpt" eval_every=15 save_every=20 \
    --quiet 2>err || { cat err; fail "not built"; }
}

late() { # delays arguments...
  rm -rf made.ckpt
  DNNC_DELAYS=$1 late/run --steps 40 --json "${@:2}" >log 2>err </dev/null || { cat err; fail "delays $*"; }
}

check() { # workers servers staleness
  python3 "$root/tests/e2e/servers.py" check made.ckpt log "$work/logs" "$@" 40 --evaluations 15,30 $conv
}
conv=

# stale WORKERS SERVERS STALENESS: the last worker is the slow one, then the first.
stale() {
  build "$@"
  for seed in $(seq "$runs"); do
    late "$seed:3000:$(($1 - 1))" --server-log "$work/logs"
    check "$@" >verdict || { cat verdict; fail "$*, delays $seed"; }
    cp log log.first
    found=$(sed 's/.*largest staleness //' verdict)
    grep -q "^largest staleness: $found\$" err || { cat err verdict; fail "$*: the staleness that the run prints"; }
    late "$seed:3000:0" --replay "$work/logs"
    grep -q "^largest staleness: $found\$" err || { cat err verdict; fail "$*: the staleness of the replay"; }
    for key in loss validation_loss parameters_sha256; do
      diff <(grep -o "\"$key\":[^,}]*" log.first) <(grep -o "\"$key\":[^,}]*" log) >differs ||
        { cat differs; fail "$*: the replay differs, $key"; }
    done
  done
  echo "$1 workers, $2 servers, staleness $3: equal bits, replayed, largest staleness $found"
}

stale 2 1 1
stale 4 3 1
stale 4 2 3
stale 4 1 none
sums() { grep -o '"parameters_sha256":\["[^"]*' "$1" | tail -n 1; }
before=$(sums log)
cp -r made.ckpt kept.ckpt
# Programs of which the wait is taken out break the bound.
build 4 2 1 hasty-cc
broken=0
for seed in $(seq "$runs"); do
  late "$seed:3000:3" --server-log "$work/logs"
  check 4 2 1 >verdict && continue
  grep -q '^a reply at clock .* behind$' verdict || { cat verdict; fail "what breaks without a wait"; }
  broken=$((broken + 1))
done
[ $((10 * broken)) -ge $((9 * runs)) ] || fail "without a wait $broken of $runs runs break the bound"
echo "without a wait: $broken of $runs runs break the bound"

# ---- a checkpoint of it under data parallelism, and back ----

write 4 0
"$dnnc" run model.dnn --plan plan.plan save=kept.ckpt --resume --steps 40 --json >log 2>err </dev/null ||
  { cat err; fail "resumed under data parallelism"; }
[ -n "$before" ] && [ "$(sums log)" = "$before" ] || fail "loaded under data parallelism"
echo "loaded under data parallelism: equal bits"

# ---- convolutions, with and without staleness ----

mv model.dnn plain.dnn
mkdir plain
mv x.npy y.npy plain
cp "$root/tests/e2e/server_conv.dnn" model.dnn
python3 "$root/tests/e2e/server_conv.py" data . || fail "the data of convolutions"
conv=--conv
same 2 2 --steps 13 eval_every=5
stale 2 2 1
stale 4 2 none
conv=
mv plain.dnn model.dnn
mv plain/* .

# ---- mistakes ----

wrong() { # text arguments...
  "$dnnc" build model.dnn --plan plan.plan -o none "${@:2}" >out 2>&1 && fail "$1: it is built"
  grep -q "$1" out || { cat out; fail "$1"; }
  grep -q '^plan.plan:3:\|^model.dnn:' out || { cat out; fail "$1: no place"; }
}

write 2 1 none
wrong "error: not supported yet: 'ema' beside servers that do not wait for all workers" ema=0.9
wrong "error: not supported yet: the target 'cuda' under a plan with servers" --target cuda
printf 'cluster many {\n device = c\n level node { count = 8; link = 8GB/s; latency = 1us }\n}\ndevice c {\n base = cpu\n cores = 1\n memory = 4GiB\n}\n' >many.cluster
unproved() { # text command...
  "$dnnc" "${@:2}" >out 2>&1 && fail "$2 of servers"
  grep -q "^plan.plan:3:.*error: not supported yet: $1 .*servers" out || { cat out; fail "$2 of servers"; }
}
unproved "what a search would find" explain model.dnn 'linear[0].w' --plan plan.plan --cluster many.cluster
wrong_verify() { # text
  "$dnnc" verify model.dnn --plan plan.plan >out 2>&1 && fail "verify of servers"
  grep -q "^plan.plan:3:.*error: $1" out || { cat out; fail "verify of servers"; }
  grep -q '^help: ' out || { cat out; fail "verify of servers: no help"; }
}
wrong_verify "no proof that servers with 'staleness = none' compute the same"
# A pinned plan with servers is priced as it is written, and its text is the plan again.
"$dnnc" plan model.dnn --plan plan.plan --cluster many.cluster >priced.plan 2>out || { cat out; fail "plan of servers"; }
grep -q "sync .*= server(ranks = 2.*, staleness = none)" priced.plan || { cat priced.plan; fail "the plan lost its servers"; }
"$dnnc" plan model.dnn --plan priced.plan --cluster many.cluster >again.plan 2>out || { cat out; fail "plan of a printed plan"; }
cmp priced.plan again.plan || fail "the printed plan is another one"
sed -e 's/  return linear\[H -> K\](x, 7, 1)/  return linear[H -> K](cumsum(x, B), 7, 1)/' "$root/tests/e2e/versions.dnn" >model.dnn
wrong "joins all workers, but with 'staleness = none' no worker waits for another one"
grep -q "help: .*'group'" out || { cat out; fail "no help"; }
