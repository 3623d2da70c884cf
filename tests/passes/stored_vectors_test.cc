// Parameters that exporters store with more axes than the module has.
#include "compiler/passes/update/stored_vectors.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/onnx/type_rules.h"
#include "compiler/passes/update/add_optimizer.h"

namespace gradloom {
namespace {

class StoredVectorsTest : public testing::Test {
 protected:
  ValueId Input(const std::string& name, Shape shape) { return graph_.AddValue(name, DType::kFloat32, std::move(shape), Role::kInput); }
  ValueId Parameter(const std::string& name, Shape shape) {
    parameters_.push_back(graph_.AddData(name, Tensor(DType::kFloat32, std::move(shape)), Role::kParam));
    return parameters_.back();
  }
  std::set<std::string> Found() const {
    std::set<std::string> names;
    for (ValueId id : StoredVectors(graph_, parameters_)) names.insert(graph_.value(id).name);
    return names;
  }

  const OnnxTypeRules rules_;
  Graph graph_;
  GraphBuilder b_{graph_, rules_};
  std::vector<ValueId> parameters_;
};

TEST_F(StoredVectorsTest, FollowsAnyNumberOfMoves) {
  ValueId moved = Parameter("val_1", Shape{1, 8});
  for (int i = 0; i < 200000; ++i) {
    const ValueId next = graph_.AddValue("", DType::kFloat32, Shape{1, 8}, Role::kActivation);
    graph_.AddNode({.op = "Identity", .inputs = {moved}, .outputs = {next}});
    moved = next;
  }
  b_.Add(Input("x", Shape{2, 8}), moved);
  EXPECT_EQ(Found(), (std::set<std::string>{"val_1"}));
}

TEST_F(StoredVectorsTest, BroadcastUnderGeneratedNames) {
  ValueId h = b_.Op("PRelu", {Input("x", Shape{2, 8, 4, 4}), Parameter("onnx::PRelu_5", Shape{8, 1, 1})});
  h = b_.Mul(h, Parameter("onnx::Mul_37", Shape{8, 1, 1}));
  h = b_.Add(h, b_.Reshape(Parameter("unsqueeze_1", Shape{1, 8}), Shape{8, 1, 1}));
  h = b_.Add(h, Parameter("val_3", Shape{1, 8, 1, 1}));
  EXPECT_EQ(Found(), (std::set<std::string>{"onnx::PRelu_5", "onnx::Mul_37", "unsqueeze_1", "val_3"}));
  // A vector anyway, a table, and parameters under their own names.
  h = b_.Add(h, Parameter("onnx::Add_38", Shape{4}));
  h = b_.Add(h, Parameter("onnx::Add_39", Shape{8, 4, 4}));
  h = b_.Mul(h, Parameter("layer.scale", Shape{8, 1, 1}));
  h = b_.Mul(h, Parameter("interval_3x", Shape{8, 1, 1}));
  // Matrices of one column, also if they are used as a scale as well.
  const ValueId column = Parameter("onnx::MatMul_4", Shape{4, 1});
  b_.Op("MatMul", {h, column});
  b_.Mul(h, column);
  EXPECT_EQ(Found().size(), 4u);
}

TEST_F(StoredVectorsTest, BiasesOfRecurrentLayers) {
  const ValueId x = Input("x", Shape{5, 2, 3});
  b_.Ops("LSTM", "",
         {x, Parameter("onnx::LSTM_1", Shape{2, 8, 3}), Parameter("onnx::LSTM_2", Shape{2, 8, 2}), Parameter("bias", Shape{2, 16}),
          kNoValue, kNoValue, kNoValue, Parameter("peepholes", Shape{2, 6})},
         1, {{"hidden_size", int64_t{2}}, {"direction", std::string("bidirectional")}});
  b_.Ops("GRU", "", {x, Parameter("w", Shape{1, 6, 3}), Parameter("r", Shape{1, 6, 2}), Parameter("onnx::GRU_9", Shape{1, 12})}, 1,
         {{"hidden_size", int64_t{2}}});
  EXPECT_EQ(Found(), (std::set<std::string>{"bias", "peepholes", "onnx::GRU_9"}));
}

TEST_F(StoredVectorsTest, DoNotDecay) {
  const ValueId scale = Parameter("onnx::Mul_1", Shape{8, 1, 1}), own = Parameter("layer.scale", Shape{8, 1, 1});
  b_.Mul(b_.Mul(Input("x", Shape{2, 8, 4, 4}), scale), own);
  const std::set<ValueId> vectors = StoredVectors(graph_, parameters_);
  const std::map<ValueId, ValueId> gradients = {{scale, Input("a", Shape{8, 1, 1})}, {own, Input("b", Shape{8, 1, 1})}};
  AddOptimizer(b_, {.type = "sgd", .weight_decay = 0.1, .no_decay_1d = true}, gradients, {}, vectors);
  std::map<ValueId, double> decay;
  for (const Node& node : graph_.nodes) {
    if (node.op == "Sgd") decay[node.inputs[0]] = node.attributes.Float("weight_decay", 0);
  }
  EXPECT_EQ(decay, (std::map<ValueId, double>{{scale, 0.0}, {own, 0.1}}));
}

}  // namespace
}  // namespace gradloom
