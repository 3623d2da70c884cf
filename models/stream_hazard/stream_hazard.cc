// The hazard of asynchronous streams: one stream slowly fills a 100 x 100 tensor with ones, another sums it without waiting. A plan without
// the wait is refused before it runs; with the event it is sound, and plans from the compiler have one.
//
//   bazel run //models/stream_hazard [-- FOLDER]     also writes both plans, for gradloom verify and gradloom inspect
#include <cstdio>
#include <memory>
#include <string>

#include "compiler/compile.h"
#include "runtime/base/error.h"
#include "runtime/exec/host_executor.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/text.h"
#include "runtime/plan/verify_plan.h"

namespace gradloom {
namespace {

const Shape kShape{100, 100};
constexpr int64_t kBytes = 100 * 100 * sizeof(float);

// one -> Expand on stream 0 -> ReduceSum on stream 1.
Plan TwoStreams(bool waits) {
  Plan plan;
  plan.targets.push_back({DeviceKind::kCpu, "any", 1});
  plan.constants.push_back({"one", 0, Tensor::Scalar<float>(1)});
  plan.constants.push_back({"shape", 64, Tensor::From<int64_t>({100, 100}, Shape{2})});
  plan.places[0].constants_bytes = 128;

  Program program;
  program.streams = {{StreamKind::kCompute}, {StreamKind::kCompute}};
  program.transient_bytes = kBytes + 64;
  program.buffers = {{.name = "one", .arena = Arena::kConstants, .bytes = 4, .dtype = DType::kFloat32},
                     {.name = "shape", .arena = Arena::kConstants, .offset = 64, .bytes = 16, .dtype = DType::kInt64, .shape = {2}},
                     {.name = "ones", .bytes = kBytes, .dtype = DType::kFloat32, .shape = kShape},
                     {.name = "sum", .offset = kBytes, .bytes = 4, .dtype = DType::kFloat32}};
  const auto launch = [&](int stream, const char* op, std::vector<Use> uses) {
    Instruction instruction{.stream = stream, .kernel = std::string("reference.") + op, .op = op, .uses = std::move(uses), .origin = op};
    if (instruction.op == "ReduceSum") instruction.attributes.set("keepdims", int64_t{0});
    program.instructions.push_back(std::move(instruction));
  };
  launch(0, "Expand", {{0, Access::kRead}, {1, Access::kRead}, {2, Access::kWrite}});
  if (waits) {
    program.num_events = 1;
    program.instructions.push_back({.kind = InstructionKind::kRecord, .stream = 0, .event = 0});
    program.instructions.push_back({.kind = InstructionKind::kWait, .stream = 1, .event = 0});
  }
  launch(1, "ReduceSum", {{2, Access::kRead}, {3, Access::kWrite}});
  plan.programs.push_back(std::move(program));

  Entry entry{.kind = EntryKind::kPredict};
  entry.fetches.push_back({"sum", 3});
  entry.ranks.push_back({});
  plan.entries.push_back(std::move(entry));
  return plan;
}

void PrintVerdict(const char* what, const Plan& plan) {
  std::printf("%s:\n", what);
  const auto faults = Verify(plan);
  for (const PlanFault& fault : faults) std::printf("  refused: %s: %s\n", fault.where.c_str(), fault.message.c_str());
  if (!faults.empty()) return;
  HostExecutor executor(std::make_shared<const Plan>(plan));
  // With random delays the sum is still correct.
  executor.SetChaos(1);
  int right = 0;
  for (int run = 0; run < 100; ++run) {
    executor.Run(0, {}, {});
    right += *static_cast<const float*>(executor.Fetched(0, 0).data) == 10000 ? 1 : 0;
  }
  std::printf("  sound: the sum was 10000 in %d of 100 runs with random delays\n", right);
}

// Two chains that are joined: the compiler puts one on a separate stream and makes the sum wait for it.
void Compiled() {
  const Model model = Model::FromText(R"(<ir_version: 10, opset_import: ["" : 17]>
two_chains (float[100, 100] x) => (float sum)
{
  a = Exp (x)
  b = MatMul (x, x)
  c = MatMul (a, b)
  sum = ReduceSum <keepdims = 0> (c)
})");
  CompileOptions options;
  options.recipe.streams = 2;
  options.entries = {{EntryKind::kPredict, 0}};
  const Plan plan = Compile(model, options);
  std::printf("what the compiler makes of two chains that join, on two streams:\n");
  for (const Instruction& i : plan.programs[0].instructions) {
    if (i.kind == InstructionKind::kRecord) std::printf("  stream %d  record event %d\n", i.stream, i.event);
    if (i.kind == InstructionKind::kWait) std::printf("  stream %d  wait for event %d\n", i.stream, i.event);
    if (i.kind == InstructionKind::kLaunch) std::printf("  stream %d  %s\n", i.stream, i.op.c_str());
  }
}

void Run(const std::string& folder) {
  const Plan without = TwoStreams(false), with = TwoStreams(true);
  PrintVerdict("without a wait", without);
  PrintVerdict("with an event", with);
  Compiled();
  if (folder.empty()) return;
  WritePlan(without, folder + "/without_wait.plan");
  WritePlan(with, folder + "/with_event.plan");
}

}  // namespace
}  // namespace gradloom

int main(int argc, char** argv) {
  try {
    gradloom::Run(argc > 1 ? argv[1] : "");
    return 0;
  } catch (const gradloom::Error& error) {
    std::fprintf(stderr, "%s\n", error.Describe().c_str());
    return gradloom::ExitCode(error.code());
  }
}
