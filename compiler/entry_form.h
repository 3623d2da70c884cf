// An entry of a plan as its callers see it: what it is fed, and what can be fetched. Private to this room.
#pragma once

#include <set>
#include <vector>

#include "compiler/divide_graph.h"

namespace gradloom {

// The model's inputs, in the order of the import, and what the passes have added (targets), with the axes along which samples lie.
std::vector<Feed> FeedList(const PassContext& context, const ImportedGraph& imported);

// The entry without its ranks and without the buffers of what is fetched.
Entry EntryOf(const EntryRequest& request, const ImportedGraph& imported, const PassContext& context);

// Notes where samples lie in an entry whose batch is divided; `whole` is the graph over all of it.
void DivideEntry(const Replication& replication, const Graph& whole, Entry& entry);

// The feeds of a divided entry of which a device's samples do not lie together.
std::set<ValueId> FeedsApart(const Graph& whole, const Entry& entry);

}  // namespace gradloom
