#!/bin/bash
# Checks that the transcripts match the program's output.
set -uo pipefail
status=0
for devices in 1 2 3 8; do
  diff "models/data_parallel/transcript_$devices.txt" <("$1" "cpu:$devices") || status=1
done
exit "$status"
