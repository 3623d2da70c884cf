#include "kernels/cuda/measured_plan.h"

#include <optional>

#include "kernels/cuda/algorithms.h"
#include "kernels/cuda/libraries.h"

namespace gradloom::cuda {
namespace {

constexpr size_t kMaxPlans = 8;

bool SelectByName(CandidatePlans& plans, const std::string& name) {
  for (int64_t i = 0; i < plans.count(); ++i) {
    if (plans.name(i) == name && plans.Activate(i)) return true;
  }
  return false;
}

}  // namespace

void ChooseMeasured(CandidatePlans& plans, const MeasuredProblem& problem, Libraries& libraries) {
  Algorithms& algorithms = libraries.algorithms();
  const std::optional<std::string> known = algorithms.Known(problem.problem);
  if (!known && !algorithms.measures()) return;
  const std::string first = plans.chosen();
  if (first.empty()) return;
  if (known) {
    if (!SelectByName(plans, *known)) SelectByName(plans, first);
    return;
  }
  std::vector<int64_t> offered;
  for (int64_t i = 0; i < plans.count() && offered.size() < kMaxPlans; ++i) {
    if (plans.Activate(i)) offered.push_back(i);
  }
  std::vector<int64_t> blocks = problem.bytes;
  blocks.push_back(problem.scratch_bytes);
  const auto memory = offered.size() > 1 ? TrialMemory::Allocate(problem.dtype, blocks) : nullptr;
  int best = -1;
  if (memory != nullptr) {
    const std::span<void* const> addresses(memory->blocks().data(), memory->blocks().size() - 1);
    best = FastestOf(static_cast<int>(offered.size()), [&](int i, CUstream_st* stream) {
      return plans.Enqueue(offered[static_cast<size_t>(i)], addresses, memory->blocks().back(), stream);
    });
  } else if (offered.size() > 1) {
    libraries.Note("there is no memory to measure algorithms of " + problem.what + " in: it has the first");
  }
  if (best < 0 || !plans.Activate(offered[static_cast<size_t>(best)])) SelectByName(plans, first);
  if (const std::string chosen = plans.chosen(); !chosen.empty()) algorithms.Keep(problem.problem, chosen);
}

}  // namespace gradloom::cuda
