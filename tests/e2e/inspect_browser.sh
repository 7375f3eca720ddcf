#!/bin/bash
# A page of `dnnc show --html` in headless Chromium: nothing on the console, and
# no request.  A page that has both shows that they would be seen.
. "$(dirname "$0")/lib.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
  skip "needs Chromium (apt-get install -y --no-install-recommends chromium)"

# look FILE: its console in console.txt, what it asks for in requests.txt.  The
# browser asks its maker for updates whatever it shows.
look() {
  rm -rf net.json profile
  timeout 120 "$browser" --headless --no-sandbox --disable-gpu --no-first-run --disable-sync \
    --disable-background-networking --disable-component-update --user-data-dir="$work/profile" \
    --enable-logging=stderr --log-net-log="$work/net.json" --dump-dom "file://$work/$1" \
    >dom.html 2>log.txt || fail "the browser cannot open $1"
  grep 'CONSOLE' log.txt >console.txt
  [ -s net.json ] || fail "no log of requests"
  grep -oE '"url":"[^"]*"' net.json | sort -u |
    grep -vE '"url":"https?://[a-z0-9.]*\.(google|googleapis|gstatic)\.com/' >requests.txt
}
cat >control.html <<'END'
<!doctype html><script>console.error("control")</script><img src="http://127.0.0.1:9/control.png">
END
look control.html
grep -q control console.txt || fail "an error on the console is not seen"
grep -q 127.0.0.1:9/control.png requests.txt || { cat requests.txt; fail "a request is not seen"; }

cat >eight.plan <<'END'
mesh { pipe = 8; data = 16; tensor = 8 }
plan {
  schedule = 1f1b
  microbatches = 96
  zero = 1
  shard H, F, V over tensor
  remat block
  cut after block[11]; cut after block[23]; cut after block[35]; cut after block[47]
  cut after block[59]; cut after block[71]; cut after block[83]
}
END
"$dnnc" show eight.plan --model "$root/models/gpt3.dnn" --cluster "$root/models/a100x1024.cluster" --lines 0 \
  --html stages.html >words || fail "a page of GPT-3 in stages"
look stages.html
[ ! -s console.txt ] || { cat console.txt; fail "the console has messages about stages"; }
[ ! -s requests.txt ] || { cat requests.txt; fail "the page of stages makes requests"; }
grep -q '<h2>Calls' dom.html && grep -q '</html>' dom.html || fail "no calls"

cp "$root/benchmarks/plans/gpt3.plan" zero.plan
sed -i 's/^plan {/&\n  zero = 3/' zero.plan
"$dnnc" show zero.plan --model "$root/models/gpt3.dnn" --cluster "$root/models/a100x1024.cluster" --lines 0 \
  --html page.html >words || fail "a page of GPT-3 on 1,024 ranks"
look page.html
[ ! -s console.txt ] || { cat console.txt; fail "the console has messages"; }
[ ! -s requests.txt ] || { cat requests.txt; fail "the page makes requests"; }
# The browser has drawn all of it.
for mark in '<h2>A step by term' '<h2>Timeline' '<h2>Memory of a rank' '<h2>Sharding' '<h2>Lines of the plan' \
  '<h2>Paths' '</html>'; do
  grep -q "$mark" dom.html || fail "no $mark"
done
[ "$(grep -o '<svg' dom.html | wc -l)" = 5 ] || fail "drawings"
echo "a page of $(wc -c <page.html) bytes: nothing on the console, no request"
