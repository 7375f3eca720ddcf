#!/bin/bash
# A model trains on a folder of JPEG files as on the same pixels in an array;
# a damaged, missing or huge picture ends the run and is named; labels follow
# the names of folders; plans and runs that were resumed see the same pictures.
. "$(dirname "$0")/lib.sh"
cc -O1 -o make_pictures "$root/tests/e2e/make_pictures.c" -ldl || fail "cc"
./make_pictures set 60 3 8
status=$?
[ $status = 77 ] && skip "needs libturbojpeg.so.0"
[ $status = 0 ] || fail "make_pictures"
cat >m.dnn <<'MODEL'
dim N = 6, K = 3, C = 3, Y = 8, X = 8
net f(x: [N, C, Y, X]) -> [N, K] {
  param w: [C, Y, X, K] = normal(0.1)
  return dot(x, w, (C, Y, X))
}
data set {
  x: [N, C, Y, X] = images("set")
  y: i32[N] = labels("set")
  eval = 12
}
train {
  loss      = cross_entropy(f(set.x), set.y, K)
  optimizer = sgd(lr = 0.05)
  steps     = 20
  save_every = 10
}
MODEL
losses() { sed -n 's/.*"loss":\([^,]*\),.*/\1/p'; }
train() { # name, arguments
  "$dnnc" run m.dnn --json "save=$1.ckpt" "${@:2}" 2>err >out || { cat err; fail "$1"; }
  losses <out >"$1"
  [ "$(wc -l <"$1")" -ge 10 ] || { cat out; fail "$1: too few losses"; }
}
train folder
train array 'set.x=npy("set-x.npy") / 255' 'set.y=npy("set-y.npy")'
cmp folder array || fail "the pixels of the folder are not those of the array"

# Randomly cropped and mirrored: on one rank, on two, and after a stop.
random='set.x=images("set", crop = "random", pad = 2, flip = true, mean = [0.5, 0.4, 0.3], std = 0.25)'
train one "$random"
cmp -s one folder && fail "nothing was cropped"
train again "$random"
cmp one again || fail "two runs differ"
train two "$random" --ranks 2
paste one two | awk '{ d = $1 - $2; if (d * d > 1e-8 * $1 * $1) exit 1 }' ||
  { paste one two; fail "two ranks read other pictures"; }
train half "$random" steps=10
"$dnnc" run m.dnn --json save=half.ckpt "$random" --resume 2>err >out || { cat err; fail "resume"; }
cmp <(losses <out) <(sed -n '11,$p' one) || fail "a resumed run reads other pictures"

# A list of the same pictures.
(cd set && ls c*/*.jpg) | sed 's|^\(c.\)\(.*\)|set/\1\2 \1|' >l.txt
train list 'set.x=images("l.txt")' 'set.y=labels("l.txt")'
cmp folder list || fail "a list reads other pictures"
"$dnnc" run m.dnn --resume save=list.ckpt steps=25 'set.x=images("l.txt")' 'set.y=labels("l.txt")' --quiet >out 2>&1 ||
  { cat out; fail "resumed with the same list"; }
head -n 59 l.txt >short && mv short l.txt
"$dnnc" run m.dnn --resume save=list.ckpt steps=30 'set.x=images("l.txt")' 'set.y=labels("l.txt")' >out 2>&1 &&
  fail "resumed with another list"
grep -q "data file 'l.txt' is not what the checkpoint was trained on" out || { cat out; fail "another list"; }

# Predicting pictures of another folder, and of a list.
"$dnnc" predict m.dnn --load folder.ckpt -o scores.csv --input x=set/c1 --quiet 2>err || { cat err; fail "predict"; }
[ "$(wc -l <scores.csv)" = 20 ] || fail "predictions"

refused() { # words on standard error, arguments of a run
  "$dnnc" run m.dnn --no-save --quiet "${@:2}" 2>err && fail "passed: $1"
  grep -q -- "$1" err || { cat err; fail "said something else than: $1"; }
}
cp set/c1/000030.jpg kept
head -c 300 kept >set/c1/000030.jpg
refused "error: 'set/c1/000030.jpg' is damaged: "
[ "$(grep -c damaged err)" = 1 ] || { cat err; fail "more than one message"; }
refused "'set/c1/000030.jpg' is damaged: " --ranks 2
mv kept set/c1/000030.jpg
echo 'set/c1/gone.jpg c1' >>l.txt
refused "cannot open '.*set/c1/gone.jpg': No such file" 'set.x=images("l.txt")' 'set.y=labels("l.txt")' set.eval=0
refused "has 8 x 8 pixels, but 'set.x' takes at least 9 x 9" Y=9 X=9 'set.x=images("set", crop = "center")'
DNN_TURBOJPEG_LIB=/none/lib.so refused "'set/c[0-2]/0000[0-9][0-9].jpg' is a JPEG, which libjpeg-turbo reads: cannot load DNN_TURBOJPEG_LIB=/none/lib.so"

# A bomb: a header of 60,000 x 60,000 pixels takes no memory.
printf '\211PNG\r\n\032\n\0\0\0\rIHDR\0\0\352\140\0\0\352\140\010\002\0\0\0\0\0\0\0' >set/c0/000000.jpg
(ulimit -v 4000000; refused "'set/c0/000000.jpg' announces 60000 x 60000 pixels; the most that are read are 67108864") || exit 1

# A folder without pictures is found by `dnnc build`, at the field that names it.
mkdir empty
sed 's/images("set")/images("empty")/' m.dnn >wrong.dnn
"$dnnc" build wrong.dnn --quiet -o out.bundle 2>err && fail "a folder without pictures builds"
grep -q "^wrong.dnn:7:3: error: folder 'empty' has no picture" err || { cat err; fail "no place of an empty folder"; }
