#!/bin/bash
# Checks that every C++ file is formatted by clang-format. To fix a file: clang-format -i FILE.
set -uo pipefail
root="$(dirname "$(readlink -f "$1")")"
cd "$root" || exit 1
mapfile -t files < <(find compiler runtime kernels tools tests models -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' | sort)
[ "${#files[@]}" -gt 50 ] || { echo "only ${#files[@]} source files under $root"; exit 1; }
if printf 'int   f( );\n' | clang-format --dry-run -Werror 2>/dev/null; then
  echo "clang-format does not see a planted fault"
  exit 1
fi
clang-format --dry-run -Werror "${files[@]}" 2>&1 | grep -E 'error:|warning:' | cut -d: -f1 | sort | uniq -c
status=${PIPESTATUS[0]}
echo "${#files[@]} files checked"
exit "$status"
