#include "runtime/base/attributes.h"

#include <charconv>
#include <type_traits>

namespace gradloom {
namespace {

std::string Number(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  std::string out(text, end);
  // Ensures that a float is read back as a float.
  if (out.find_first_of(".en") == std::string::npos) out += ".0";
  return out;
}

std::string Number(int64_t value) { return std::to_string(value); }

std::string Number(const std::string& value) { return "\"" + Escaped(value) + "\""; }

template <typename T>
std::string List(const std::vector<T>& values) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i) out += (i > 0 ? "," : "") + Number(values[i]);
  return out + "]";
}

}  // namespace

template <typename T>
const T* Attributes::Find(const std::string& name) const {
  const auto found = map_.find(name);
  if (found == map_.end()) return nullptr;
  const T* value = std::get_if<T>(&found->second);
  if (value == nullptr) throw Error(ErrorCode::kAttr, "attribute '" + Escaped(name) + "' has the wrong type for its operator");
  return value;
}

int64_t Attributes::Int(const std::string& name, int64_t absent) const {
  const auto* value = Find<int64_t>(name);
  return value ? *value : absent;
}

double Attributes::Float(const std::string& name, double absent) const {
  const auto* value = Find<double>(name);
  return value ? *value : absent;
}

std::string Attributes::String(const std::string& name, const std::string& absent) const {
  const auto* value = Find<std::string>(name);
  return value ? *value : absent;
}

std::vector<int64_t> Attributes::Ints(const std::string& name, const std::vector<int64_t>& absent) const {
  const auto* value = Find<std::vector<int64_t>>(name);
  return value ? *value : absent;
}

std::vector<double> Attributes::Floats(const std::string& name, const std::vector<double>& absent) const {
  const auto* value = Find<std::vector<double>>(name);
  return value ? *value : absent;
}

std::vector<std::string> Attributes::Strings(const std::string& name) const {
  const auto* value = Find<std::vector<std::string>>(name);
  return value ? *value : std::vector<std::string>{};
}

Tensor Attributes::TensorOf(const std::string& name) const {
  const auto* value = Find<Tensor>(name);
  return value ? *value : Tensor{};
}

std::string Attributes::ToString(const Attribute& value) {
  return std::visit(
      []<typename T>(const T& v) -> std::string {
        if constexpr (std::is_same_v<T, Tensor>) {
          return "tensor(" + std::string(DTypeName(v.dtype())) + v.shape().ToString() + ")";
        } else if constexpr (requires {
                               v.size();
                               v.front();
                             } &&
                             !std::is_same_v<T, std::string>) {
          return List(v);
        } else {
          return Number(v);
        }
      },
      value);
}

}  // namespace gradloom
