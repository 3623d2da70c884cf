// An entry of a plan as its callers see it: its feeds and fetches. Private to this directory.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/divide_graph.h"

namespace gradloom {

// Where a feed or fetch has its samples: its batch_axis and batch_inner.
struct SamplePlace {
  int axis = -1;
  int64_t inner = 0;
};

// Something about the feeds and the fetches of an entry, by name: a target may have the name of an output.
template <typename T>
struct FeedsAndFetches {
  std::map<std::string, T> feeds, fetches;

  bool empty() const { return feeds.empty() && fetches.empty(); }
};
using SamplePlaces = FeedsAndFetches<SamplePlace>;

// Where the feeds and fetches of an entry have their samples, if its shapes do not tell: if some input does not have them along its first
// axis, or if a feed or an output may have several positions of each sample along an axis, as scores that a model flattens to
// [batch * positions, classes]. In which order these are follows from a division of the batch. nullopt if the shapes tell: the first axis
// of each is that of the samples or has none. Otherwise the same for batches of all sizes, and empty if the model does not fit another one.
// `context`, `imported`: the entry at some stage of the passes.
std::optional<SamplePlaces> PlacesOfSamples(const Model& model, const CompileOptions& options, const EntryRequest& request,
                                            const PassContext& context, const ImportedGraph& imported);

// The model's inputs, in the order of the import, and the inputs that passes have added (targets), with the axes of their samples.
std::vector<Feed> FeedList(const PassContext& context, const ImportedGraph& imported, const SamplePlaces& places);

// The entry without its ranks and without the buffers of its fetches.
Entry EntryOf(const EntryRequest& request, const ImportedGraph& imported, const PassContext& context, const SamplePlaces& places);

// Records in an entry whose batch is divided where samples lie. `whole`: the graph over the whole batch.
void DivideEntry(const Replication& replication, const Graph& whole, Entry& entry);

// The feeds of a divided entry in which a device's samples are not contiguous.
std::set<ValueId> NonContiguousFeeds(const Graph& whole, const Entry& entry);

}  // namespace gradloom
