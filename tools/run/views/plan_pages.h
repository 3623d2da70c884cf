// Views of a plan: an HTML page, a Graphviz drawing, and a graph for Netron.
#pragma once

#include <string>

#include "compiler/cost/cluster.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// The files to write; "": none.
struct PlanPages {
  std::string html, dot, onnx;

  bool empty() const { return html.empty() && dot.empty() && onnx.empty(); }
};

// Writes the views of the plan's first entry, which is a training entry if the plan has one, with the times that are predicted for the
// cluster, and reports the files on stderr. Throws Error(kResource).
void WritePages(const Plan& plan, const PlanPages& pages, const Cluster& cluster);

}  // namespace gradloom
