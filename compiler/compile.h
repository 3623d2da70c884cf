// Compiles a model and a recipe to a verified plan.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/onnx/import.h"
#include "compiler/passes/pipeline.h"
#include "compiler/passes/recipe.h"
#include "compiler/passes/update/add_optimizer.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// A kind of entry at a global batch size. If the recipe accumulates, a training step becomes an accumulate entry, on several devices also a
// last-batch entry, for each batch size, and there is one update entry.
struct EntryRequest {
  EntryKind kind = EntryKind::kStep;  // kStep, kEval or kPredict
  int64_t batch = 0;                  // 0: the batch that the file declares
  // Extents of symbolic dimensions by name; others come from CompileOptions::import.
  std::map<std::string, int64_t> shapes = {};
  bool operator==(const EntryRequest&) const = default;
};

struct CompileOptions {
  Recipe recipe;
  // The first one fixes the state table; if any is a kStep, put one of those first.
  std::vector<EntryRequest> entries;
  ImportOptions import;  // its batch is set per entry
  PassControl control;
  // Whether the plan gets what the export of the trained model needs: the file with all tensors that are not trained, of at most 2 GiB.
  bool exports = true;
};

// What the compiler found out, to show to the user.
struct CompileReport {
  struct Reason {
    std::string name;    // of the initializer
    std::string reason;  // why it is trained, or why not
    // Of one that the recipe's optimizer updates.
    std::optional<UpdateRates> rates = {};
  };
  std::vector<Reason> trained;
  std::vector<Reason> frozen;
  int64_t trained_elements = 0;
  int64_t initializer_elements = 0;
  double step_flops = 0;               // of the first entry, on all devices together
  int64_t transient_bytes = 0;         // planned; the largest over all entries
  int64_t waits = 0, waits_bound = 0;  // waits for events in the first entry, and the fewest that keep its order
  int64_t live_bytes_bound = 0;        // lower bound for any placement of that entry's values
  int stages = 1;                      // number of devices that hold one copy of the model
  std::map<std::string, int> placed;   // if there are several: the stage of each node
  // If nodes relate samples: what the device that gathers them computes for the whole batch, in the first entry.
  struct Tail {
    std::string from, why;             // the first node that relates samples, and how
    int64_t nodes = 0, all_nodes = 0;  // of the forward pass and the loss: those of the tail, and all
    double flops_share = 0;            // of all floating-point operations of the entry
  };
  std::optional<Tail> tail;
  bool keeps_settled = false;         // whether a prediction or an evaluation keeps what it computes from weights alone
  Recomputed recomputed;              // of the program that recomputes most to fit the memory limit
  std::vector<std::string> warnings;  // one line each
  double import_ms = 0, passes_ms = 0, verify_ms = 0;
};

// The inputs of an entry, without compiling it: the model's inputs and the targets of the losses.
std::vector<Feed> FeedsOfEntry(const Model& model, const CompileOptions& options, const EntryRequest& request);

// What Compile would report about the weights: which are trained, which are not, and the warnings. Compiles nothing.
CompileReport ReportWeights(const Model& model, const CompileOptions& options);

// If the batch cannot be divided over devices because nodes relate samples, and the recipe permits it (Recipe::MayGatherRelated), these
// nodes and all that follow from them run on the first device, which gathers the samples. Throws Error of any class for a bad model or
// option, kConfig if PassControl::stop_after is given. The plan has passed VerifyOrThrow.
Plan Compile(const Model& model, const CompileOptions& options, CompileReport* report = nullptr);

// Runs the passes of each entry up to PassControl::stop_after, for what PassControl tells. There is no plan then. Throws like Compile.
void RunPasses(const Model& model, const CompileOptions& options);

// The request for an entry that is fed these shapes, by name; nullopt if the model cannot be fed them. Throws what FeedsOfEntry throws, if
// the model's inputs may have these shapes but something inside does not fit.
std::optional<EntryRequest> RequestFor(const Model& model, const CompileOptions& options, EntryKind kind,
                                       const std::map<std::string, Shape, std::less<>>& feeds);

// The plan with one more entry. Compile must have made `plan` from this model with these options (values of its state may be missing). The
// kind must be one that the plan has, or kEval or kPredict. Throws like Compile.
Plan AddEntry(const Model& model, const CompileOptions& options, const Plan& plan, const EntryRequest& request);

}  // namespace gradloom
