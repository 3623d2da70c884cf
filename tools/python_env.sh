#!/bin/bash
# Creates the Python environment of the tests, with pinned versions and hashes, and prints its interpreter. Fast if it already exists. It is
# located at $GRADLOOM_PYTHON_CACHE, or ~/.cache/gradloom-python by default.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
requirements="$here/python/requirements.txt"
cache="${GRADLOOM_PYTHON_CACHE:-$HOME/.cache/gradloom-python}"
environment="$cache/$(sha256sum "$requirements" | cut -c1-16)"

if [ ! -e "$environment/complete" ]; then
  python=""
  for candidate in /usr/bin/python3 python3.11 python3; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
      python="$candidate"
      break
    fi
  done
  if [ -z "$python" ]; then
    echo "python_env: no Python 3.11, for which tools/python/requirements.txt is pinned; run tools/install_deps.sh" >&2
    exit 1
  fi
  mkdir -p "$cache"
  # If two set-ups run at once, the second waits and finds the work done.
  exec 9>"$cache/lock"
  flock 9
  if [ ! -e "$environment/complete" ]; then
    echo "python_env: making $environment" >&2
    rm -rf "$environment"
    "$python" -m venv "$environment" >&2
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
      --require-hashes --requirement "$requirements" >&2
    "$environment/bin/python" -m pip check --disable-pip-version-check >&2
    touch "$environment/complete"
  fi
fi
echo "$environment/bin/python"
