// Running out of memory is not an error of the model: wherever it happens, the result is std::bad_alloc, never an error about the file.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <new>
#include <utility>

#include "compiler/onnx/import.h"
#include "compiler/onnx/type_rules.h"

namespace {

thread_local int64_t left = -1;  // number of allocations that still succeed; negative: all do

void* Allocate(size_t bytes) {
  if (left >= 0 && left-- == 0) throw std::bad_alloc();
  void* memory = std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void* operator new[](size_t bytes) { return Allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace gradloom {
namespace {

// Runs f repeatedly, failing each of its allocations in turn, until no failure is left. Returns the number of allocations.
int64_t FailEach(const std::function<void()>& f) {
  f();  // creates what is allocated only once
  for (int64_t fails = 0;; ++fails) {
    left = fails;
    try {
      f();
      if (std::exchange(left, -1) >= 0) return fails;
    } catch (const std::bad_alloc&) {
    } catch (const Error& error) {
      ADD_FAILURE() << "allocation " << fails << ": " << error.Describe();
    }
  }
}

TEST(Allocations, OfTypeRules) {
  Graph graph;
  const OnnxTypeRules rules;
  const ValueId a = graph.AddValue("a", DType::kFloat32, {3, 1, 4}, Role::kInput),
                b = graph.AddValue("b", DType::kFloat32, {5, 1}, Role::kInput);
  Node node{.op = "Div", .inputs = {a, b}};
  node.outputs = {kNoValue};
  EXPECT_GT(FailEach([&] { EXPECT_EQ(rules.Infer(graph, node)[0].shape, (Shape{3, 5, 4})); }), 5);
}

TEST(Allocations, OfTheTextForm) {
  const std::string text = "<ir_version: 10, opset_import: [\"\" : 18]> g (float[2] x) => (float[2] y) { y = Relu (x) }";
  EXPECT_GT(FailEach([&] { Model::FromText(text); }), 20);
}

}  // namespace
}  // namespace gradloom
