#!/bin/bash
# No operator has the name of a layer or net of a model: one that gets a name
# later would take it from the models that use it.
. "$(dirname "$0")/lib.sh"
cd "$root" || exit 1

operators=$(sed -n 's/^BUILTIN(\([a-z0-9_]*\),.*/\1/p' frontend/operators/builtins.def
  sed -n 's/^PW[123](\([a-z0-9_]*\),.*/\1/p' ir/ops.def)
[ "$(echo "$operators" | wc -l)" -gt 80 ] || fail "the tables are not read"
models=$(ls models/*.dnn ../shared/models/*.dnn 2>/dev/null)
layers=$(sed -nE 's/^(layer|net) +([A-Za-z0-9_]+).*/\2/p' $models)
[ "$(echo "$layers" | wc -l)" -gt 50 ] || fail "the models are not read"
both=$(comm -12 <(echo "$operators" | sort -u) <(echo "$layers" | sort -u))
[ -z "$both" ] || fail "operators with the name of a layer: $both"
