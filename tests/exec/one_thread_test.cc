// A plan for one thread, and a model that is read with one, start no other thread: a program that has given them a core has others for its
// other cores.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/base/run_on_threads.h"
#include "runtime/session/session.h"
#include "tests/base/temporary_folder.h"
#include "tests/passes/small_training.h"

namespace {

std::atomic<int> threads_started{0};

}  // namespace

// Replaces the system's in this program, and counts.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) noexcept {
  static auto* const system = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  ++threads_started;
  return system(thread, attributes, run, argument);
}

namespace gradloom {
namespace {

// A field of a message of protobuf.
std::string Field(int number, const std::string& bytes) {
  std::string text(1, static_cast<char>(number << 3 | 2));
  uint64_t left = bytes.size();
  for (; left >= 128; left >>= 7) text += static_cast<char>(left | 128);
  return text + static_cast<char>(left) + bytes;
}

std::string Field(int number, uint64_t value) {
  std::string text(1, static_cast<char>(number << 3));
  for (; value >= 128; value >>= 7) text += static_cast<char>(value | 128);
  return text + static_cast<char>(value);
}

std::string FloatTensorType(uint64_t rows, uint64_t columns) {
  const std::string shape = Field(1, Field(1, rows)) + Field(1, Field(1, columns));
  return Field(2, Field(1, Field(1, uint64_t{1}) + Field(2, shape)));
}

// z = x w + w in a file, with a weight so large that several threads would read, check and hash it.
std::string LargeModel() {
  constexpr uint64_t kSize = 2048;
  const std::string weight = Field(1, kSize) + Field(1, kSize) + Field(2, uint64_t{1}) + Field(8, "w") +
                             Field(9, std::string(kSize * kSize * sizeof(float), '\0'));
  const std::string node = Field(1, "x") + Field(1, "w") + Field(2, "z") + Field(4, "MatMul");
  const std::string graph = Field(1, node) + Field(2, "g") + Field(5, weight) + Field(11, Field(1, "x") + FloatTensorType(4, kSize)) +
                            Field(12, Field(1, "z") + FloatTensorType(4, kSize));
  return Field(1, uint64_t{8}) + Field(7, graph) + Field(8, Field(1, "") + Field(2, uint64_t{17}));
}

TEST(OneThread, ReadsAModel) {
  const TemporaryFolder folder;
  const std::string path = folder / "large.onnx";
  std::ofstream(path, std::ios::binary) << LargeModel();
  for (const int threads : {1, 0}) {
    const int before = threads_started;
    LoadOptions options;
    options.threads = threads;
    EXPECT_EQ(Model::Load(path, options).input_names(), std::vector<std::string>{"x"});
    const int started = threads_started - before;
    EXPECT_GE(started, threads == 0 && NumCores() > 1 ? 1 : 0);
    EXPECT_LE(started, threads == 1 ? 0 : 1000);
  }
}

TEST(OneThread, InitializesAndTrains) {
  std::mt19937 random(3);
  std::string weights, body, x = "x";
  for (int layer = 0; layer < 6; ++layer) {
    const std::string n = std::to_string(layer);
    weights += (layer == 0 ? "" : ", ") + Weights(random, "w" + n, {32, 32});
    body += "  h" + n + " = MatMul (" + x + ", w" + n + ")\n  r" + n + " = Relu (h" + n + ")\n";
    x = "r" + n;
  }
  const Model model = ModelOf("net (float[N, 32] x) => (float[N, 32] z) <" + weights + "> {\n" + body + "  z = Identity (r5)\n}");
  CompileOptions options = OptionsFor({{.type = "mse", .output = "z", .target = "t"}}, 1, {});
  options.entries = {{EntryKind::kStep, 8}, {EntryKind::kEval, 8}};
  const Batch batch{{"x", Random(random, Shape{8, 32})}, {"t", Random(random, Shape{8, 32})}};
  const int before = threads_started;
  Session session(std::make_shared<const Plan>(Compile(model, options)));
  session.Step(Views(batch));
  session.Forward(EntryKind::kEval, Views(batch));
  EXPECT_EQ(threads_started, before);
}

}  // namespace
}  // namespace gradloom
