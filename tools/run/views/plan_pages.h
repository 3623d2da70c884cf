// Views of a plan: an HTML page, a Graphviz drawing, and a graph for Netron.
#pragma once

#include <string>

#include "compiler/cost/simulate.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// The files to write; "": none.
struct PlanPages {
  std::string html, dot, onnx;

  bool empty() const { return html.empty() && dot.empty() && onnx.empty(); }
};

// The predicted step of the plan's first entry on this machine; the first entry is a training entry if the plan has one.
Simulation PredictStep(const Plan& plan);

// Writes the views of that entry, and reports them on stderr. Throws Error(kResource).
void WritePages(const Plan& plan, const PlanPages& pages);

}  // namespace gradloom
