// Attributes of nodes and instructions: named constants, the same in the graph, the plan and the kernels.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/tensor.h"

namespace gradloom {

using Attribute = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>, std::vector<std::string>, Tensor>;

// Sorted by name, so that equal attributes have equal text and file forms. ONNX's float attributes are stored as double, exactly.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, Attribute>> list) : map_(list) {}

  bool has(const std::string& name) const { return map_.contains(name); }
  void set(const std::string& name, Attribute value) { map_.insert_or_assign(name, std::move(value)); }
  void erase(const std::string& name) { map_.erase(name); }
  bool empty() const { return map_.empty(); }
  size_t size() const { return map_.size(); }
  auto begin() const { return map_.begin(); }
  auto end() const { return map_.end(); }

  // The attribute's value, or `absent` if there is none. Throws Error(kAttr), naming the attribute, if it has another type.
  int64_t Int(const std::string& name, int64_t absent) const;
  double Float(const std::string& name, double absent) const;
  std::string String(const std::string& name, const std::string& absent) const;
  std::vector<int64_t> Ints(const std::string& name, const std::vector<int64_t>& absent = {}) const;
  std::vector<double> Floats(const std::string& name, const std::vector<double>& absent = {}) const;
  std::vector<std::string> Strings(const std::string& name) const;
  // kUndefined if absent.
  Tensor TensorOf(const std::string& name) const;

  // One attribute in readable form: 3, 0.5, "text", [1,2], tensor(float32[2,3]).
  static std::string ToString(const Attribute& value);

 private:
  template <typename T>
  const T* Find(const std::string& name) const;
  std::map<std::string, Attribute> map_;
};

}  // namespace gradloom
