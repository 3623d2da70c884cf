// An entry of a plan as its callers see it: its feeds and fetches. Private to this directory.
#pragma once

#include <set>
#include <vector>

#include "compiler/divide_graph.h"

namespace gradloom {

// The model's inputs, in the order of the import, and the inputs that passes have added (targets), with the axes of their samples.
std::vector<Feed> FeedList(const PassContext& context, const ImportedGraph& imported);

// The entry without its ranks and without the buffers of its fetches.
Entry EntryOf(const EntryRequest& request, const ImportedGraph& imported, const PassContext& context);

// Records in an entry whose batch is divided where samples lie. `whole`: the graph over the whole batch.
void DivideEntry(const Replication& replication, const Graph& whole, Entry& entry);

// The feeds of a divided entry in which a device's samples are not contiguous.
std::set<ValueId> NonContiguousFeeds(const Graph& whole, const Entry& entry);

}  // namespace gradloom
