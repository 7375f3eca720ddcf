#!/bin/bash
# The mock of NCCL and the driver notices what the real ones forbid: each rule is
# broken once, by two processes.  A message has no buffer, and moves while its rank
# waits for another stream.
. "$(dirname "$0")/lib.sh"
${CC:-cc} -std=gnu11 -D_GNU_SOURCE -O1 -I"$root" -o rules "$root/tests/e2e/mock_rules.c" \
  "$root"/tests/mock/*.c "$root/support/half.c" -ldl -lm -lrt || fail "cannot compile"

# breaks CASE CODE TEXT: some rank gets the code, and stderr says why.
breaks() {
  timeout 20 ./rules "$1" >out 2>err || { cat out err; fail "$1: exit $?"; }
  grep -q "^rank [01]: $2\$" out || { cat out err; fail "$1: nobody got $2"; }
  [ -z "$3" ] || grep -q "$3" err || { cat out err; fail "$1: no '$3'"; }
}
breaks one_order 0 ''
[ "$(grep -c ': 0$' out)" = 2 ] && [ ! -s err ] || { cat out err; fail "one order"; }
for case in unbuffered unwatched_send unwatched_receipt; do
  breaks $case 0 ''
  [ "$(grep -c ': 0$' out)" = 2 ] || { cat out err; fail $case; }
done
breaks two_orders 5 'another rank launches in another order'
breaks two_counts 5 'ranks mean different collectives'
breaks two_roots 5 'ranks mean different collectives'
breaks two_lengths 5 '100 bytes are sent and 101 received'
breaks overlap 5 'source and destination overlap'
breaks two_streams 4 ''
breaks after_abort 5 'of a communicator that was aborted'
breaks after_destroy 5 'of a communicator that was destroyed'
breaks early_end 0 'finalized before 1 operations'
breaks no_group 5 'ncclGroupEnd without ncclGroupStart'
breaks one_gpu 5 'two ranks have one GPU'
DNN_MOCK_FAIL=asyncError:8:6 breaks one_order 6 ''
DNN_MOCK_FAIL=cuMemsetD8Async:1:700 breaks lasting 700 ''
echo "rules of NCCL and the driver on the mock: 13 broken, 13 noticed"
