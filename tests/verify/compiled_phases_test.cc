// The phases that plans note for their instructions, in compiled plans of real models, on several streams and devices. That no instruction
// reads what a later phase writes is checked by the verifier, at the end of each compilation.
#include <algorithm>
#include <set>
#include <string>

#include "compiler/compile.h"
#include "gtest/gtest.h"
#include "runtime/plan/entry_names.h"
#include "tests/conformance/random_placement.h"
#include "tests/conformance/training_case.h"

namespace gradloom {
namespace {

const char* const kCases[] = {"cases/housing_mlp",
                              "cases/lenet",
                              "cases/lstm_classifier",
                              "cases/tiny_gpt",
                              "cases/resnet_cifar",
                              "recorded/clip_accumulate",
                              "recorded/control_until",
                              "recorded/control_branches",
                              "recorded/related_nt_xent_six_dynamo"};

struct Variant {
  int streams, devices, stages = 1;
};

Plan PlanOf(const TrainingCase& recorded, const Variant& variant) {
  CompileOptions options;
  options.recipe = recorded.recipe;
  options.recipe.threads = 1;
  options.recipe.streams = variant.streams;
  options.recipe.devices = variant.devices;
  options.recipe.copy_inputs = variant.streams == 2;
  options.entries = {{EntryKind::kStep, recorded.batch_sizes.front()}, {EntryKind::kEval, recorded.batch_sizes.front()}};
  const Model model = Model::Load(recorded.model_path);
  if (variant.stages > 1) options.recipe.place = RandomPlacement(model, options, variant.stages, 1);
  return Compile(model, options);
}

bool IsCopiedAhead(const Program& program, const Instruction& instruction) {
  return program.streams[static_cast<size_t>(instruction.stream)].kind == StreamKind::kCopy;
}

bool WritesTrainedState(const Plan& plan, const Program& program, const Instruction& instruction) {
  return std::any_of(instruction.uses.begin(), instruction.uses.end(), [&](const Use& use) {
    if (use.access != Access::kWrite || use.buffer < 0) return false;
    const Buffer& buffer = program.buffers[static_cast<size_t>(use.buffer)];
    return buffer.arena == Arena::kState && std::any_of(plan.state.begin(), plan.state.end(), [&](const StateTensor& state) {
             return (state.kind == StateKind::kParameter || state.kind == StateKind::kOptimizer) && state.in_place(program.place) &&
                    state.offset < buffer.offset + buffer.bytes && buffer.offset < state.offset + state.bytes;
           });
  });
}

// Checks the instructions of a program of an entry, and returns their phases.
std::set<PlanPhase> CheckPhases(const Plan& plan, const Program& program, EntryKind kind) {
  std::set<PlanPhase> found;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const bool signals = instruction.kind == InstructionKind::kRecord || instruction.kind == InstructionKind::kWait;
    SCOPED_TRACE("#" + std::to_string(i) + " " + instruction.op + " '" + instruction.origin + "'");
    EXPECT_EQ(instruction.phase == PlanPhase::kNone, signals || IsCopiedAhead(program, instruction));
    if (instruction.phase == PlanPhase::kNone) continue;
    found.insert(instruction.phase);
    if (kind == EntryKind::kUpdate || WritesTrainedState(plan, program, instruction)) {
      EXPECT_EQ(instruction.phase, PlanPhase::kUpdate);
    }
    if (kind == EntryKind::kEval || kind == EntryKind::kPredict) {
      EXPECT_EQ(instruction.phase, PlanPhase::kForward);
    }
    // No operator of this name computes anything of a forward pass.
    if (instruction.op.ends_with("Grad")) {
      EXPECT_EQ(instruction.phase, PlanPhase::kBackward);
    }
    for (const Program& body : instruction.bodies) {
      for (const Instruction& inner : body.instructions) EXPECT_EQ(inner.phase, instruction.phase);
    }
  }
  return found;
}

void CheckPlan(const Plan& plan) {
  for (const Entry& entry : plan.entries) {
    SCOPED_TRACE(EntryName(entry));
    std::set<PlanPhase> found;
    for (size_t r = 0; r < entry.ranks.size(); ++r) {
      const Program& program = plan.programs[static_cast<size_t>(entry.ranks[r].program)];
      found.merge(CheckPhases(plan, program, entry.kind));
      for (size_t f = 0; f < entry.fetches.size(); ++f) {
        const int loss = entry.fetches[f].name == "loss" ? FetchedBuffer(entry, r, f) : -1;
        for (const Instruction& instruction : program.instructions) {
          const bool writes = std::any_of(instruction.uses.begin(), instruction.uses.end(),
                                          [&](const Use& use) { return loss >= 0 && use.access == Access::kWrite && use.buffer == loss; });
          // A loss of several devices may be summed together with gradients.
          if (writes && !Communicates(instruction)) {
            EXPECT_EQ(instruction.phase, PlanPhase::kForward) << instruction.op;
          }
        }
      }
    }
    if (entry.kind != EntryKind::kStep && entry.kind != EntryKind::kLastBatch) continue;
    EXPECT_EQ(found, (std::set{PlanPhase::kForward, PlanPhase::kBackward, PlanPhase::kUpdate}));
  }
}

TEST(CompiledPhases, FollowTheStep) {
  for (const char* name : kCases) {
    const TrainingCase recorded = ReadTrainingCase(std::string("tests/conformance/") + name);
    const std::string case_name = name;
    for (const Variant& variant : {Variant{1, 1}, {2, 1}, {1, 2}, {2, 3}, {1, 3, 3}, {1, 4, 2}}) {
      if (case_name.starts_with("recorded/control_") && variant.devices > 1) continue;
      if (case_name.starts_with("recorded/related_") && variant.stages > 1) continue;
      SCOPED_TRACE(case_name + " on " + std::to_string(variant.devices) + " devices in " + std::to_string(variant.stages) + " stages, " +
                   std::to_string(variant.streams) + " streams");
      CheckPlan(PlanOf(recorded, variant));
    }
  }
}

}  // namespace
}  // namespace gradloom
