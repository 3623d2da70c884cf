#include "compiler/onnx/translate/contrib_body.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/joined.h"

namespace gradloom {

std::string OnnxText(const std::vector<int64_t>& values) {
  return "[" + JoinedTexts(values, [](int64_t value) { return std::to_string(value); }) + "]";
}

std::string OnnxText(double value) {
  if (!std::isfinite(value)) throw Error(ErrorCode::kAttr, "an attribute must be finite");
  char text[40];
  // Always with a decimal point, also in a locale that has a comma; reproduces a float32.
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific, 9).ptr;
  return std::string(text, end);
}

int ContribBody::InputOf(const std::string& name) const {
  const auto& inputs = schema_.inputs();
  const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const auto& input) { return input.GetName() == name; });
  GRADLOOM_CHECK(found != inputs.end());
  return static_cast<int>(found - inputs.begin());
}

bool ContribBody::Has(const std::string& input) const { return context_.hasInput(InputOf(input)); }

bool ContribBody::HasOutput(const std::string& output) const {
  for (size_t i = 0; i < schema_.outputs().size(); ++i) {
    if (schema_.outputs()[i].GetName() == output) return context_.hasOutput(static_cast<int>(i));
  }
  return false;
}

const onnx::TensorShapeProto& ContribBody::Extents(const std::string& input) const {
  const onnx::TypeProto* type = context_.getInputType(InputOf(input));
  GRADLOOM_CHECK(type != nullptr);
  return type->tensor_type().shape();
}

int64_t ContribBody::Extent(const std::string& input, int axis) const {
  const onnx::TensorShapeProto& shape = Extents(input);
  const int at = axis < 0 ? axis + shape.dim_size() : axis;
  if (at < 0 || at >= shape.dim_size())
    throw Error(ErrorCode::kShape, "input '" + input + "' of operator '" + schema_.Name() + "' has rank " +
                                       std::to_string(shape.dim_size()) + " and no axis " + std::to_string(axis));
  return shape.dim(at).dim_value();
}

int64_t ContribBody::Int(const std::string& attribute, int64_t absent) const {
  const onnx::AttributeProto* found = context_.getAttribute(attribute);
  return found == nullptr ? absent : found->i();
}

double ContribBody::Float(const std::string& attribute, double absent) const {
  const onnx::AttributeProto* found = context_.getAttribute(attribute);
  return found == nullptr ? absent : static_cast<double>(found->f());
}

std::string ContribBody::String(const std::string& attribute, const std::string& absent) const {
  const onnx::AttributeProto* found = context_.getAttribute(attribute);
  return found == nullptr ? absent : found->s();
}

std::vector<int64_t> ContribBody::Ints(const std::string& attribute) const {
  const onnx::AttributeProto* found = context_.getAttribute(attribute);
  if (found == nullptr) return {};
  return {found->ints().begin(), found->ints().end()};
}

std::vector<double> ContribBody::Floats(const std::string& attribute) const {
  const onnx::AttributeProto* found = context_.getAttribute(attribute);
  if (found == nullptr) return {};
  return {found->floats().begin(), found->floats().end()};
}

void ContribBody::Node(const std::vector<std::string>& out, const std::string& op, const std::vector<std::string>& in,
                       const std::string& attributes) {
  const auto joined = [](const std::vector<std::string>& names) {
    std::string list;
    for (size_t i = 0; i < names.size(); ++i) list += (i == 0 ? "" : ", ") + names[i];
    return list;
  };
  text_ += joined(out) + " = " + op + (attributes.empty() ? "" : " <" + attributes + ">") + " (" + joined(in) + ")\n";
}

std::string ContribBody::Op(const std::string& op, const std::vector<std::string>& in, const std::string& attributes, std::string out) {
  if (out.empty()) out = op + "_" + std::to_string(++num_generated_);
  Node({out}, op, in, attributes);
  return out;
}

std::string ContribBody::List(const std::vector<int64_t>& values) { return Op("Constant", {}, "value_ints = " + OnnxText(values)); }

std::string ContribBody::Number(double value, const std::string& like) {
  return Op("CastLike", {Op("Constant", {}, "value_float = " + OnnxText(value)), like});
}

std::string ContribBody::Length(const std::string& value, int axis) {
  return Op("Shape", {value}, "start = " + std::to_string(axis) + ", end = " + std::to_string(axis + 1));
}

std::string ContribBody::Counted(const std::string& length) {
  const std::string zero = Op("Constant", {}, "value_int = 0"), one = Op("Constant", {}, "value_int = 1");
  return Op("Range", {zero, Op("Squeeze", {length}), one});
}

std::string ContribBody::Same(const std::vector<std::string>& attributes) const {
  std::string text;
  for (const std::string& name : attributes) {
    const onnx::AttributeProto* found = context_.getAttribute(name);
    if (found == nullptr) continue;
    using Proto = onnx::AttributeProto;
    const std::string value = found->type() == Proto::INT     ? std::to_string(found->i())
                              : found->type() == Proto::FLOAT ? OnnxText(static_cast<double>(found->f()))
                              : found->type() == Proto::INTS  ? OnnxText(Ints(name))
                                                              : "\"" + Escaped(found->s()) + "\"";
    text += (text.empty() ? "" : ", ") + name + " = " + value;
  }
  return text;
}

void ContribBody::Refuse(const std::string& why) const {
  throw Error(ErrorCode::kUnsupported, "operator '" + schema_.Name() + "' of onnxruntime: " + why, "",
              "train the original file, before onnxruntime's optimizer changed it");
}

}  // namespace gradloom
