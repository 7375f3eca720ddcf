#!/bin/bash
# The next run removes the files that a killed build, conversion or save has
# left, but none that a living one uses.
. "$(dirname "$0")/lib.sh"
stub_cc
cat >m.dnn <<'END'
dim B = 4, P = 2
net f(x: [B, P]) -> [B] { param w: [P] = ones; return dot(x, w, P) }
END
cp "$CC" quick-cc
# A compiler that waits until the file `go` is there.
sed '2i while [ -d "'"$work"'" ] && [ ! -e "'"$work"'/go" ]; do sleep 0.05; done' quick-cc >slow-cc
chmod +x quick-cc slow-cc
unfinished() { ls -d ./*.unfinished-* 2>/dev/null | wc -l; }
begin() { # OUT: a build that waits for its compiler, in the background
  CC=$work/slow-cc "$dnnc" build m.dnn --quiet --no-cache -o "$1" 2>"$1.err" &
  pid=$!
  for _ in $(seq 200); do
    ls -d "$1".unfinished-*/work >/dev/null 2>&1 && return
    sleep 0.05
  done
  fail "the build of $1 does not begin"
}
export CC=$work/quick-cc
begin killed.bundle
kill -KILL $pid
wait $pid 2>/dev/null
[ "$(unfinished)" = 1 ] || fail "a killed build leaves nothing behind: nothing is tried"
begin living.bundle
[ "$(unfinished)" = 1 ] || fail "the next build leaves the rest of a killed one"
living=$pid
begin killed.bundle
kill -KILL $pid
wait $pid 2>/dev/null
# Names that only look like ours, and the only copy of a bundle.
mkdir notes.bundle.unfinished-backup mine.unfinished-abc123 && touch mine.unfinished-abc123/letter
"$dnnc" build m.dnn --quiet --no-cache -o whole.bundle || fail "a build beside others"
mkdir -p lost.bundle.unfinished-Ab12Cd/old
cp -r whole.bundle/. lost.bundle.unfinished-Ab12Cd/old
"$dnnc" build m.dnn --quiet --no-cache -o other.bundle || fail "a second build beside others"
ls -d killed.bundle.unfinished-* 2>/dev/null && fail "the rest of a killed build is left"
ls -d living.bundle.unfinished-*/work >/dev/null || fail "the folder of a living build was removed"
[ -e mine.unfinished-abc123/letter ] || fail "a folder of someone else was removed"
[ ! -e lost.bundle.unfinished-Ab12Cd ] && cmp -s lost.bundle/bundle.json whole.bundle/bundle.json ||
  fail "the only copy of a bundle was lost"
touch go
wait $living || { cat living.bundle.err; fail "a living build fails"; }
[ -e living.bundle/bundle.json ] && [ "$(unfinished)" = 1 ] || fail "a living build leaves something"

# A run without a cache builds where temporary files go.
cat >run.dnn <<'END'
dim B = 4, P = 2
net f(x: [B, P]) -> [B] { param w: [P] = ones; return dot(x, w, P) }
data set { x: [B, P] = synthetic(records = 16); y: [B] = synthetic(records = 16) }
train { loss = mse(f(set.x), set.y); optimizer = sgd(lr = 0.1); steps = 1 }
END
rm go
mkdir tmp tmp/dnnc-run-Xy12Zw
CC=$work/slow-cc TMPDIR=$work/tmp "$dnnc" run run.dnn --quiet --no-cache 2>/dev/null &
pid=$!
for _ in $(seq 200); do
  ls -d tmp/dnnc-run-*/bundle.unfinished-*/work >/dev/null 2>&1 && break
  sleep 0.05
done
[ ! -e tmp/dnnc-run-Xy12Zw ] || fail "the rest of a killed run is left"
ls -d tmp/dnnc-run-*/bundle.unfinished-* >/dev/null || fail "the run does not begin"
kill -KILL $pid
wait $pid 2>/dev/null
touch go

# A conversion: its folder lies in the output folder.
header='{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
{ printf "\\x$(printf %02x ${#header})\0\0\0\0\0\0\0$header" && printf 'AAAABBBB'; } >a.safetensors
echo 'a = b' >a.map
mkdir -p out/.unfinished-Xy12Zw && touch out/.unfinished-Xy12Zw/model.safetensors
mkdir -p out/.unfinished-Living && touch out/.unfinished-Living/model.safetensors
exec 5<out/.unfinished-Living
if command -v flock >/dev/null; then flock -n 5 || fail "no lock"; fi
"$dnnc" convert a.safetensors --map a.map -o out --quiet 5<&- || fail "convert"
[ ! -e out/.unfinished-Xy12Zw ] || fail "the rest of a killed conversion is left"
[ -e out/.unfinished-Living/model.safetensors ] || fail "the folder of a living conversion was removed"
[ -e out/model.safetensors ] || fail "nothing was converted"
exit 0
