#!/bin/bash
# phrases.sh -- refuses the phrases of tools/phrases.list in all tracked texts,
# torn examples in comments, and pages of long sentences: tools/phrases.py.
set -eu
cd "$(dirname "$0")/.."
exec python3 tools/phrases.py "$@"
