#!/bin/bash
# cmake --install puts dnnc, its manual page, models and documents under a
# prefix, or below $DESTDIR; what is installed works away from the sources and
# finds its models and their data wherever it is moved.
. "$(dirname "$0")/lib.sh"
build=$(dirname "$dnnc")
[ -f "$build/cmake_install.cmake" ] || skip "dnnc lies in no build folder"
cmake --install "$build" --prefix "$work/usr" >out 2>&1 || { cat out; fail "cmake --install"; }
for file in bin/dnnc share/man/man1/dnnc.1 share/dnnc/models/mlp.dnn share/dnnc/models/mlp.plan \
  share/doc/dnnc/README.md share/doc/dnnc/LICENSE share/doc/dnnc/docs/language.md \
  share/doc/dnnc/docs/design/plan.md; do
  [ -s "usr/$file" ] || fail "$file is not installed"
done
DESTDIR=$work/stage cmake --install "$build" --prefix /opt/dnnc >out 2>&1 || { cat out; fail "DESTDIR"; }
[ -x stage/opt/dnnc/bin/dnnc ] || fail "DESTDIR does not go before the prefix"
grep -q '^\.TH DNNC' usr/share/man/man1/dnnc.1 || fail "the manual page"
# Under another prefix than that of the installation, away from the sources.
mv usr moved
dnnc=$work/moved/bin/dnnc models=$work/moved/share/dnnc/models
mkdir away && cd away || exit 1
"$dnnc" run "$models/mlp.dnn" --steps 2 eval_batches=1 --quiet --no-save >out 2>&1 ||
  { cat out; fail "the installed dnnc does not run a model with its data"; }
cp "$models/lenet.dnn" "$models/gnmt8.dnn" .
for model in lenet gnmt8; do
  sed '/^import/d' $model.dnn | cmp -s - $model.dnn && continue
  "$dnnc" check $model.dnn >out 2>&1 || { cat out; fail "$model.dnn does not find what it imports"; }
done
printf 'import "gpt2.dnn"\ntrain { loss = mean(f(1)); optimizer = sgd(lr = 1); steps = 1 }\n' >chain.dnn
"$dnnc" check chain.dnn 2>&1 | grep -q 'cannot read' && fail "an import of an import is not found"
printf 'import "libb.dnn"\n' >wrong.dnn
"$dnnc" check wrong.dnn 2>&1 | grep -q 'cannot read' || fail "a wrong import is found"
printf 'import "lib.dnn"\n' >own.dnn
echo 'layer' >lib.dnn # a file beside the model comes first
"$dnnc" check own.dnn 2>&1 | grep -q '^lib.dnn:[12]:[0-9]*: error' || fail "a file beside the model is not read"
"$dnnc" list models | while read -r file _; do
  case $file in *'*'*) continue ;; esac
  [ -f "$file" ] || fail "list models names '$file', which is not there"
done || exit 1
[ "$("$dnnc" list models | grep -c '\.dnn')" -gt 20 ] || fail "list models"
mkdir elsewhere && mv "$models/data" elsewhere
"$dnnc" run "$models/mlp.dnn" --steps 1 eval_batches=1 --quiet --no-save --data elsewhere >out 2>&1 ||
  { cat out; fail "--data does not name the folder of the data"; }
strings -a "$dnnc" 2>/dev/null | grep -F "$root/" && fail "a path of the sources is in dnnc"
cd "$work" && echo "$(find moved -type f | wc -l) files"
