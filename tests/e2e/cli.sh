#!/bin/bash
# Command lines, most of them wrong, each with its golden (tests/golden/cli): the
# first line of a file is the command line, the rest is what must come out.
. "$(dirname "$0")/lib.sh"
cp -r "$root/models" "$root/tests/golden/machines" .
printf 'dim B = 2\nnet f(x: [B]) -> [B] { return 2 * x }\n' >forward.dnn
cat >parameters.dnn <<'END'
dim B = 4, I = 3, K = 2
@frozen
layer body(x: [B, I]) {
  param w: [I, J:5] = orthogonal(I)
  param e: [J:5, L:5] = eye
  state mean: [J:5] = 0.5
  mean = mean * 0.5
  return dot(dot(x, w, I) + mean, e, J)
}
net f(x: [B, I]) -> [B, K] {
  param head: [L:5, K] = he_normal(8)
  param b: [K] = 0.25
  return dot(body(x), head, L) + b
}
END
{
  cat parameters.dnn
  echo 'data set { x: [B, I] = synthetic(); y: i32[B] = synthetic(K) }'
  echo 'train { loss = cross_entropy(f(set.x), set.y, K); optimizer = adamw(lr = 1e-3, decay = 0.1, decay_on = all); steps = 1 }'
} >decays.dnn
printf 'dim B = 2, C = 3\nnet f(x: [B, C], m: [C, B]) -> [B] { return dot(x, m, C) }\n' >square.dnn
# Lists of pipelines: fine, late and crossed receives, sent to nobody, calls that wait for each other, and no lists.
printf '0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n' >calls.csv
printf '0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n' >late.csv
printf '0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F1,1RECV_F0,1F0,1F1\n' >crossed.csv
printf '0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F0,1F0,1F1\n' >alone.csv
printf '0F0,0SEND_F0,0F1\n1RECV_F0,1F0,1F1\n' >unsent.csv
printf '3F0,0F0\n1F0,2F0\n' >circle.csv
printf '0F0,0SEND_B0,0RECV_F1\n1RECV_F0,1RECV_F0,1F0,1SEND_F7,1SEND_B0,0SEND_F0\n' >messages.csv
printf '0F0,0F0,0B1,x\n1F3,(1B0;1F1)TOGETHER\n' >cells.csv
printf '0F0,0F1,0B0\n1F0,1F2,1I0,1B1,1F1,1I2,1B0,1B2\n' >missing.csv
printf '0F0,0F1,0F2,3F0,3I0,3W0,3F1,0I0,3I1,0W0,0I1,0F3,3W1,0W1\n1F0,2F0,1F1,2F1,2I0,2W0,1I0,2I1,1W0,2W1,1I1\n' >vee_missing.csv
printf '0F0,0F1,3F0,3I0,3W0,3F1,0I0,3I1,0W0,0I1,3W1,0W1\n1F0,2F0,1F1,2F1,2I0,2W0,1I0,2I1,1W0,2W1,1I1,1W1\n' >vee.csv
printf '0F0,1F0,0SEND_F0\n0B0,1B0\n' >two_ranks.csv
bad=0
for golden in "$root"/tests/golden/cli/*.txt; do
  line=$(head -n 1 "$golden" | sed 's/^\$ dnnc//')
  got=$({ eval "'$dnnc' $line"; echo "exit $?"; } 2>&1 </dev/null)
  if [ -n "${DNNC_BLESS:-}" ]; then
    printf '$ dnnc%s\n%s\n' "$line" "$got" >"$golden"
  elif [ "$got" != "$(tail -n +2 "$golden")" ]; then
    echo "FAIL: $(basename "$golden"): dnnc$line"
    diff <(tail -n +2 "$golden") <(echo "$got")
    bad=1
  fi
done

# A row of a pass: cse@2 is another graph than cse, and has a file of its own.
mlp=models/mlp.dnn
for option in --stop-after --after; do
  "$dnnc" ir $mlp $option=cse >one.ir && "$dnnc" ir $mlp $option cse@2 >two.ir &&
    "$dnnc" ir $mlp $option=cse@1 >first.ir || bad=1
  cmp -s one.ir first.ir || { echo "FAIL: $option: cse is not cse@1"; bad=1; }
  cmp -s one.ir two.ir && { echo "FAIL: $option: cse is cse@2"; bad=1; }
done
rows=$("$dnnc" list passes | grep -c ' cse@')
"$dnnc" ir $mlp --dump dump >/dev/null || bad=1
n=$(ls dump | grep -cE '^train-[0-9][0-9]-cse\.ir$')
[ "$rows" -gt 1 ] && [ "$n" = "$rows" ] || { echo "FAIL: $n files for $rows rows of cse"; bad=1; }
row=$("$dnnc" list passes | sed -n 's/^ *\([0-9]*\)  cse@2 .*/\1/p')
cmp -s dump/train-$(printf %02d "$row")-cse.ir two.ir || { echo "FAIL: the file of cse@2"; bad=1; }
echo 'mesh { pipe = 2 } plan { cut after linear[0] }' >two.plan
"$dnnc" ir $mlp --plan two.plan --dump stages >two.ir || bad=1
[ "$(grep -E '^(#|graph)' two.ir | tr '\n' ' ')" = '# stage 0 of 2 graph train { # stage 1 of 2 graph train { ' ] ||
  { echo "FAIL: the graphs of stages"; bad=1; }
ls stages | grep -q '^train.stage1-.*-fuse\.ir$' || { echo "FAIL: no files of stages"; bad=1; }
exit $bad
