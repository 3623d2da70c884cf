// The results of the scheduling passes, from which a program is emitted.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/graph/graph.h"
#include "kernels/catalog/kernel.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// The kernel of a node; set by choose_kernels.
struct KernelChoice {
  const KernelRow* row = nullptr;  // null: the node is a view, a copy, a collective, a branch or a loop
  int64_t scratch_bytes = 0;       // for a branch or a loop: for the intermediate values of its bodies; set by plan_memory
};

// The place of a value; set by plan_memory. Within a body a feed is an operand of its node: an input of the body or, numbered after these,
// a result of the node. Transient bytes are counted from the node's scratch memory.
struct Placement {
  Arena arena = Arena::kTransient;
  int64_t offset = 0;
  int feed = -1;
};

// A next value that could not be written directly into its state; it is copied there at the end of the step.
struct StateCopy {
  ValueId from = kNoValue;
  ValueId to = kNoValue;
};

// A node waits until a node of another stream has ended; set by insert_events. In the order of the list.
struct Wait {
  int node = 0, after = 0;  // positions in graph.nodes
};

struct ProgramPlan {
  DeviceKind device = DeviceKind::kCpu;
  int place = 0;            // of the ranks that will run it
  int threads = 1;          // threads of each stream
  int streams = 1;          // compute streams, plus one for collectives and one for input copies if there are any; set by choose_streams
  int comm_stream = -1;     // the stream for collectives
  int copy_stream = -1;     // the stream for input copies
  std::vector<int> stream;  // by position in graph.nodes; -1: a view, which launches nothing; empty: all on one stream
  std::vector<Wait> waits;
  int waits_bound = 0;                           // the fewest waits that keep this order; set by elide_events
  std::vector<Layout> layouts;                   // by value id, set by assign_layouts; beyond its end: plain
  std::vector<KernelChoice> kernels;             // by position in graph.nodes
  std::vector<std::vector<ProgramPlan>> bodies;  // by position in graph.nodes: bodies of a branch or a loop, on one stream; otherwise empty
  std::vector<Placement> placement;              // by value id; values that nothing uses stay transient at 0
  std::vector<int64_t> scratch_offset;           // by position in graph.nodes
  std::vector<StateCopy> copies;                 // in order, after the last node
  int64_t transient_bytes = 0;                   // size of the transient arena
  int64_t input_bytes = 0;                       // size of an input slot
  int64_t live_bytes_bound = 0;                  // the largest sum of bytes live at one node, a lower bound for any placement

  Layout layout(ValueId id) const { return static_cast<size_t>(id) < layouts.size() ? layouts[static_cast<size_t>(id)] : Layout{}; }
};

// The names of inputs that the host sets before each step; they are in the step arena, not in feeds.
inline constexpr char kStepLr[] = "step_params/lr";
inline constexpr char kStepLr64[] = "step_params/lr64";
inline constexpr char kStepNumber[] = "step_params/step";
inline constexpr char kStepBatch[] = "step_params/batch";
inline constexpr char kStepSeed[] = "step_params/seed";
inline constexpr char kStepFirst[] = "step_params/first";

}  // namespace gradloom
