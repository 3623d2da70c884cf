#include "compiler/passes/node_key.h"

#include <variant>

namespace gradloom {

std::string KeyOf(const Tensor& tensor) {
  std::string key = std::string(DTypeName(tensor.dtype())) + tensor.shape().ToString();
  key.append(static_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.bytes()));
  return key;
}

std::string KeyOf(const Node& node) {
  std::string key = node.domain + "." + node.op;
  for (ValueId id : node.inputs) key += "," + std::to_string(id);
  key += ";" + std::to_string(node.outputs.size());
  for (ValueId id : node.outputs) key += id == kNoValue ? "-" : "+";
  for (const auto& [name, value] : node.attributes) {
    key += ";" + name + "=";
    // ToString truncates long strings and shows no tensor elements.
    if (const Tensor* tensor = std::get_if<Tensor>(&value)) {
      key += KeyOf(*tensor);
    } else if (const std::string* text = std::get_if<std::string>(&value)) {
      key += std::to_string(text->size()) + ":" + *text;
    } else {
      key += Attributes::ToString(value);
    }
  }
  return key;
}

}  // namespace gradloom
