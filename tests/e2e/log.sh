#!/bin/bash
# --log writes a row for each step and evaluation, as CSV or as TensorBoard's
# events, and a run that continues appends; a terminal gets about a line a
# second, with the time that is left.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
cat >line.dnn <<'END'
dim B = 8, P = 4
net line(x: [B, P]) -> [B] {
  param w: [P] = normal(1)
  return dot(x, w, P)
}
data set { x: [B, P] = synthetic(); y: [B] = synthetic(); eval = 64 }
train {
  loss       = mse(line(set.x), set.y)
  optimizer  = sgd(lr = cosine(0.1))
  steps      = 30
  eval_every = 10
  save_every = 10
  clip       = 5
}
END
run() { "$dnnc" run line.dnn "$@" >out 2>err || { cat err; fail "run $*"; }; }

# ---- CSV ----
run --log log.csv --json
[ "$(head -n 1 log.csv)" = step,loss,norm,lr,ms,items_per_s,validation_loss ] || fail "head: $(head -n 1 log.csv)"
[ "$(wc -l <log.csv)" = 34 ] || { cat log.csv; fail "$(wc -l <log.csv) lines"; }
awk -F, 'NR > 1 && $7 == "" { n++; if ($1 != n || $2 == "" || $3 == "" || $4 == "" || !($5 > 0) || !($6 > 0)) exit 1 }
  NR > 1 && $7 != "" && ($1 % 10 || $2 != "") { exit 1 } NF != 7 { exit 1 }' log.csv || { cat log.csv; fail "rows"; }
sed -n 's/^{"step":\([0-9]*\),"loss":\([^,]*\),"norm":\([^,]*\),"lr":\([^,]*\),.*/\1,\2,\3,\4/p' out >printed
awk -F, 'NR > 1 && $2 != "" { print $1 "," $2 "," $3 "," $4 }' log.csv | cmp -s - printed || fail "other numbers than are printed"
cut -d, -f1-4,7 log.csv >whole
run --log parts.csv --steps 17 --quiet
echo "18,0.5" >>parts.csv # of steps that are made again
printf "19,0" >>parts.csv
run --log parts.csv --resume --quiet
# The evaluation at the end of the first part is one more.
cut -d, -f1-4,7 parts.csv | awk -F, '!($1 == 17 && $5 != "")' | cmp -s - whole || { diff <(cut -d, -f1-4,7 parts.csv) whole; fail "continued"; }
echo other >other.csv
"$dnnc" run line.dnn --resume --log other.csv >out 2>err && fail "other columns"
grep -q "'other.csv' has other columns than this run" err || { cat err; fail "other columns"; }
"$dnnc" run line.dnn --no-save --log log.txt >out 2>err && fail "an ending that says nothing"
grep -q "'log.txt' must end in .csv, .tfevents or /" err || { cat err; fail "an ending that says nothing"; }
"$dnnc" run line.dnn --no-save --log nowhere/log.csv >out 2>err && fail "no folder"
grep -q "nowhere" err || { cat err; fail "no folder"; }

# ---- a terminal ----
command -v python3 >/dev/null || skip "events and terminals: needs python3"
terminal() { # ARGUMENTS...: what a terminal gets
  python3 -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) != 0)' "$dnnc" run line.dnn --no-save "$@" </dev/null >out 2>err ||
    { cat out err; fail "on a terminal"; }
}
terminal
[ "$(grep -c '^step [0-9]*/30 | loss' out)" -le 5 ] && grep -q '^step 30/30 | loss' out || { cat out; fail "a line for each step on a terminal"; }
grep -q '^step 1/30 | loss .* | [0-9]*s left' out || { cat out; fail "no time that is left"; }
terminal --log-every 1
[ "$(grep -c '^step [0-9]*/30 | loss' out)" = 30 ] || { cat out; fail "--log-every 1"; }
grep -q ' left' out && fail "--log-every 1 says more"
run --no-save
[ "$(grep -c '^step [0-9]*/30 | loss' out)" = 30 ] || fail "each step where the output is no terminal"

# ---- events ----
run --no-save --log run.tfevents
run --no-save --log folder/ --quiet
run --no-save --log folder --quiet
[ "$(ls folder | grep -c '^events.out.tfevents\.')" -ge 1 ] || fail "no file in the folder"
cat >events.py <<'END'
"""Reads an event file by the definitions, checks every CRC, prints its scalars."""
import struct, sys

def crc(data):
    c = 0xffffffff
    for b in data:
        c ^= b
        for _ in range(8):
            c = c >> 1 ^ (0x82f63b78 if c & 1 else 0)
    c ^= 0xffffffff
    return ((c >> 15 | c << 17) + 0xa282ead8) & 0xffffffff

assert crc(b"123456789") == (((0xe3069283 >> 15 | 0xe3069283 << 17) + 0xa282ead8) & 0xffffffff)

def varint(d, i):
    v = s = 0
    while True:
        v |= (d[i] & 127) << s
        s += 7
        i += 1
        if d[i - 1] < 128:
            return v, i

def fields(d):
    i = 0
    while i < len(d):
        key, i = varint(d, i)
        if key & 7 == 0:
            v, i = varint(d, i)
        elif key & 7 == 2:
            n, i = varint(d, i)
            v, i = d[i:i + n], i + n
        else:
            n = 8 if key & 7 == 1 else 4
            v, i = struct.unpack("<d" if n == 8 else "<f", d[i:i + n])[0], i + n
        yield key >> 3, v

data, at, first = open(sys.argv[1], "rb").read(), 0, True
while at < len(data):
    n, check = struct.unpack_from("<QI", data, at)
    assert crc(data[at:at + 8]) == check
    body = data[at + 12:at + 12 + n]
    assert crc(body) == struct.unpack_from("<I", data, at + 12 + n)[0]
    at += 16 + n
    event = dict(fields(body))
    assert event[1] > 1e9
    if first:
        assert event[3] == b"brain.Event:2"
    else:
        value = dict(fields(dict(fields(event[5]))[1]))
        print(event.get(2, 0), value[1].decode(), "%.5g" % value[2])
    first = False
END
python3 events.py run.tfevents >scalars || fail "the event file"
awk -F, 'NR > 1 && $2 != "" { printf "%d loss %.5g\n%d norm %.5g\n%d lr %.5g\n", $1, $2, $1, $3, $1, $4 }
  NR > 1 && $7 != "" { printf "%d validation/loss %.5g\n", $1, $7 }' log.csv >wanted
grep -vE ' (ms|items_per_s) ' scalars | diff - wanted || fail "scalars of the event file"
[ "$(grep -c ' items_per_s ' scalars)" = 30 ] || fail "rates of the event file"
python3 -c 'import tensorboard' 2>/dev/null || { echo "skipped: TensorBoard's reader is not installed"; exit 0; }
python3 - >read <<'END' || fail "TensorBoard's reader"
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator("run.tfevents", size_guidance={"scalars": 0})
a.Reload()
for tag in sorted(a.Tags()["scalars"]):
    for e in a.Scalars(tag):
        print(e.step, tag, "%.5g" % e.value)
END
sort read | diff - <(sort scalars) || fail "TensorBoard reads something else"
