// An entry of a plan as its callers see it: its feeds and fetches. Private to this directory.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/divide_graph.h"

namespace gradloom {

// The shapes of an entry's feeds and fetches at another batch size, by name: a target may have the name of an output.
struct OtherShapes {
  std::map<std::string, Shape> feeds, fetches;
};

// Where targets and outputs have their samples, if some input of the model does not have them along its first axis: the axis whose extent
// is another at another batch size. Empty if all inputs have them along their first axes, as targets and outputs then do, too, or if the
// model does not fit another batch size.
OtherShapes ShapesAtAnotherBatch(const Model& model, const CompileOptions& options, const EntryRequest& request,
                                 const ImportedGraph& imported);

// The model's inputs, in the order of the import, and the inputs that passes have added (targets), with the axes of their samples.
std::vector<Feed> FeedList(const PassContext& context, const ImportedGraph& imported, const OtherShapes& others);

// The entry without its ranks and without the buffers of its fetches.
Entry EntryOf(const EntryRequest& request, const ImportedGraph& imported, const PassContext& context, const OtherShapes& others);

// Records in an entry whose batch is divided where samples lie. `whole`: the graph over the whole batch.
void DivideEntry(const Replication& replication, const Graph& whole, Entry& entry);

// The feeds of a divided entry in which a device's samples are not contiguous.
std::set<ValueId> NonContiguousFeeds(const Graph& whole, const Entry& entry);

}  // namespace gradloom
