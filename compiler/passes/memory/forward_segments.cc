#include "compiler/passes/memory/forward_segments.h"

#include <algorithm>
#include <utility>

#include "compiler/ops/op.h"
#include "compiler/passes/schedule/node_order.h"

namespace gradloom {

bool CanRecompute(const Node& node, const std::vector<bool>& checked) {
  const Op* op = FindOp(node.domain, node.op);
  const auto is_checked = [&](ValueId id) { return id != kNoValue && checked[static_cast<size_t>(id)]; };
  if (std::any_of(node.outputs.begin(), node.outputs.end(), is_checked)) return false;
  return op != nullptr && !op->has(kCollective) && !op->has(kUpdate) && node.regions.empty();
}

ForwardSegments::ForwardSegments(const Graph& graph, const std::vector<bool>& saved, const std::vector<bool>& checked,
                                 std::function<double(const std::vector<int>& nodes)> seconds_of)
    : graph_(graph), seconds_of_(std::move(seconds_of)), shown_(saved.size()), made_of_(saved.size(), -1) {
  for (size_t id = 0; id < shown_.size(); ++id) shown_[id] = static_cast<ValueId>(id);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.phase != Phase::kForward) continue;
    const int at = static_cast<int>(forward_.size());
    forward_.push_back(static_cast<int>(i));
    ForEachUse(node, [&](ValueId id) {
      if (const int made = made_of_[static_cast<size_t>(shown(id))]; made >= 0) made_[static_cast<size_t>(made)].last = at;
    });
    if (IsView(node)) {
      shown_[static_cast<size_t>(node.outputs[0])] = shown(node.inputs[0]);
      continue;
    }
    for (ValueId id : node.outputs) {
      if (id == kNoValue) continue;
      const Value& value = graph.value(id);
      Made made{.id = id, .at = at, .last = at, .bytes = value.bytes(), .saved = saved[static_cast<size_t>(id)]};
      made.stays =
          !CanRecompute(node, checked) || value.next_of != kNoValue || value.role == Role::kGradient || made.bytes < kMinRecomputedBytes;
      made_of_[static_cast<size_t>(id)] = static_cast<int>(made_.size());
      made_.push_back(made);
    }
  }
  for (ValueId id : graph.outputs) {
    if (const int made = made_of_[static_cast<size_t>(shown(id))]; made >= 0) made_[static_cast<size_t>(made)].stays = true;
  }
  std::vector<int64_t> change(forward_.size() + 1, 0);
  saved_.assign(forward_.size(), 0);
  for (const Made& made : made_) {
    if (made.stays) continue;
    change[static_cast<size_t>(made.at)] += made.bytes;
    change[static_cast<size_t>(made.last)] -= made.bytes;
    if (made.saved) saved_[static_cast<size_t>(made.at)] += made.bytes;
  }
  boundary_.assign(forward_.size(), 0);
  for (size_t at = 0; at < forward_.size(); ++at) {
    boundary_[at] = change[at] + (at > 0 ? boundary_[at - 1] : 0);
    if (at > 0) saved_[at] += saved_[at - 1];
  }
}

// Returns the positions, each after a forward node, that divide the forward pass into segments of about `size` saved bytes.
std::vector<int> ForwardSegments::Cuts(int64_t size) const {
  std::vector<int> cuts;
  const int count = static_cast<int>(forward_.size());
  int64_t before = 0;  // saved by earlier segments
  int begin = 0;
  while (true) {
    const auto first_with = [&](int64_t bytes) {
      return static_cast<int>(std::lower_bound(saved_.begin() + begin, saved_.end(), before + bytes) - saved_.begin());
    };
    const int from = first_with(std::max<int64_t>(size / 2, 1)), to = first_with(size + size / 2);
    if (from >= count || to >= count) return cuts;
    int best = from;
    for (int at = from; at < to; ++at) {
      if (boundary_[static_cast<size_t>(at)] <= boundary_[static_cast<size_t>(best)]) best = at;
    }
    cuts.push_back(best);
    before = saved_[static_cast<size_t>(best)];
    begin = best + 1;
  }
}

// Returns the time of the nodes of a segment that make what is saved there and does not stay, from what stays or is made before.
// `crossing`: also what is read after the segment.
double ForwardSegments::SecondsFor(int begin, int end, bool crossing) const {
  std::vector<bool> needed(static_cast<size_t>(end - begin));
  std::vector<int> nodes;
  for (int at = end; at-- > begin;) {
    const int position = forward_[static_cast<size_t>(at)];
    const Node& node = graph_.nodes[static_cast<size_t>(position)];
    if (IsView(node)) continue;
    bool runs = needed[static_cast<size_t>(at - begin)];
    for (ValueId id : node.outputs) {
      if (id == kNoValue) continue;
      const Made& made = made_[static_cast<size_t>(made_of_[static_cast<size_t>(id)])];
      runs = runs || (made.saved && !made.stays && (crossing || made.last < end));
    }
    if (!runs) continue;
    nodes.push_back(position);
    ForEachUse(node, [&](ValueId id) {
      const int index = made_of_[static_cast<size_t>(shown(id))];
      if (index < 0) return;
      const Made& made = made_[static_cast<size_t>(index)];
      if (made.at >= begin && !made.stays) needed[static_cast<size_t>(made.at - begin)] = true;
    });
  }
  std::reverse(nodes.begin(), nodes.end());
  return seconds_of_(nodes);
}

std::vector<ForwardSegments::Segment> ForwardSegments::SegmentsOf(int64_t size) const {
  std::vector<int> ends;
  for (int cut : Cuts(size)) ends.push_back(cut + 1);
  ends.push_back(static_cast<int>(forward_.size()));
  std::vector<Segment> segments(ends.size());
  int begin = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    segments[i].end = ends[i];
    // The last one never runs again.
    if (i + 1 < ends.size()) {
      segments[i].seconds = SecondsFor(begin, ends[i], false);
      segments[i].seconds_last = SecondsFor(begin, ends[i], true);
    }
    begin = ends[i];
  }
  size_t own = 0;
  for (const Made& made : made_) {
    while (made.at >= ends[own]) ++own;
    if (made.stays) continue;
    const bool crosses = made.last >= ends[own];
    if (crosses) segments[own].crossing += made.bytes;
    if (made.saved) (crosses ? segments[own].saved_crossing : segments[own].saved_inside) += made.bytes;
  }
  return segments;
}

ForwardSegments::Option ForwardSegments::Best(int64_t size, int64_t wanted_bytes, const std::vector<RecomputeCandidate>& others) const {
  const std::vector<Segment> segments = SegmentsOf(size);
  const int64_t all = saved_.back();
  // What others may save in the segments from one on.
  std::vector<int64_t> others_from(segments.size() + 1, 0);
  const auto segment_of = [&](ValueId id) {
    const int at = made_[static_cast<size_t>(made_of_[static_cast<size_t>(id)])].at;
    return std::upper_bound(segments.begin(), segments.end(), at, [](int node, const Segment& segment) { return node < segment.end; }) -
           segments.begin();
  };
  for (const RecomputeCandidate& other : others) others_from[static_cast<size_t>(segment_of(other.value))] += other.bytes;
  for (size_t i = segments.size(); i-- > 0;) others_from[i] += others_from[i + 1];

  Option best;
  int64_t crossing = 0, rest = all, peak_again = 0;  // `crossing`: of the segments before the last that runs again
  double seconds = 0;
  for (size_t i = 0; i + 1 < segments.size(); ++i) {
    // Segment i runs again as well; it becomes the last one.
    if (i > 0) {
      crossing += segments[i - 1].crossing;
      peak_again = std::max(peak_again, crossing + segments[i - 1].saved_inside);
    }
    rest -= segments[i].saved_inside + segments[i].saved_crossing;
    seconds += i > 0 ? segments[i - 1].seconds : 0;
    const int64_t last = crossing + segments[i].saved_inside + segments[i].saved_crossing;
    const int64_t most_again = std::max(peak_again, last);
    const auto saving_with = [&](int64_t saved_by_others) { return all - std::max(crossing + rest - saved_by_others, most_again); };
    Option option{.size = size,
                  .count = static_cast<int>(i) + 1,
                  .saving = saving_with(others_from[i + 1]),
                  .own_saving = saving_with(0),
                  .seconds = seconds + segments[i].seconds_last};
    int64_t missing = wanted_bytes - option.own_saving;
    for (const RecomputeCandidate& other : others) {
      if (missing <= 0) break;
      if (segment_of(other.value) <= static_cast<int64_t>(i)) continue;
      option.seconds += other.seconds;
      missing -= other.bytes;
    }
    const bool enough = option.saving >= wanted_bytes, had_enough = best.saving >= wanted_bytes;
    if (best.count == 0 || (enough && (!had_enough || option.seconds < best.seconds)) || (!had_enough && option.saving > best.saving))
      best = option;
  }
  return best;
}

SegmentChoice ForwardSegments::ChoiceOf(const Option& option) const {
  const std::vector<Segment> segments = SegmentsOf(option.size);
  std::vector<int> ends;
  for (const Segment& segment : segments) ends.push_back(segment.end);
  SegmentChoice choice{.remade = std::vector<bool>(shown_.size()), .kept = std::vector<bool>(shown_.size())};
  const int end = ends[static_cast<size_t>(option.count) - 1];
  const int last_begin = option.count > 1 ? ends[static_cast<size_t>(option.count) - 2] : 0;
  for (const Made& made : made_) {
    if (made.at >= end || made.stays) continue;
    const int own_end = *std::upper_bound(ends.begin(), ends.end(), made.at);
    const bool crosses = made.at < last_begin && made.last >= own_end;
    (crosses ? choice.kept : choice.remade)[static_cast<size_t>(made.id)] = true;
    if (crosses || !made.saved) continue;
    ++choice.values;
    choice.bytes += made.bytes;
  }
  for (size_t id = 0; id < shown_.size(); ++id) {
    const auto of = static_cast<size_t>(shown_[id]);
    choice.remade[id] = choice.remade[of];
    choice.kept[id] = choice.kept[of];
  }
  for (int i = 0; i < option.count; ++i) {
    const Segment& segment = segments[static_cast<size_t>(i)];
    choice.seconds += i + 1 < option.count ? segment.seconds : segment.seconds_last;
  }
  choice.saving = option.own_saving;
  return choice;
}

SegmentChoice ForwardSegments::Choose(int64_t wanted_bytes, const std::vector<RecomputeCandidate>& others) const {
  if (saved_.empty() || saved_.back() == 0) return {};
  Option best;
  for (const int parts : {2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128}) {
    const Option option = Best(saved_.back() / parts, wanted_bytes, others);
    if (option.count == 0) continue;
    const bool enough = option.saving >= wanted_bytes, had_enough = best.count > 0 && best.saving >= wanted_bytes;
    if (best.count == 0 || (enough && (!had_enough || option.seconds < best.seconds)) || (!had_enough && option.saving > best.saving))
      best = option;
  }
  if (best.count == 0 || best.saving <= 0) return {};
  SegmentChoice choice = ChoiceOf(best);
  choice.enough = best.saving >= wanted_bytes;
  return choice;
}

}  // namespace gradloom
