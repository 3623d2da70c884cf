// Compiles entries for new shapes when they first occur.
#pragma once

#include <memory>
#include <mutex>

#include "compiler/compile.h"
#include "runtime/session/session.h"

namespace gradloom {

// Compiles the model of a plan again with one more entry. Several sessions on different threads may share one source.
class CompilingSource : public PlanSource {
 public:
  // The model and the options that the plan was compiled from.
  CompilingSource(Model model, CompileOptions options) : model_(std::move(model)), options_(std::move(options)) {}

  std::shared_ptr<const Plan> Extend(const Plan& plan, EntryKind kind, const FeedShapes& feeds) override;

 private:
  const Model model_;
  const CompileOptions options_;
  std::mutex mutex_;  // compiles one at a time, because one compilation uses all cores
};

}  // namespace gradloom
