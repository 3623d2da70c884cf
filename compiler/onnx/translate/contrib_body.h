// Builds the text of a function body that replaces a node of onnxruntime's contrib operators: standard ONNX operators for the node's
// operands and attributes. Private to compiler/onnx.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onnx/defs/schema.h"

namespace gradloom {

// Builds the body of one node. Values of the body have the names of the schema's parameters, or those returned by Op.
class ContribBody {
 public:
  ContribBody(const onnx::FunctionBodyBuildContext& context, const onnx::OpSchema& schema) : context_(context), schema_(schema) {}

  // By the name of a parameter in the schema: whether the node has this input, and whether it has this output.
  bool Has(const std::string& input) const;
  bool HasOutput(const std::string& output) const;
  int Rank(const std::string& input) const { return Extents(input).dim_size(); }
  // An extent of an input that is present. A negative `axis` counts from the last one.
  int64_t Extent(const std::string& input, int axis) const;
  int64_t Int(const std::string& attribute, int64_t absent = 0) const;
  double Float(const std::string& attribute, double absent = 0) const;
  std::string String(const std::string& attribute, const std::string& absent = "") const;
  std::vector<int64_t> Ints(const std::string& attribute) const;
  std::vector<double> Floats(const std::string& attribute) const;

  // Adds `out = op <attributes> (in)` and returns `out`. An empty `out` gets a new name. `attributes` is text such as "axis = -1".
  std::string Op(const std::string& op, const std::vector<std::string>& in, const std::string& attributes = "", std::string out = "");
  // The same for an operator with several results.
  void Node(const std::vector<std::string>& out, const std::string& op, const std::vector<std::string>& in, const std::string& attributes);
  // List: a one-dimensional tensor of int64 numbers. Number: a scalar with the element type of `like`.
  std::string List(const std::vector<int64_t>& values);
  std::string Number(double value, const std::string& like);
  std::string Scaled(const std::string& value, double factor) { return factor == 1 ? value : Op("Mul", {value, Number(factor, value)}); }
  // int64[1]: the extent of an axis, computed by the graph, so that it may be the batch.
  std::string Length(const std::string& value, int axis);
  // 0, 1, 2 ... up to the int64[1] `length`, exclusive.
  std::string Counted(const std::string& length);

  // The text of those of these attributes that the node has, to be copied to an operator of the body.
  std::string Same(const std::vector<std::string>& attributes) const;

  // Throws Error(kUnsupported).
  [[noreturn]] void Refuse(const std::string& why) const;

  const std::string& text() const { return text_; }

 private:
  int InputOf(const std::string& name) const;
  const onnx::TensorShapeProto& Extents(const std::string& input) const;

  const onnx::FunctionBodyBuildContext& context_;
  const onnx::OpSchema& schema_;
  std::string text_;
  int num_generated_ = 0;
};

std::string OnnxText(const std::vector<int64_t>& values);
// A number in ONNX's text syntax, which is parsed as a float.
std::string OnnxText(double value);

// contrib_attention.cc
void ContribAttention(ContribBody& body);
void ContribMultiHeadAttention(ContribBody& body);
void ContribRotaryEmbedding(ContribBody& body);
void ContribEmbedLayerNormalization(ContribBody& body);

// contrib_group_query.cc
void ContribGroupQueryAttention(ContribBody& body);

}  // namespace gradloom
