// What the scheduling passes work out about a graph before a program is emitted from it.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/graph/graph.h"
#include "kernels/catalog/kernel.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// How a node runs: set by choose_kernels.
struct KernelChoice {
  const KernelRow* row = nullptr;  // null: the node is a view, a copy, a meeting of devices, a branch or a loop
  int64_t scratch_bytes = 0;       // of a branch or a loop: what its bodies use on the way; set by plan_memory
};

// Where a value lies: set by plan_memory. Within a body a feed is an operand of its node: an input of the body, or, counted on from these,
// what the node gives; transient bytes count from the node's scratch.
struct Placement {
  Arena arena = Arena::kTransient;
  int64_t offset = 0;
  int feed = -1;
};

// A next value that could not be written into its state directly: copied there at the end of the step.
struct StateCopy {
  ValueId from = kNoValue;
  ValueId to = kNoValue;
};

// A node begins when one of another stream has ended: set by insert_events. In the order of the list.
struct Wait {
  int node = 0, after = 0;  // positions in graph.nodes
};

struct ProgramPlan {
  DeviceKind device = DeviceKind::kCpu;
  int place = 0;            // of the ranks that will run it
  int threads = 1;          // of the team of each stream
  int streams = 1;          // of computation, one for meetings and one for input copies where there are any; set by choose_streams
  int comm_stream = -1;     // the one for meetings
  int copy_stream = -1;     // the one for input copies
  std::vector<int> stream;  // by position in graph.nodes; -1: a view, which launches nothing; empty: all on one
  std::vector<Wait> waits;
  int waits_bound = 0;                           // no choice of waits that keeps this order has fewer; set by elide_events
  std::vector<Layout> layouts;                   // by value id, set by assign_layouts; past its end: plain
  std::vector<KernelChoice> kernels;             // by position in graph.nodes
  std::vector<std::vector<ProgramPlan>> bodies;  // by position in graph.nodes: those of a branch or a loop, on one stream; else empty
  std::vector<Placement> placement;              // by value id; values that nothing uses stay transient at 0
  std::vector<int64_t> scratch_offset;           // by position in graph.nodes
  std::vector<StateCopy> copies;                 // in order, after the last node
  int64_t transient_bytes = 0;                   // what the placement needs
  int64_t input_bytes = 0;                       // an input slot
  int64_t live_bytes_bound = 0;                  // the largest sum of bytes alive at one node: no placement needs less

  Layout layout(ValueId id) const { return static_cast<size_t>(id) < layouts.size() ? layouts[static_cast<size_t>(id)] : Layout{}; }
};

// The names of inputs that the host sets before each step; they lie in the step arena, not in feeds.
inline constexpr char kStepLr[] = "step_params/lr";
inline constexpr char kStepNumber[] = "step_params/step";
inline constexpr char kStepBatch[] = "step_params/batch";
inline constexpr char kStepSeed[] = "step_params/seed";
inline constexpr char kStepFirst[] = "step_params/first";

}  // namespace gradloom
