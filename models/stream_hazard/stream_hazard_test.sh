#!/bin/bash
# Checks that the transcript matches the program's output, and that gradloom verify accepts the plan with the event and refuses the other
# one (exit code 6).
set -uo pipefail
diff models/stream_hazard/transcript.txt <("$1" "$TEST_TMPDIR") || exit 1
"$2" verify "$TEST_TMPDIR/with_event.plan" || exit 1
"$2" verify "$TEST_TMPDIR/without_wait.plan"
[ $? = 6 ]
