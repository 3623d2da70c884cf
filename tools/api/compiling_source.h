// Entries for shapes that come later, compiled when they do.
#pragma once

#include <memory>
#include <mutex>

#include "compiler/compile.h"
#include "runtime/session/session.h"

namespace gradloom {

// Compiles the model that a plan was made of with one entry more. Sessions on several threads may share one.
class CompilingSource : public PlanSource {
 public:
  // What the plan was compiled of, and with.
  CompilingSource(Model model, CompileOptions options) : model_(std::move(model)), options_(std::move(options)) {}

  std::shared_ptr<const Plan> Extend(const Plan& plan, EntryKind kind, const FeedShapes& feeds) override;

 private:
  // All entries anew.
  Plan Again(const Plan& plan, const EntryRequest& request) const;

  const Model model_;
  const CompileOptions options_;
  std::mutex mutex_;  // one at a time: it takes all cores as it is
};

}  // namespace gradloom
