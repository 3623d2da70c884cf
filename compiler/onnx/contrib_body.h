// The text of a body that stands for a node of onnxruntime's: ONNX's operators, made for the operands and attributes that the node has.
// Private to this directory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onnx/defs/schema.h"

namespace gradloom {

// One node on its way. Values of the body have the names of the schema's parameters and those that Op gives.
class ContribBody {
 public:
  ContribBody(const onnx::FunctionBodyBuildContext& context, const onnx::OpSchema& schema) : context_(context), schema_(schema) {}

  // By the name of a parameter of the schema.
  bool Has(const std::string& input) const;
  bool Wants(const std::string& output) const;
  int Rank(const std::string& input) const { return Extents(input).dim_size(); }
  // An extent of a tensor that is there; `axis` may count from behind.
  int64_t Extent(const std::string& input, int axis) const;
  int64_t Int(const std::string& attribute, int64_t absent = 0) const;
  double Float(const std::string& attribute, double absent = 0) const;
  std::string String(const std::string& attribute, const std::string& absent = "") const;
  std::vector<int64_t> Ints(const std::string& attribute) const;
  std::vector<double> Floats(const std::string& attribute) const;

  // Adds `out = op <attributes> (in)` and returns `out`; a name that none is asked for is made up. `attributes`: "axis = -1".
  std::string Op(const std::string& op, const std::vector<std::string>& in, const std::string& attributes = "", std::string out = "");
  // Several results of one operator.
  void Node(const std::vector<std::string>& out, const std::string& op, const std::vector<std::string>& in, const std::string& attributes);
  // int64 numbers along one axis; `number`: one of the type of `like`, without axes.
  std::string List(const std::vector<int64_t>& values);
  std::string Number(double value, const std::string& like);
  std::string Scaled(const std::string& value, double factor) { return factor == 1 ? value : Op("Mul", {value, Number(factor, value)}); }
  // int64[1]: the extent of an axis, as the graph says it, so that it may be the batch.
  std::string Length(const std::string& value, int axis);
  // 0, 1, 2 ... below an int64[1].
  std::string Counted(const std::string& length);

  // Attributes that the body's operator has from the node, by name, where it has them.
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
  int made_ = 0;
};

std::string Spelled(const std::vector<int64_t>& values);
// A number as ONNX's text has it, so that it reads as a float.
std::string Spelled(double value);

// contrib_attention.cc
void ContribAttention(ContribBody& body);
void ContribMultiHeadAttention(ContribBody& body);
void ContribRotaryEmbedding(ContribBody& body);
void ContribEmbedLayerNormalization(ContribBody& body);

// contrib_group_query.cc
void ContribGroupQueryAttention(ContribBody& body);

}  // namespace gradloom
