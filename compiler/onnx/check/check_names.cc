#include "compiler/onnx/check/check_names.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

bool IsPrintable(const std::string& name) {
  if (std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; })) return true;
  return Escaped(name, 4 * name.size()) == name;
}

}  // namespace

std::string Describe(const onnx::NodeProto& node) {
  const std::string& name = node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
  return Escaped(node.op_type()) + " '" + Escaped(name) + "'";
}

void NameRules::Check(const std::string& name, const char* what, const std::string& of) const {
  const auto where = [&] { return where_ + (of.empty() ? "" : "  " + of); };
  if (static_cast<int64_t>(name.size()) > limits_.name_bytes) {
    throw Error(ErrorCode::kLimit,
                std::string("the name of ") + what + " has " + std::to_string(name.size()) + " bytes; the limit is " +
                    std::to_string(limits_.name_bytes) + ": '" + Escaped(name, 40) + "'",
                where());
  }
  if (!IsPrintable(name)) {
    throw Error(ErrorCode::kName,
                std::string("the name of ") + what + " has control characters or is not valid UTF-8: '" + Escaped(name) + "'", where(),
                "names must be printable text: rename it in the program that wrote the file");
  }
}

void NameRules::Check(const onnx::NodeProto& node) const {
  // The place is only described in case of an error.
  const auto check = [&](const std::string& name, const char* what) {
    if (static_cast<int64_t>(name.size()) > limits_.name_bytes || !IsPrintable(name)) Check(name, what, Describe(node));
  };
  check(node.name(), "a node");
  check(node.op_type(), "an operator");
  check(node.domain(), "a domain");
  check(node.overload(), "an overload");
  for (const std::string& name : node.input()) check(name, "an input");
  for (const std::string& name : node.output()) check(name, "an output");
  for (const auto& attribute : node.attribute()) {
    check(attribute.name(), "an attribute");
    check(attribute.ref_attr_name(), "an attribute of a function");
  }
}

void NameRules::Check(const onnx::ValueInfoProto& info, const char* what) const {
  Check(info.name(), what);
  if (info.type().value_case() != onnx::TypeProto::kTensorType) return;
  for (const auto& dim : info.type().tensor_type().shape().dim()) {
    if (dim.has_dim_param()) Check(dim.dim_param(), "a dimension", "'" + Escaped(info.name()) + "'");
  }
}

void NameRules::Check(const onnx::GraphProto& graph) const {
  Check(graph.name(), "a graph");
  for (const auto& info : graph.input()) Check(info, "a graph input");
  for (const auto& info : graph.output()) Check(info, "a graph output");
  for (const auto& tensor : graph.initializer()) Check(tensor.name(), "an initializer");
  for (const auto& tensor : graph.sparse_initializer()) Check(tensor.values().name(), "an initializer");
}

}  // namespace gradloom
