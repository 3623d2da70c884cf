// What a plan is looked at with: a page for a browser, a drawing for Graphviz, a graph for Netron.
#pragma once

#include <string>

#include "compiler/cost/simulate.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// The files to write; "": not that one.
struct PlanPages {
  std::string html, dot, onnx;

  bool empty() const { return html.empty() && dot.empty() && onnx.empty(); }
};

// A step of the plan's first entry, which trains where the plan does, as this machine is predicted to run it.
Simulation PredictedHere(const Plan& plan);

// Of that entry; says on stderr what it has written. Throws Error(kResource).
void WritePages(const Plan& plan, const PlanPages& pages);

}  // namespace gradloom
