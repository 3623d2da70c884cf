#include "compiler/onnx/type_rules.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

class TypeRulesTest : public testing::Test {
 protected:
  ValueId Input(Shape shape, DType dtype = DType::kFloat32) { return graph_.AddValue("x", dtype, std::move(shape), Role::kInput); }

  // The type of the first output of a node with these inputs.
  ValueType Infer(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    Node node;
    node.op = op;
    node.inputs = std::move(inputs);
    node.outputs = {kNoValue};
    node.attributes = std::move(attributes);
    node.origin = "n";
    return rules_.Infer(graph_, node)[0];
  }

  // The class of the error that the node causes. Its message goes to error_.
  ErrorCode Fails(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    try {
      Infer(op, std::move(inputs), std::move(attributes));
    } catch (const Error& e) {
      error_ = e.Describe();
      return e.code();
    }
    ADD_FAILURE() << op << " was accepted";
    return ErrorCode::kInternal;
  }

  Graph graph_;
  OnnxTypeRules rules_;
  GraphBuilder b_{graph_, rules_};
  std::string error_;
};

TEST_F(TypeRulesTest, SchemasInferShapes) {
  EXPECT_EQ(Infer("MatMul", {Input({2, 3, 4}), Input({4, 5})}).shape, (Shape{2, 3, 5}));
  EXPECT_EQ(Infer("Conv", {Input({1, 3, 8, 8}), Input({6, 3, 3, 3})},
                  {{"pads", std::vector<int64_t>{1, 1, 1, 1}}, {"strides", std::vector<int64_t>{2, 2}}})
                .shape,
            (Shape{1, 6, 4, 4}));
  EXPECT_EQ(Infer("Greater", {Input({3}), Input({2, 1})}), (ValueType{DType::kBool, {2, 3}}));
  EXPECT_EQ(Infer("Softmax", {Input({2, 3})}).shape, (Shape{2, 3}));
}

TEST_F(TypeRulesTest, ConstantOperandsDetermineShapes) {
  EXPECT_EQ(Infer("Reshape", {Input({2, 6}), b_.Ints({-1, 4})}).shape, (Shape{3, 4}));
  EXPECT_EQ(Infer("ReduceSum", {Input({2, 6}), b_.Ints({1})}, {{"keepdims", int64_t{0}}}).shape, (Shape{2}));
  EXPECT_EQ(Infer("Expand", {Input({1}), b_.Ints({4, 2})}).shape, (Shape{4, 2}));
}

TEST_F(TypeRulesTest, SeveralOutputs) {
  Node node;
  node.op = "Split";
  node.inputs = {Input({2, 6}), b_.Ints({2, 4})};
  node.outputs = {kNoValue, kNoValue};
  node.attributes = {{"axis", int64_t{1}}};
  const auto types = rules_.Infer(graph_, node);
  EXPECT_EQ(types[0].shape, (Shape{2, 2}));
  EXPECT_EQ(types[1].shape, (Shape{2, 4}));
}

TEST_F(TypeRulesTest, Arity) {
  EXPECT_EQ(Fails("Gemm", {}), ErrorCode::kArity);
  const ValueId x = Input({2, 2});
  EXPECT_EQ(Fails("Gemm", {x, x, x, x}), ErrorCode::kArity);
  EXPECT_NE(error_.find("expects 2 to 3 inputs, but this node has 4"), std::string::npos) << error_;
  EXPECT_EQ(Fails("Gemm", {x, kNoValue}), ErrorCode::kArity);
  // Variadic operands may not be absent.
  EXPECT_EQ(Fails("Einsum", {kNoValue, x}, {{"equation", std::string("bi,bi->b")}}), ErrorCode::kArity);
  EXPECT_EQ(Fails("Concat", {x, kNoValue}, {{"axis", int64_t{0}}}), ErrorCode::kArity);
  EXPECT_EQ(Fails("Max", {x, kNoValue, x}), ErrorCode::kArity);
}

TEST_F(TypeRulesTest, Attributes) {
  const ValueId x = Input({2, 2});
  EXPECT_EQ(Fails("Gemm", {x, x}, {{"alhpa", 1.0}}), ErrorCode::kAttr);
  EXPECT_NE(error_.find("did you mean 'alpha'?"), std::string::npos) << error_;
  EXPECT_EQ(Fails("Gemm", {x, x}, {{"alpha", std::string("str")}}), ErrorCode::kAttr);
  EXPECT_EQ(Fails("Cast", {x}), ErrorCode::kAttr);
  EXPECT_EQ(Fails("Concat", {x, x}, {{"axis", int64_t{99}}}), ErrorCode::kAttr);
  EXPECT_EQ(Fails("GatherND", {x, Input({2, 1}, DType::kInt64)}, {{"batch_dims", int64_t{-1}}}), ErrorCode::kAttr);
  EXPECT_EQ(Fails("TfIdfVectorizer", {Input({3}, DType::kInt64)},
                  {{"mode", std::string("TF")},
                   {"min_gram_length", int64_t{1}},
                   {"max_gram_length", int64_t{1}},
                   {"max_skip_count", int64_t{-1}},
                   {"ngram_counts", std::vector<int64_t>{0}},
                   {"ngram_indexes", std::vector<int64_t>{0}},
                   {"pool_int64s", std::vector<int64_t>{3}}}),
            ErrorCode::kAttr);
  // onnx's inference would create an output for each.
  EXPECT_EQ(Fails("Split", {x}, {{"num_outputs", int64_t{1} << 40}}), ErrorCode::kAttr);
  EXPECT_EQ(Fails("Split", {x}, {{"num_outputs", int64_t{0}}}), ErrorCode::kAttr);
  EXPECT_NE(error_.find("this node has 1 outputs"), std::string::npos) << error_;
}

TEST_F(TypeRulesTest, Types) {
  EXPECT_EQ(Fails("Add", {Input({2}), Input({2}, DType::kInt64)}), ErrorCode::kType);
  EXPECT_NE(error_.find("input 1 (B, value 'x.1') is int64 but input 0 ('x') is float32"), std::string::npos) << error_;
  EXPECT_EQ(Fails("Sqrt", {Input({2}, DType::kInt64)}), ErrorCode::kType);
  EXPECT_NE(error_.find("'n'"), std::string::npos) << error_;
}

TEST_F(TypeRulesTest, Shapes) {
  EXPECT_EQ(Fails("MatMul", {Input({2, 3}), Input({4, 5})}), ErrorCode::kShape);
  EXPECT_NE(error_.find("float32[2,3]"), std::string::npos) << error_;
  EXPECT_NE(error_.find("float32[4,5]"), std::string::npos) << error_;
  EXPECT_EQ(Fails("Add", {Input({2, 3}), Input({4, 5})}), ErrorCode::kShape);
}

// Kernels read as many elements as the first operand has channels, positions or sequences, which onnx's type inference does not check.
TEST_F(TypeRulesTest, ChecksExtentsOfFurtherOperands) {
  const ValueId x = Input({4, 5, 6});
  EXPECT_EQ(Fails("InstanceNormalization", {x, Input({2}), Input({5})}), ErrorCode::kShape);
  EXPECT_NE(error_.find("a scale of [2] does not fit 5 channels"), std::string::npos) << error_;
  EXPECT_EQ(Fails("InstanceNormalization", {x, Input({5}), Input({5, 1})}), ErrorCode::kShape);
  EXPECT_EQ(Fails("InstanceNormalization", {Input({}), Input({1}), Input({1})}), ErrorCode::kShape);
  for (const Shape& shape : {Shape{}, Shape{3}}) EXPECT_EQ(Fails("LRN", {Input(shape)}, {{"size", int64_t{3}}}), ErrorCode::kShape);
  EXPECT_NE(error_.find("an input of [3] has no axis of channels"), std::string::npos) << error_;
  EXPECT_EQ(Fails("Transpose", {x}, {{"perm", std::vector<int64_t>{1, 0}}}), ErrorCode::kAttr);
  EXPECT_NE(error_.find("attribute 'perm' is [1,0], but [4,5,6] has 3 axes"), std::string::npos) << error_;
  EXPECT_EQ(Fails("LayerNormalization", {x, Input({2})}), ErrorCode::kShape);
  EXPECT_NE(error_.find("a scale of [2] does not fit the normalized shape [6]"), std::string::npos) << error_;
  EXPECT_EQ(Fails("LayerNormalization", {x, Input({5, 6}), Input({5})}, {{"axis", int64_t{1}}}), ErrorCode::kShape);
  EXPECT_EQ(Infer("LayerNormalization", {x, Input({5, 6}), Input({1, 5, 6})}, {{"axis", int64_t{1}}}).shape, (Shape{4, 5, 6}));
  EXPECT_EQ(Infer("LayerNormalization", {x, Input({1, 6}), Input({})}, {{"axis", int64_t{1}}}).shape, (Shape{4, 5, 6}));
  EXPECT_EQ(Fails("RMSNormalization", {x, Input({2})}), ErrorCode::kShape);
  EXPECT_EQ(Fails("RMSNormalization", {x, Input({5, 6})}), ErrorCode::kShape);
  EXPECT_EQ(Infer("RMSNormalization", {x, Input({1})}).shape, (Shape{4, 5, 6}));
  EXPECT_EQ(Fails("RMSNormalization", {x, Input({6}, DType::kFloat64)}), ErrorCode::kType);
  EXPECT_NE(error_.find("a scale of float64 is applied to float32 numbers"), std::string::npos) << error_;
  EXPECT_EQ(Fails("PRelu", {x, Input({3, 4, 5, 6})}), ErrorCode::kShape);
  EXPECT_EQ(Fails("PRelu", {x, Input({2})}), ErrorCode::kShape);
  EXPECT_NE(error_.find("a slope of [2] does not fit [4,5,6]"), std::string::npos) << error_;
  EXPECT_EQ(Infer("PRelu", {x, Input({5, 1})}).shape, (Shape{4, 5, 6}));
  EXPECT_EQ(Fails("ReverseSequence", {x, Input({4}, DType::kInt64)}), ErrorCode::kShape);
  EXPECT_NE(error_.find("lengths of [4] do not fit 5 sequences"), std::string::npos) << error_;
}

// onnx's own test of `output_shape` requests one element more than the windows reach. oneDNN has no convolution for seven more.
TEST_F(TypeRulesTest, TransposedConvolutionOutputShape) {
  const std::vector<int64_t> strides{3, 2}, asked{10, 8};
  const ValueId w = Input({1, 2, 3, 3});
  EXPECT_EQ(Infer("ConvTranspose", {Input({1, 1, 3, 3}), w}, {{"strides", strides}, {"output_shape", asked}}).shape, (Shape{1, 2, 10, 8}));
  EXPECT_EQ(Fails("ConvTranspose", {Input({1, 1, 1, 3}), w}, {{"strides", strides}, {"output_shape", asked}}), ErrorCode::kAttr);
  EXPECT_NE(error_.find("along axis 2 an input of [1,1,1,3] gives at most 5"), std::string::npos) << error_;
}

// Constants are folded, so kernels would read and write past their operands while the model is imported.
TEST_F(TypeRulesTest, UnpooledShape) {
  const ValueId x = Input({1, 1, 2}), i = Input({1, 1, 2}, DType::kInt64);
  const std::vector<int64_t> one{1}, many(1000, 1), huge{int64_t{1} << 62};
  EXPECT_EQ(Infer("MaxUnpool", {x, i, b_.Ints({1, 1, 4})}, {{"kernel_shape", one}}).shape, (Shape{1, 1, 4}));
  EXPECT_EQ(Fails("MaxUnpool", {x, i, b_.Ints({1, 1, 4})}, {{"kernel_shape", many}}), ErrorCode::kAttr);
  EXPECT_EQ(Fails("MaxUnpool", {x, i, b_.Ints({1, 1, 4})}, {{"kernel_shape", one}, {"strides", huge}}), ErrorCode::kAttr);
  EXPECT_EQ(Fails("MaxUnpool", {x, i, b_.Ints({100})}, {{"kernel_shape", one}}), ErrorCode::kShape);
  EXPECT_EQ(Fails("MaxUnpool", {x, i, b_.Ints({1, 1, 1})}, {{"kernel_shape", one}}), ErrorCode::kShape);
}

TEST_F(TypeRulesTest, MelWeightsNeedScalars) {
  const ValueId n = b_.Constant(Tensor::Scalar<int64_t>(8)), hertz = Input({}), none = Input({0}), rate = Input({}, DType::kInt64);
  EXPECT_EQ(Infer("MelWeightMatrix", {n, n, rate, hertz, hertz}).shape, (Shape{5, 8}));
  EXPECT_EQ(Fails("MelWeightMatrix", {n, n, rate, hertz, none}), ErrorCode::kShape);
  EXPECT_EQ(Fails("MelWeightMatrix", {n, n, Input({0}, DType::kInt64), hertz, hertz}), ErrorCode::kShape);
}

TEST_F(TypeRulesTest, ShapesThatDependOnData) {
  EXPECT_EQ(Fails("Reshape", {Input({2, 3}), Input({2}, DType::kInt64)}), ErrorCode::kUnsupported);
  EXPECT_EQ(Fails("NonZero", {Input({2, 3})}), ErrorCode::kUnsupported);
}

TEST_F(TypeRulesTest, RejectsHugeShapes) {
  EXPECT_EQ(Fails("Expand", {Input({1}), b_.Ints({int64_t{1} << 40, int64_t{1} << 22})}), ErrorCode::kLimit);
  EXPECT_EQ(Fails("Expand", {Input({1, 0}), b_.Ints({int64_t{1} << 40, 0})}), ErrorCode::kLimit);
  EXPECT_EQ(Fails("Expand", {Input({1, 1, 0}), b_.Ints({1 << 20, 1 << 20, 0})}), ErrorCode::kLimit);
  EXPECT_EQ(Infer("Expand", {Input({1, 0}), b_.Ints({1 << 20, 0})}).shape, (Shape{1 << 20, 0}));
}

TEST_F(TypeRulesTest, UnknownOperators) {
  EXPECT_EQ(Fails("GemmX", {Input({2})}), ErrorCode::kUnsupported);
  EXPECT_NE(error_.find("did you mean 'Gemm'?"), std::string::npos) << error_;
  EXPECT_EQ(Fails("Upsample", {Input({2}), Input({2})}), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace gradloom
