#include "compiler/derived_requests.h"

#include <bit>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "compiler/passes/update/accumulate.h"

namespace gradloom {

std::vector<EntryRequest> WithAccumulation(const CompileOptions& options, int copies) {
  if (options.recipe.accumulate <= 1) return options.entries;
  std::vector<EntryRequest> entries, others;
  for (EntryRequest request : options.entries) {
    if (request.kind != EntryKind::kStep) {
      others.push_back(request);
      continue;
    }
    request.kind = EntryKind::kAccumulate;
    entries.push_back(request);
    if (!KeepsParts(options.recipe, copies)) continue;
    request.kind = EntryKind::kLastBatch;
    entries.push_back(request);
  }
  // Before evaluations, which read the averages that updates make.
  if (!entries.empty()) entries.push_back({EntryKind::kUpdate, 0});
  entries.insert(entries.end(), others.begin(), others.end());
  return entries;
}

std::vector<EntryRequest> RequestsAt(const CompileOptions& options, const EntryRequest& request, int64_t batch, int64_t size) {
  constexpr size_t kMaxExtents = 3;  // each set of them is a reading of the file
  std::vector<EntryRequest> requests = {{request.kind, size, request.shapes}};
  std::map<std::string, int64_t> extents = options.import.shapes;
  for (const auto& [symbol, extent] : request.shapes) extents[symbol] = extent;
  std::erase_if(extents, [&](const auto& of) { return of.second < batch || of.second % batch != 0; });
  if (size == batch || extents.size() > kMaxExtents) return requests;
  const std::vector<std::pair<std::string, int64_t>> multiples(extents.begin(), extents.end());
  for (size_t wanted = 1; wanted <= multiples.size(); ++wanted) {
    for (unsigned set = 1; set < 1U << multiples.size(); ++set) {
      if (static_cast<size_t>(std::popcount(set)) != wanted) continue;
      EntryRequest scaled = requests.front();
      for (size_t i = 0; i < multiples.size(); ++i) {
        if ((set >> i & 1U) != 0) scaled.shapes[multiples[i].first] = multiples[i].second / batch * size;
      }
      requests.push_back(std::move(scaled));
    }
  }
  return requests;
}

}  // namespace gradloom
