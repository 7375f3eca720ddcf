#!/bin/bash
# `dnnc schedule` prints lists that its check and `dnnc simulate` read, draws
# them, and gives a verdict on lists that a person wrote.
. "$(dirname "$0")/lib.sh"

made=0
for name in naive fthenb gpipe 1f1b 'interleaved(v = 3)' bfs zb1p 'zbh1(times = (1, 1, 1))' zbh2 zbv vhalf vmin dualpipev chimera; do
  for p in 1 2 5; do
    for m in 1 3 10; do
      "$dnnc" schedule "$name" --ranks $p --microbatches $m --csv >calls.csv 2>refused || {
        grep -q 'help: --microbatches\|an even number of ranks' refused || fail "$name $p $m"
        continue
      }
      made=$((made + 1))
      "$dnnc" schedule "$name" --ranks $p --microbatches $m --csv --comms >all.csv || fail "$name $p $m"
      sed 's/[0-9]*\(SEND\|RECV\)_[FB][0-9]*//g; s/,,*/,/g; s/^,//; s/,$//' all.csv | cmp -s - calls.csv ||
        fail "$name $p $m: calls between messages"
      "$dnnc" schedule --check calls.csv >out || fail "$name $p $m: calls"
      "$dnnc" schedule --check all.csv --json >out.json || fail "$name $p $m: messages"
      grep -q '"verdict":"fine"' out.json || { cat out.json; fail "$name $p $m"; }
      [ "$name" = gpipe ] && continue
      "$dnnc" schedule "$name" --ranks $p --microbatches $m --json >one.json || fail "JSON"
      "$dnnc" simulate all.csv --json >two.json || fail "simulate"
      [ "$(field makespan one.json)" = "$(field makespan two.json)" ] || fail "$name $p $m: other times"
    done
  done
done
[ $made -gt 100 ] || fail "$made schedules"
# A stage that recomputes is longer by a forward pass.
makespan() { # NAME
  "$dnnc" schedule "$1" --ranks 4 --microbatches 8 --times 2,3,4 --json >out.json || fail "$1"
  field makespan out.json
}
[ "$(makespan fthenb)" = 99.0 ] && [ "$(makespan gpipe)" = 121.0 ] && [ "$(makespan naive)" = 288.0 ] ||
  fail "times: $(makespan fthenb) $(makespan gpipe) $(makespan naive)"

# The later stages of a rank are paler.
"$dnnc" schedule zbv --ranks 2 --microbatches 4 --html page.html >/dev/null || fail "a page"
[ "$(grep -c 'fill-opacity="0.50"/><title>[23][FIW][0-3]: ' page.html)" = 24 ] || fail "the page does not show stages"
"$dnnc" schedule 1f1b --ranks 4 --microbatches 8 --html page.html >/dev/null || fail "a page"
[ "$(grep -c '<title>[0-9]*[FB][0-9]*: ' page.html)" = 64 ] && ! grep -qi '<script\|https*:' page.html ||
  fail "the page does not show 64 calls"
python3 - <<'END' || fail "the page is not well formed"
import html.parser
open_tags = []
class Page(html.parser.HTMLParser):
    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "link"): open_tags.append(tag)
    def handle_startendtag(self, tag, attrs): pass
    def handle_endtag(self, tag):
        assert open_tags.pop() == tag, tag
Page().feed(open("page.html").read())
assert not open_tags
END

# Large lists, and a verdict on them.
"$dnnc" schedule 1f1b --ranks 256 --microbatches 96 --comms --csv >all.csv &&
  "$dnnc" schedule --check all.csv | grep -q ': fine: 256 ranks, 256 stages, 96 micro-batches$' || fail "256 ranks"
head -n 255 all.csv >short.csv
"$dnnc" schedule --check short.csv 2>message && fail "a rank is missing"
grep -q "'254SEND_F0' of the schedule: there is no such message between the stages" message ||
  { head message; fail "a rank is missing"; }
echo "schedule: lists, times, pages and verdicts"
