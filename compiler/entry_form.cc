#include "compiler/entry_form.h"

#include <algorithm>

namespace gradloom {
namespace {

// Targets and outputs have the batch as their first axis, if they have one, unless `places` says otherwise.
SamplePlace PlaceOf(const std::string& name, const Shape& shape, int64_t batch, const std::map<std::string, SamplePlace>& places) {
  const auto known = places.find(name);
  if (known != places.end()) return known->second.axis < shape.rank() ? known->second : SamplePlace();
  return {batch > 0 && shape.rank() > 0 && shape[0] == batch ? 0 : -1};
}

// The feed of which a fetch is the gradient; null if it is none.
const Feed* FedFor(const Entry& entry, const Value& fetched, const std::string& name) {
  const auto found = std::ranges::find_if(entry.feeds, [&](const Feed& feed) { return name == "grad/" + feed.name; });
  return fetched.role == Role::kGradient && found != entry.feeds.end() ? &*found : nullptr;
}

// Feed::index_extent of each input that reaches the indices of a Gather over a weight, perhaps through operators that keep its integers.
std::map<ValueId, int64_t> IndexExtents(const Graph& graph) {
  std::map<ValueId, ValueId> integers;  // of a value: the input that has them
  for (const ValueId id : graph.inputs) {
    if (IsInteger(graph.value(id).dtype)) integers.emplace(id, id);
  }
  std::map<ValueId, ValueId> weights;  // of a value: the weight that it is, perhaps in another type
  const auto weight_of = [&](ValueId id) {
    const auto found = weights.find(id);
    if (found != weights.end()) return found->second;
    const Role role = graph.value(id).role;
    return role == Role::kParam || role == Role::kConst || role == Role::kState ? id : kNoValue;
  };
  std::map<ValueId, int64_t> extents;
  for (const Node& node : graph.nodes) {
    if (!node.domain.empty() || node.inputs.empty() || node.outputs.empty()) continue;
    const bool casts = node.op == "Cast" || node.op == "Identity";
    if (const auto found = integers.find(node.inputs[0]); found != integers.end()) {
      const bool keeps = KeepsElements(node) || casts || node.op == "Transpose" || node.op == "Expand";
      if (keeps && IsInteger(graph.value(node.outputs[0]).dtype)) integers.emplace(node.outputs[0], found->second);
    } else if (casts && weight_of(node.inputs[0]) != kNoValue) {
      weights.emplace(node.outputs[0], weight_of(node.inputs[0]));
    }
    if (node.op != "Gather" || node.inputs.size() != 2) continue;
    const auto found = integers.find(node.inputs[1]);
    const ValueId weight = weight_of(node.inputs[0]);
    if (found == integers.end() || weight == kNoValue) continue;
    const Shape& shape = graph.value(weight).shape;
    const std::optional<int> axis = NormalAxis(node.attributes.Int("axis", 0), shape.rank());
    if (!axis || shape[*axis] < 1) continue;
    int64_t& extent = extents[found->second];
    extent = extent == 0 ? shape[*axis] : std::min(extent, shape[*axis]);
  }
  return extents;
}

template <typename FeedOrFetch>
static void Divide(const Shard& shard, FeedOrFetch& tensor) {
  tensor.batch_axis = shard.split() ? shard.axis : -1;
  tensor.batch_inner = shard.split() ? shard.inner : 0;
}

}  // namespace

std::vector<Feed> FeedList(const PassContext& context, const ImportedGraph& imported, const SamplePlaces& places) {
  const Graph& graph = context.graph;
  std::map<ValueId, size_t> position;
  for (size_t i = 0; i < graph.inputs.size(); ++i) position.emplace(graph.inputs[i], i);
  const std::map<ValueId, int64_t> extents = IndexExtents(graph);
  std::vector<Feed> feeds;
  for (ValueId id : FeedsOf(graph)) {
    const Value& value = graph.value(id);
    // The model's own inputs come first, in the order of the import.
    const size_t at = position.at(id);
    const auto named = context.feed_names.find(id);
    const std::string& name = named != context.feed_names.end() ? named->second : value.name;
    SamplePlace place{at < imported.batch_axes.size() ? imported.batch_axes[at] : -1};
    // The import knows only axes whose extent is the batch.
    const bool is_input = at < imported.batch_axes.size();
    if (!is_input || (place.axis < 0 && places.feeds.contains(name))) place = PlaceOf(name, value.shape, imported.batch, places.feeds);
    feeds.push_back({name, value.dtype, value.shape, place.axis, place.inner});
    if (const auto found = extents.find(id); found != extents.end()) feeds.back().index_extent = found->second;
  }
  return feeds;
}

Entry EntryOf(const EntryRequest& request, const ImportedGraph& imported, const PassContext& context, const SamplePlaces& places) {
  Entry entry{.kind = request.kind, .batch = request.kind == EntryKind::kUpdate ? 0 : imported.batch};
  entry.feeds = FeedList(context, imported, places);
  for (size_t i = 0; i < context.graph.outputs.size(); ++i) {
    const ValueId id = context.graph.outputs[i];
    const auto named = context.fetch_names.find(id);
    const Value& value = context.graph.value(id);
    const std::string& name = named != context.fetch_names.end() ? named->second : value.name;
    const Feed* const fed = FedFor(entry, value, name);
    const SamplePlace place =
        fed != nullptr ? SamplePlace{fed->batch_axis, fed->batch_inner} : PlaceOf(name, value.shape, entry.batch, places.fetches);
    entry.fetches.push_back({name, -1, place.axis, place.inner});
  }
  const std::vector<ValueId>& outputs = context.graph.outputs;
  for (const auto& [output, extents] : imported.extents) {
    const auto place = [&](ValueId id) { return static_cast<size_t>(std::find(outputs.begin(), outputs.end(), id) - outputs.begin()); };
    if (place(output) == outputs.size()) continue;
    Fetch& fetch = entry.fetches[place(output)];
    // An extent that only happens to equal the batch is not one of samples.
    fetch.batch_axis = -1;
    fetch.batch_inner = 0;
    for (const auto& [axis, count] : extents) fetch.extents.push_back({axis, static_cast<int>(place(count))});
  }
  return entry;
}

void DivideEntry(const Replication& replication, const Graph& whole, Entry& entry) {
  const std::vector<ValueId> feeds = FeedsOf(whole);
  for (size_t i = 0; i < entry.feeds.size(); ++i) Divide(replication.shard(feeds[i]), entry.feeds[i]);
  for (size_t i = 0; i < entry.fetches.size(); ++i) Divide(replication.shard(whole.outputs[i]), entry.fetches[i]);
}

std::set<ValueId> NonContiguousFeeds(const Graph& whole, const Entry& entry) {
  std::set<ValueId> apart;
  const std::vector<ValueId> feeds = FeedsOf(whole);
  for (size_t i = 0; i < entry.feeds.size(); ++i) {
    const Feed& feed = entry.feeds[i];
    const auto samples = SamplesIn(feed.shape, feed.batch_axis, feed.batch_inner, entry.batch);
    if (samples && samples->outer > 1) apart.insert(feeds[i]);
  }
  return apart;
}

}  // namespace gradloom
