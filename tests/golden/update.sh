#!/bin/bash
# Rewrites the golden files in the source tree.
set -euo pipefail
gradloom="$PWD/tools/gradloom/gradloom"
cd "$BUILD_WORKSPACE_DIRECTORY"
exec python3 tests/golden/golden_test.py "$gradloom" tests/golden --update
