#include "tools/api/compiling_source.h"

#include <algorithm>
#include <utility>

namespace gradloom {
namespace {

FeedShapes ShapesOf(const Entry& entry) {
  FeedShapes shapes;
  for (const Feed& feed : entry.feeds) shapes.emplace(feed.name, feed.shape);
  return shapes;
}

}  // namespace

std::shared_ptr<const Plan> CompilingSource::Extend(const Plan& plan, EntryKind kind, const FeedShapes& feeds) {
  const std::lock_guard lock(mutex_);
  const std::optional<EntryRequest> request = RequestFor(model_, options_, kind, feeds);
  if (!request) return nullptr;
  // If devices hold parts of the model, the placement is chosen for the plan as a whole.
  return std::make_shared<const Plan>(options_.recipe.place_auto ? Recompile(plan, *request) : AddEntry(model_, options_, plan, *request));
}

Plan CompilingSource::Recompile(const Plan& plan, const EntryRequest& request) const {
  CompileOptions options = options_;
  options.entries.clear();
  // If the recipe accumulates, a step is requested: its accumulate and last-batch entries and the update entry follow from it.
  const bool counted = options.recipe.accumulate > 1;
  const auto add = [&](EntryRequest wanted) {
    if (counted && (wanted.kind == EntryKind::kAccumulate || wanted.kind == EntryKind::kLastBatch)) wanted.kind = EntryKind::kStep;
    if (std::find(options.entries.begin(), options.entries.end(), wanted) == options.entries.end())
      options.entries.push_back(std::move(wanted));
  };
  for (const Entry& entry : plan.entries) {
    if (entry.kind == EntryKind::kUpdate) {
      if (!counted) options.entries.push_back({entry.kind, entry.batch});
    } else if (std::optional<EntryRequest> made = RequestFor(model_, options_, entry.kind, ShapesOf(entry))) {
      add(std::move(*made));
    }
  }
  add(request);
  return Compile(model_, options);
}

}  // namespace gradloom
