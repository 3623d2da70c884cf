#!/bin/bash
# Installs what the build needs on Debian 12, builds everything, runs every test, and counts the results: the last line is "N passed, N
# failed". Arguments are passed to bazel test.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
tools/install_deps.sh tests || exit 1
tools/python_env.sh >/dev/null || exit 1
log="$(mktemp)"
bazel test //... --config=ci --keep_going "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
passed=$(grep -cE '^//[^ ]+ .*PASSED' "$log")
failed=$(grep -cE '^//[^ ]+ .*(FAILED|TIMEOUT|NO STATUS)' "$log")
rm -f "$log"
# A build that stops before any test has run counts as a failure.
if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi
echo "$passed passed, $failed failed"
exit "$status"
