#!/bin/bash
# cmake --install puts dnnc, its manual page, models and documents under a
# prefix, or below $DESTDIR; what is installed works away from the sources.
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
cp -r "$root/data" .
usr/bin/dnnc run usr/share/dnnc/models/mlp.dnn --steps 2 eval_batches=1 --quiet --no-save >out 2>&1 ||
  { cat out; fail "the installed dnnc does not run a model"; }
echo "$(find usr -type f | wc -l) files"
