// Segments of the forward pass that the backward pass runs again (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "compiler/graph/graph.h"

namespace gradloom {

// A saved value that could be recomputed, its bytes, and the time that recomputing it takes.
struct RecomputeCandidate {
  ValueId value = kNoValue;
  int64_t bytes = 0;
  double seconds = 0;
};

// Whether the backward pass may run the node again. `checked`: CheckedValues. A copy that refuses the batch would do so too late, when
// other devices may have changed their state.
bool CanRecompute(const Node& node, const std::vector<bool>& checked);

// Smaller values are not worth a launch.
inline constexpr int64_t kMinRecomputedBytes = 1 << 10;

// Which segments run again. All are at the beginning of the forward pass: what they make would be kept longest.
struct SegmentChoice {
  // By value id; views have the entries of the values that they show.
  std::vector<bool> remade;  // made again when the backward pass first needs it
  std::vector<bool> kept;    // crosses into a segment that runs again
  int values = 0;            // of those made again, how many the backward pass reads
  int64_t bytes = 0;         // their sum
  int64_t saving = 0;        // an estimate of by how much less memory is in use at its peak, compared with keeping all
  bool enough = false;       // whether this, with what others save, is what was wanted
  double seconds = 0;
};

// Divides the forward pass at positions that few bytes cross, and estimates what is gained if the segments before a position run again. Of
// a segment that does, what crosses into a later one that does as well is kept, what the backward pass cannot make again, and what is
// small. Its other values are made again when the backward pass first reads them, or one that depends on them.
class ForwardSegments {
 public:
  // `saved`: by value id, whether the backward pass reads it. `checked`: CheckedValues. `seconds_of`: the time that the nodes at these
  // positions take.
  ForwardSegments(const Graph& graph, const std::vector<bool>& saved, const std::vector<bool>& checked,
                  std::function<double(const std::vector<int>& nodes)> seconds_of);

  // Returns the choice that saves the bytes in the least time, if in addition as many of the others' bytes as necessary are saved in
  // segments that do not run again; if none does, the one that saves the most. `others`: values that can be recomputed alone, those first
  // whose bytes cost the least time. Empty if there is nothing to gain.
  SegmentChoice Choose(int64_t wanted_bytes, const std::vector<RecomputeCandidate>& others) const;

 private:
  // A value that a forward node makes and that is no view.
  struct Made {
    ValueId id = kNoValue;
    int at = 0;    // forward nodes are counted from 0
    int last = 0;  // the last forward node that reads it or a view of it
    int64_t bytes = 0;
    bool saved = false;
    bool stays = false;  // whatever is chosen
  };
  // What a segment between two cuts makes. Bytes of values that do not stay in any case.
  struct Segment {
    int end = 0;  // after its last forward node
    int64_t crossing = 0, saved_inside = 0, saved_crossing = 0;
    double seconds = 0, seconds_last = 0;  // to make what is saved inside, or, of the last segment that runs again, all that is saved
  };
  // The first `count` of the segments that a size leads to run again.
  struct Option {
    int64_t size = 0;
    int count = 0;
    int64_t saving = 0, own_saving = 0;  // with and without that of the others
    double seconds = 0;
  };

  ValueId shown(ValueId id) const { return shown_[static_cast<size_t>(id)]; }
  std::vector<int> Cuts(int64_t size) const;
  std::vector<Segment> SegmentsOf(int64_t size) const;
  double SecondsFor(int begin, int end, bool crossing) const;
  Option Best(int64_t size, int64_t wanted_bytes, const std::vector<RecomputeCandidate>& others) const;
  SegmentChoice ChoiceOf(const Option& option) const;

  const Graph& graph_;
  const std::function<double(const std::vector<int>&)> seconds_of_;
  std::vector<ValueId> shown_;     // by value id: what a view shows, or the value itself
  std::vector<int> forward_;       // positions of forward nodes
  std::vector<Made> made_;         // in the order in which they are made
  std::vector<int> made_of_;       // by value id: index in made_; -1: none
  std::vector<int64_t> boundary_;  // by forward node: the bytes that cross the position after it and do not stay in any case
  std::vector<int64_t> saved_;     // by forward node: the saved bytes made up to it
};

}  // namespace gradloom
