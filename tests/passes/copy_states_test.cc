// States that take each other's values.
#include "compiler/passes/memory/copy_states.h"

#include <gtest/gtest.h>

#include <string>

#include "compiler/graph/builder.h"
#include "compiler/graph/verify_graph.h"
#include "compiler/onnx/type_rules.h"

namespace gradloom {
namespace {

class CopyStatesTest : public ::testing::Test {
 protected:
  ValueId State(const std::string& name) { return graph_.AddData(name, Tensor(DType::kFloat32, {2, 2}), Role::kState); }

  void SetNext(ValueId state, ValueId next) { graph_.value(next).next_of = state; }

  // The nodes after the pass.
  std::string Nodes() {
    CopyStates(graph_);
    VerifyGraph(graph_);
    std::string text;
    for (const Node& node : graph_.nodes) {
      text += graph_.value(node.outputs[0]).name + " = " + node.op + "(" + graph_.value(node.inputs[0]).name + ")\n";
    }
    return text;
  }

  const OnnxTypeRules rules_;
  Graph graph_;
  GraphBuilder b_{graph_, rules_};
};

// As views, both would show at the end of the step what it has written into the other.
TEST_F(CopyStatesTest, AStateThatTakesTheValueOfAnotherChangedOneHasACopy) {
  const ValueId one = State("one"), two = State("two");
  SetNext(one, b_.Op("Identity", {two}));
  SetNext(two, b_.Op("Identity", {one}));
  EXPECT_EQ(Nodes(),
            "Identity/shown = Identity(two)\nIdentity = Copy(Identity/shown)\n"
            "Identity.1/shown = Identity(one)\nIdentity.1 = Copy(Identity.1/shown)\n");
}

TEST_F(CopyStatesTest, ViewsOfWhatStaysNeedNone) {
  const ValueId changes = State("changes"), stays = State("stays"), follows = State("follows");
  SetNext(changes, b_.Op("Relu", {changes}));
  SetNext(follows, b_.Op("Identity", {stays}));
  EXPECT_EQ(Nodes(), "Relu = Relu(changes)\nIdentity = Identity(stays)\n");
}

}  // namespace
}  // namespace gradloom
