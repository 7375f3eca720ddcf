#!/bin/bash
# A program that grows without bound soon reaches a limit, which the message
# names: within 2 s of processor time (more on a slow machine) and 500 MB, both
# enforced by the kernel.
# Long chains are linear: twice as long takes at most three times the time.
. "$(dirname "$0")/lib.sh"

write() { # NAME HEAD BODY: a net over x: [B]
  printf 'dim B = 2\n%snet f(x: [B]) -> [B] {\n%s  return x\n}\n' "$2" "$3" >"$1.dnn"
}
lines() { # TEXT N: N times, with @ the number
  seq 1 "$2" | awk -v text="$1" '
    BEGIN { n = split(text, part, "@") }
    { printf "%s", part[1]
      for (i = 2; i <= n; i++) printf "%s%s", $1, part[i]
      print "" }'
}
seconds=$(slowness | awk '{ n = int(2 * $1); print n + (n < 2 * $1) }')
explodes() { # LIMIT NAME
  ( ulimit -t "$seconds" -v 512000; exec "$dnnc" check "$2.dnn" ) >out 2>err
  local code=$?
  [ $code = 1 ] || fail "$2: exit $code: $(head -c 300 err)"
  grep -q "error: the model exceeds the limit of $1 here" err || fail "$2: $(head -n 1 err)"
}

param=$'layer own(x) {\n  param w: [B] = ones\n  return x * w\n}\n'
tree() { # BASE CALL: 60 layers, each calls the one before twice
  printf 'layer tree0(x) { return %s }\n' "$1"
  for i in $(seq 1 59); do
    printf 'layer tree%d(x) { return %s }\n' "$i" "${2//@/tree$((i - 1))(x)}"
  done
}
nodes="1000000 nodes" steps="10000000 steps" elements="4000000 list elements"
write repeat "" $'  repeat i in 2000000000 { x = x + 1 }\n'
write range "" $'  repeat i in 0..9000000000000000000 { x = x * 2 + i }\n'
write scans "" $'  repeat i in 9000000 { y = scan B (h: [] = 0) { h = h + x\n return h } }\n'
write in_scan "" $'  y = scan B (h: [] = 0) { repeat i in 9000000 { h = h + x }\n return h }\n'
write mapped "" $'  a = [x, x]\n  repeat i in 60 { a = [a, a] * 2 }\n'
for name in repeat range scans in_scan mapped; do explodes "$nodes" $name; done
write empty "" $'  repeat i in 2000000000 { }\n'
write nested "" $'  repeat i in 99999 { repeat j in 99999 { repeat k in 9 { y = i + j } } }\n'
write params "$param" $'  repeat i in 2000000000 { x = own(x) }\n'
write calls "$(tree x 'x + @ + @')"$'\n' $'  x = tree59(x)\n'
write nothing "$(tree x '@ + @')"$'\n' $'  y = tree59(1)\n'
for name in empty nested params calls nothing; do explodes "$steps" $name; done
write lists "$(tree '[x, x]' '[@, @]')"$'\n' $'  y = tree59(x)\n'
write doubled "" $'  a = [x, x]\n'"$(lines '  a = [a, a]' 60)"$'\n'
write numbers "" $'  a = [1, 1]\n  repeat i in 60 { a = [a, a] + 1 }\n'
write same "" $'  a = [1, 2]\n  repeat i in 60 { a = [a, a] }\n  b = a == a\n'
write consts "const c0 = [1, 2], $(lines 'c@ = [c!, c!], ' 60 |
  awk '{ gsub("!", NR - 1); printf "%s", $0 }') c = c60 + 1"$'\n' $'  y = c\n'
write parts "" $'  y = split(iota(x, B)[B -> C], C, 1000000000)\n'
sed -i 's/^dim B = 2/dim B = 2000000000/' parts.dnn
sed 's/split(\(.*\), C, .*/unstack(\1, C)/' parts.dnn >unstacked.dnn
for name in lists doubled numbers same consts parts unstacked; do
  explodes "$elements" $name
done
echo "17 explosions: each names its limit within $seconds s and 500 MB"

cpu() { # NAME: processor time of a check, least of three
  local TIMEFORMAT='%U %S'
  for _ in 1 2 3; do
    { time "$dnnc" check "$1.dnn" >out 2>&1; } 2>&1 | awk '{ print $1 + $2 }'
    grep -q 'error' out && fail "$1: $(head -n 1 out)"
  done | sort -n | head -n 1
}
chain() { # N
  write "names$1" "" "  x0 = x
$(seq 1 "$1" | awk '{ printf "  x%d = tanh(x%d)\n", $1, $1 - 1 }')
  x = x$1
"
  write "same$1" "" "$(lines '  x = x * @' "$1")"$'\n'
  write "params$1" "" "$(lines $'  param w@: [B] = ones\n  x = x * w@' "$1")"$'\n'
  write "joined$1" "" "  y = concat([$(lines 'x,' "$1" | tr -d '\n') x], B)
  x = x + sum(y)
"
  write "apart$1" "dim C = $1"$'\n' $'  y = unstack(broad(x), C)\n  x = x + sum(stack(y, C), C)\n'
  sed -i "s/broad(x)/(x + iota(zero, C))/; s/^net f.*/&\n  state zero: [C]/" "apart$1.dnn"
}
chain 20000
chain 40000
for name in names same params joined apart; do
  few=$(cpu ${name}20000) many=$(cpu ${name}40000)
  awk -v a="$few" -v b="$many" 'BEGIN { exit !(b < 2 && b < 3 * a + 0.05) }' ||
    fail "$name: 20000 take $few s, 40000 take $many s"
  echo "$name: 20000 take $few s, 40000 take $many s"
done
