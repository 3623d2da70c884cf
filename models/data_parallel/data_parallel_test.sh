#!/bin/bash
# The transcripts are what the program prints.
set -uo pipefail
status=0
for devices in 1 2 3 8; do
  diff "models/data_parallel/transcript_$devices.txt" <("$1" "cpu:$devices") || status=1
done
exit "$status"
