#!/bin/bash
# Replays all given cases, and all recorded ones except those in the list. Further arguments are flags of replay_cases.
set -uo pipefail
replay="$1"
cases="$2"
left_out="$3"
shift 3
folders=()
for file in "$cases"/cases/*/case.json "$cases"/recorded/*/case.json; do
  folder="$(dirname "$file")"
  grep -qxF "$(basename "$folder")" "$left_out" || folders+=("$folder")
done
[ "${#folders[@]}" -gt 400 ] || { echo "only ${#folders[@]} cases found"; exit 1; }
"$replay" "${folders[@]}" "$@" | grep -v ' passed$'
exit "${PIPESTATUS[0]}"
