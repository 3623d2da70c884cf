// The passes from an imported graph to a program, and the runner that verifies, times and dumps around each of them.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/passes/devices/place_devices.h"
#include "compiler/passes/devices/shard_updates.h"
#include "compiler/passes/loss/loss_nodes.h"
#include "compiler/passes/memory/place_state.h"
#include "compiler/passes/memory/recompute.h"
#include "compiler/passes/recipe.h"
#include "compiler/passes/schedule/copy_inputs.h"
#include "compiler/passes/schedule/program_plan.h"

namespace gradloom {

// What the runner tells of passes, as asked for by PassControl.
class PassLog {
 public:
  virtual ~PassLog() = default;

  // `nodes`: of the graph that the pass leaves.
  virtual void Time(const char* pass, double ms, size_t nodes) = 0;
  // The graph that the pass leaves, as text.
  virtual void Dump(const char* pass, const std::string& graph) = 0;
};

// Developer options of the runner.
struct PassControl {
  std::string dump_after;             // the name of a pass, or "all": dump the graph after it if it changed
  std::string stop_after;             // run no pass after this one
  std::vector<std::string> disabled;  // optional passes to leave out
  bool time_passes = false;
  PassLog* log = nullptr;  // for dumps and times; null: none
};

// Passes before replicate_data see the whole batch; those after it see a device's part.
enum class PassStage : uint8_t { kBatch, kDevice };

// A graph on its way to becoming an entry's program, and what the passes share about it.
struct PassContext {
  Graph& graph;
  const TypeRules& rules;
  const Recipe& recipe;
  EntryKind kind;
  Plan& plan;                // state, constants and step layout are shared by all entries
  int64_t batch = 0;         // of the imported graph; 0: it has none
  int64_t samples = 1;       // of the entry's batch, on all devices together
  bool divided = false;      // the batch will be divided over devices
  Stages* stages = nullptr;  // if parts of the model are placed on devices of their own
  int place = 0;             // of the ranks that will run the program
  const StateHolders* holders = nullptr;
  const GradientOwners* gradient_owners = nullptr;  // if devices share out the optimizer's state
  InputCopies copies;
  RecomputeGoal recompute;
  Recomputed recomputed;
  bool keeps_settled = false;  // set by plan_memory: whether values that depend on weights alone have memory of their own

  ValueId file_loss = kNoValue;                           // loss of the file's own algorithm
  std::vector<std::pair<ValueId, ValueId>> file_updates;  // the states of that algorithm, with their next values
  LossNodes loss_nodes;
  ValueId loss = kNoValue;
  std::vector<ValueId> parameters;       // in the order of the state table
  std::set<ValueId> vectors;             // those of them that count as tensors of rank 1 (StoredVectors)
  std::map<ValueId, ValueId> gradients;  // by parameter
  ProgramPlan scheduled;
  Program program;
  size_t unfetched = 0;             // the last ones of graph.outputs, which are only there to be computed
  std::vector<int> output_buffers;  // by position in graph.outputs
  // The names under which outputs are fetched, if not the values' names: "loss", "loss/box", "grad_norm".
  std::map<ValueId, std::string> fetch_names;
  // Extents of the model's outputs that the data of a step decides: by output and axis, the scalar with the number of valid elements.
  OutputExtents extents;
  // The names under which targets are fed, if not the values' names.
  std::map<ValueId, std::string> feed_names;
};

// The stage of a pass, or the last stage if there is no pass of that name.
PassStage StageOfPass(const std::string& name);

// Runs every pass on the context; afterwards context.program is complete. Throws Error from any pass.
void RunPipeline(PassContext& context, const PassControl& control);

// Runs the passes of one stage; none if the control stops in an earlier one.
void RunStage(PassContext& context, const PassControl& control, PassStage stage);

}  // namespace gradloom
