#!/bin/bash
# A new back end is a folder and one row: a copy of codegen/null under another
# name and its row in backends.def give a compiler whose programs run.  Only the
# copy and the one file that reads the table are compiled; all other objects of
# that compiler are those of the build folder.
. "$(dirname "$0")/lib.sh"
build=$(dirname "$dnnc")
[ -f "$build/build.ninja" ] || skip "dnnc lies in no build folder of ninja"
readers=$(cd "$root" && grep -rl --include='*.[chly]' '"codegen/backends.def"' codegen driver frontend ir passes runtime tools 2>/dev/null)
[ "$readers" = codegen/backend.c ] || fail "more than one file reads backends.def: $readers"

# The folder and the row.
mkdir -p tree/codegen
cp -r "$root/codegen/null" tree/codegen/copied
sed -i 's/backend_null/backend_copied/; s/\.name = "null"/.name = "copied"/; s/null_/copied_/g' tree/codegen/copied/*.c
sed 's/^BACKEND(null).*/&\nBACKEND(copied)/' "$root/codegen/backends.def" >tree/codegen/backends.def
cp "$root/codegen/backend.c" tree/codegen/

compile() { # SOURCE OBJECT: with the flags of codegen/backend.c
  local command
  command=$(ninja -C "$build" -t commands CMakeFiles/codegen.dir/codegen/backend.c.o | tail -n 1)
  command=$(sed "s# -MD.*##; s# -I# -I$work/tree -I#" <<<"$command")
  (cd "$build" && eval "$command -c $work/$1 -o $work/$2") || fail "$1 does not compile"
}
compile tree/codegen/backend.c table.o
objects=$work/table.o
for source in tree/codegen/copied/*.c; do
  compile "$source" "$(basename "$source").o"
  objects+=" $work/$(basename "$source").o"
done
link=$(ninja -C "$build" -t commands dnnc | tail -n 1 | sed 's/^: && //; s/ && .*//')
link=${link/ -o dnnc / $objects -o $work/dnnc }
(cd "$build" && eval "$link") || fail "the copy does not link"

# The copy is a skeleton like its original: found, but not offered.
cat >m.dnn <<'END'
dim B = 4, A = 8
net m(x: [B, A]) -> [] { param w: [A] = ones; return mean(x * w * x * w) }
data d { x: [B, A] = synthetic() }
train { loss = m(d.x); optimizer = sgd(lr = 0.1); steps = 2 }
END
for target in null copied; do
  ./dnnc build m.dnn --target $target --keep-source -o $target.bundle >out 2>&1 || { cat out; fail "build --target $target"; }
done
grep -q '"target": "copied"' copied.bundle/bundle.json || fail "the bundle names another target"
diff <(cat null.bundle/source/kernels-*.c) <(cat copied.bundle/source/kernels-*.c) ||
  fail "the copy emits something else"
"$dnnc" build m.dnn --target copied -o none.bundle 2>out && fail "the row was there before"
grep -q "no target 'copied'; there are cpu and cuda" out || { cat out; fail "the message"; }
cmp <("$dnnc" --commands) <(./dnnc --commands) || fail "help offers the skeleton"
copied.bundle/run --no-save >out 2>&1 || { cat out; fail "the program does not start"; }
echo "$(wc -w <<<"$objects") objects compiled"
