#!/bin/bash
# gradient_suite_test.sh MAKE RUNNER PENDING: generates the suite and runs it; PENDING lists the cases that do not pass.
set -eu
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
unset BUILD_WORKING_DIRECTORY
"$1" "$folder"
"$2" "$folder/gradient" --pending "$3" | tail -n 40
[ "${PIPESTATUS[0]}" = 0 ]
