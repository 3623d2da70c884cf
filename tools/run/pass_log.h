// What the compiler's passes tell on stderr (--time-passes, --dump-after).
#pragma once

#include "compiler/passes/pipeline.h"

namespace gradloom {

// Text, or with --log-format json a JSON object for each time and each graph: {"t", "pass", "ms", "nodes"} and {"t", "pass", "graph"}.
PassLog& StderrPassLog();

}  // namespace gradloom
