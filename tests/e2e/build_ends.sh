#!/bin/bash
# A build ends soon after a signal, also while the C compiler hangs; a compiler
# has a time limit; a message says how a compiler has failed; --quick asks it for
# less.
. "$(dirname "$0")/lib.sh"
cat >model.dnn <<'END'
dim B = 4, C = 8
net f(x: [B, C]) -> [B, C] {
  param w: [C] = ones
  return x * w
}
data set { x: [B, C] = synthetic() }
train {
  loss      = mse(f(set.x), set.x)
  optimizer = sgd(lr = 0.1)
  steps     = 1
}
END
# A compiler that does $act in the call that $when says: version, kernels,
# program or link.
cat >cc <<'END'
#!/bin/bash
case "$*" in
--version) call=version ;;
*kernels*.c*) call=kernels ;;
*program.c*) call=program ;;
*) call=link ;;
esac
echo $$ >>"$pids"
[ "$call" != "$when" ] || eval "$act"
exec gcc "$@"
END
chmod +x cc
export CC=$work/cc pids=$work/pids when act
# ---- a compiler that writes nothing ----
: >pids
for when in kernels program link; do
  for act in 'exit 0' 'out=${*##*-o }; : >"${out%% *}"; exit 0' 'out=${*##*-o }; echo text >"${out%% *}"; exit 0'; do
    "$dnnc" build model.dnn --no-cache >out 2>err && fail "$when, $act: ends well"
    [ $? != 1 ] || { cat err; fail "$when, $act: the user's mistake"; }
    grep -q "^dnnc: error: '$work/cc' ended without an error, but the .* is \(missing\|empty\|no object code\)" err ||
      { cat err; fail "$when, $act: the compiler is not named"; }
    ! compgen -G 'model.bundle*' || fail "$when, $act: a bundle is left"
  done
done
when=none

hang='trap "" TERM; touch hanging; sleep 600 & echo $! >>"$pids"; wait; sleep 600'
is_running() { # pid
  local state
  state=$(ps -o state= -p "$1") && [ "$state" != Z ]
}
none_left() { # what
  local pid
  while read -r pid; do
    for _ in $(seq 100); do
      is_running "$pid" || break
      sleep 0.02
    done
    ! is_running "$pid" || fail "$1: process $pid is left"
  done <pids
  ! compgen -G 'model.bundle*' || fail "$1: a folder is left"
}
ms() { date +%s%3N; }

act=$hang
for signal in TERM INT HUP; do
  for when in version kernels program link; do
    : >pids
    rm -f hanging
    # Background jobs of a script ignore SIGINT, which dnnc leaves so.
    (exec env --default-signal=INT "$dnnc" build model.dnn --no-cache) \
      2>err & pid=$!
    for _ in $(seq 500); do
      [ -e hanging ] && break
      sleep 0.02
    done
    [ -e hanging ] || fail "$when: the compiler was not called"
    begin=$(ms)
    kill -s "$signal" $pid
    { wait $pid; } 2>/dev/null
    code=$? took=$(($(ms) - begin))
    [ $code = $((128 + $(kill -l $signal))) ] ||
      fail "$signal while $when hangs: exit $code: $(cat err)"
    echo "$signal while $when hangs: $took ms"
    # 200 ms are the compiler's.
    in_time $took 3000 || fail "$signal while $when hangs: $took ms"
    none_left "$signal while $when hangs"
  done
done

limit=600
expect() { # text...
  local text code
  : >pids
  "$dnnc" build model.dnn --no-cache --compile-timeout $limit 2>err
  code=$?
  for text in "$@"; do
    grep -qF -- "$text" err || { cat err; fail "no '$text'"; }
  done
  [ $code = 3 ] || fail "'$text': exit $code"
  none_left "$1"
}
limit=1
when=kernels
expect "compiling kernels-0.c, had not ended after 1 s and was stopped; \
--compile-timeout SECONDS raises that limit"
when=link
expect "had not ended after 1 s and was stopped"
limit=600 act='kill -KILL $$'
expect "was ended by signal 9 (Killed), which is what happens when memory \
runs out"
when=kernels
expect "compiling kernels-0.c, was ended by signal 9 (Killed)"
act='echo "no such register"; kill -SEGV $$'
expect "was ended by signal 11 (Segmentation fault):" "no such register"
act='exit 4'
expect "failed on emitted code:" "it printed nothing"

act='echo "$*" >>"$calls"'
export calls=$work/calls
for option in --quick ''; do
  : >calls
  # shellcheck disable=SC2086
  "$dnnc" build model.dnn --no-cache $option -o built 2>err || { cat err; fail "a build $option"; }
  level=-O3
  [ -z "$option" ] || level=-O1
  grep -q -- " $level .* [^ ]*/kernels-0.c" calls || { cat calls; fail "no $level in a build $option"; }
  ! grep -v plain- calls | grep -v -- " $level " || fail "other flags in a build $option"
done
exit 0
