#include "tools/run/views/plan_pages.h"

#include "compiler/cost/simulate.h"
#include "compiler/onnx/export/scheduled_model.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/plan/entry_names.h"
#include "runtime/plan/plan_file.h"
#include "tools/report/plan_dot.h"
#include "tools/report/plan_page.h"
#include "tools/screen/stderr_lines.h"

namespace gradloom {
namespace {

void WriteText(const std::string& path, const std::string& text) {
  WriteFileAtomically(path, text);
  LogToStderr(Escaped(path, 4096));
}

}  // namespace

void WritePages(const Plan& plan, const PlanPages& pages, const Cluster& cluster) {
  if (pages.empty()) return;
  const Entry& entry = plan.entries[0];
  const std::string title = plan.model.name.empty() ? "plan " + PlanHash(plan).substr(0, 8) : plan.model.name;
  if (!pages.onnx.empty()) WriteText(pages.onnx, ScheduledModel(plan, 0));
  if (!pages.html.empty()) WriteText(pages.html, PlanPage(plan, 0, Simulate(plan, 0, cluster), title));
  if (!pages.dot.empty())
    WriteText(pages.dot, ProgramDot(plan.programs[static_cast<size_t>(entry.ranks[0].program)], title + ", " + EntryName(entry)));
}

}  // namespace gradloom
