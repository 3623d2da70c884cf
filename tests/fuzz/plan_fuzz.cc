// Fuzzes plan files: what can be read is verified or refused, and printed in every format.
#include <google/protobuf/message.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "compiler/compile.h"
#include "compiler/cost/simulate.h"
#include "compiler/verify_launches.h"
#include "runtime/base/file.h"
#include "runtime/base/hash.h"
#include "runtime/plan/memory_report.h"
#include "runtime/plan/plan.pb.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/text.h"
#include "runtime/plan/verify_plan.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/message_mutator.h"

namespace gradloom {
namespace {

constexpr size_t kHeaderBytes = 64;

int64_t NumberAt(const std::string& bytes, size_t at) {
  int64_t number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

// Corrects the header for the bytes after it. The message ends where the header said, or at the end of the file.
std::string Repaired(std::string bytes) {
  if (bytes.size() < kHeaderBytes) return bytes;
  const int64_t behind = static_cast<int64_t>(bytes.size() - kHeaderBytes);
  int64_t message = NumberAt(bytes, 16);
  if (message < 0 || message > behind) message = behind;
  const int64_t data = (static_cast<int64_t>(kHeaderBytes) + message + 63) / 64 * 64;
  bytes.resize(std::max(bytes.size(), static_cast<size_t>(data)));
  const int64_t sizes[] = {message, data, static_cast<int64_t>(bytes.size()) - data, 0};
  std::memcpy(bytes.data() + 16, sizes, sizeof sizes);
  const uint64_t hash = HashOf(bytes);
  std::memcpy(bytes.data() + 40, &hash, sizeof hash);
  return bytes;
}

void ReadAndShow(const std::string& bytes) {
  const FileInMemory file(bytes);
  MayRefuse([&] {
    const Plan plan = ReadPlan(file.path());
    if (PlanText(plan).empty()) Finding("a plan without a text");
    VerifyLaunches(plan);
    VerifyOrThrow(plan);
    ReportMemory(plan);
    IndependentRanks(plan);
    if (!plan.entries.empty()) Simulate(plan, 0, LocalCluster(plan.targets.front().device, 2));
  });
}

std::string Compiled(int devices, int streams) {
  const auto numbers = [](int count) {
    std::string text = "0.5";
    for (int i = 1; i < count; ++i) text += ", " + std::to_string(i % 7) + ".25";
    return " = {" + text + "}";
  };
  const Model model = Model::FromText("<ir_version: 8, opset_import: [\"\" : 17]> g (float[N, 4] x) => (float[N, 3] y) <float[4, 8] w" +
                                      numbers(32) + ", float[8] b" + numbers(8) + ", float[8, 3] v" + numbers(24) +
                                      "> { h = Gemm (x, w, b)  r = Relu (h)  s = Sigmoid (h)  m = Add (r, s)  y = MatMul (m, v) }");
  CompileOptions options;
  options.recipe.losses = {{.type = "mse", .output = "y"}};
  options.recipe.threads = 1;
  options.recipe.devices = devices;
  options.recipe.streams = streams;
  options.recipe.copy_inputs = devices > 1;
  options.entries = {{EntryKind::kStep, 4}, {EntryKind::kEval, 4}};
  const std::string path = std::string(std::getenv("TEST_TMPDIR") == nullptr ? "/tmp" : std::getenv("TEST_TMPDIR")) + "/fuzz-seed.plan";
  WritePlan(Compile(model, options), path);
  return ReadWholeFile(path);
}

}  // namespace

std::vector<std::string> FuzzSeeds() { return {Compiled(1, 1), Compiled(1, 2), Compiled(2, 2)}; }

}  // namespace gradloom

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  using namespace gradloom;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  file::Plan message;
  const int64_t length = size < kHeaderBytes ? -1 : NumberAt(bytes, 16), start = size < kHeaderBytes ? 0 : NumberAt(bytes, 24);
  if (length < 0 || length > static_cast<int64_t>(size - kHeaderBytes) || start < 0 || start > static_cast<int64_t>(size) ||
      !message.ParseFromArray(bytes.data() + kHeaderBytes, static_cast<int>(length))) {
    return size;
  }
  MutateMessage(message, seed);
  const std::string text = message.SerializeAsString(), tail = bytes.substr(static_cast<size_t>(start));
  std::string made = bytes.substr(0, kHeaderBytes) + text;
  const auto message_bytes = static_cast<int64_t>(text.size());
  std::memcpy(made.data() + 16, &message_bytes, sizeof message_bytes);
  made.resize((made.size() + 63) / 64 * 64);
  made += tail;
  if (made.size() > max_size) return size;
  std::memcpy(data, made.data(), made.size());
  return made.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  gradloom::ReadAndShow(bytes);
  gradloom::ReadAndShow(gradloom::Repaired(bytes));
  return 0;
}
