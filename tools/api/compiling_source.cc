#include "tools/api/compiling_source.h"

namespace gradloom {
std::shared_ptr<const Plan> CompilingSource::Extend(const Plan& plan, EntryKind kind, const FeedShapes& feeds) {
  const std::lock_guard lock(mutex_);
  const std::optional<EntryRequest> request = RequestFor(model_, options_, kind, feeds);
  if (!request) return nullptr;
  return std::make_shared<const Plan>(AddEntry(model_, options_, plan, *request));
}

}  // namespace gradloom
