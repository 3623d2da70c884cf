#include "runtime/plan/entry_names.h"

#include <algorithm>

#include "runtime/plan/text.h"

namespace gradloom {

std::string EntryName(const Entry& entry) {
  return EntryKindName(entry.kind) + (entry.batch > 0 ? " of " + std::to_string(entry.batch) : std::string());
}

std::string EntryTitle(const Plan& plan, size_t program) {
  std::string title;
  for (const Entry& entry : plan.entries) {
    const bool runs = std::any_of(entry.ranks.begin(), entry.ranks.end(),
                                  [&](const RankBinding& rank) { return rank.program == static_cast<int>(program); });
    if (!runs) continue;
    title += (title.empty() ? "" : ", ") + EntryName(entry);
  }
  return title.empty() ? "program " + std::to_string(program) : title;
}

}  // namespace gradloom
