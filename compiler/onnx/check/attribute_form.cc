#include "compiler/onnx/check/attribute_form.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

using Proto = onnx::AttributeProto;

// Returns how many fields of an attribute hold values; a well-formed one only holds that of its type.
int NumSetFields(const Proto& a) {
  return a.has_f() + a.has_i() + a.has_s() + a.has_t() + a.has_g() + a.has_sparse_tensor() + a.has_tp() + (a.floats_size() > 0) +
         (a.ints_size() > 0) + (a.strings_size() > 0) + (a.tensors_size() > 0) + (a.graphs_size() > 0) + (a.sparse_tensors_size() > 0) +
         (a.type_protos_size() > 0);
}

bool HoldsItsType(const Proto& a) {
  switch (a.type()) {
    case Proto::FLOAT: return a.has_f();
    case Proto::INT: return a.has_i();
    case Proto::STRING: return a.has_s();
    case Proto::TENSOR: return a.has_t();
    case Proto::GRAPH: return a.has_g();
    case Proto::SPARSE_TENSOR: return a.has_sparse_tensor();
    case Proto::TYPE_PROTO: return a.has_tp();
    case Proto::FLOATS: return a.floats_size() > 0;
    case Proto::INTS: return a.ints_size() > 0;
    case Proto::STRINGS: return a.strings_size() > 0;
    case Proto::TENSORS: return a.tensors_size() > 0;
    case Proto::GRAPHS: return a.graphs_size() > 0;
    case Proto::SPARSE_TENSORS: return a.sparse_tensors_size() > 0;
    case Proto::TYPE_PROTOS: return a.type_protos_size() > 0;
    default: return false;
  }
}

// Returns the names of the fields that are set, such as "f, i".
std::string NamesOfSetFields(const Proto& a) {
  const std::pair<const char*, bool> fields[] = {{"f", a.has_f()},
                                                 {"i", a.has_i()},
                                                 {"s", a.has_s()},
                                                 {"t", a.has_t()},
                                                 {"g", a.has_g()},
                                                 {"sparse_tensor", a.has_sparse_tensor()},
                                                 {"tp", a.has_tp()},
                                                 {"floats", a.floats_size() > 0},
                                                 {"ints", a.ints_size() > 0},
                                                 {"strings", a.strings_size() > 0},
                                                 {"tensors", a.tensors_size() > 0},
                                                 {"graphs", a.graphs_size() > 0},
                                                 {"sparse_tensors", a.sparse_tensors_size() > 0},
                                                 {"type_protos", a.type_protos_size() > 0}};
  std::string text;
  for (const auto& [name, held] : fields) {
    if (held) text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text;
}

}  // namespace

void CheckForm(const Proto& attribute, const ModelLimits& limits, const std::function<std::string()>& where) {
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorCode::kAttr, "attribute '" + Escaped(attribute.name()) + "' " + why, where());
  };
  if (attribute.type() == Proto::UNDEFINED) fail("has no type");
  const int held = NumSetFields(attribute);
  // Files may omit numbers equal to protobuf's default, and empty lists.
  if (held > 1 || (held == 1 && !HoldsItsType(attribute))) {
    fail("has type " + Proto::AttributeType_Name(attribute.type()) + " but holds " + NamesOfSetFields(attribute));
  }
  const int64_t count = std::max({attribute.floats_size(), attribute.ints_size(), attribute.strings_size(), attribute.tensors_size(),
                                  attribute.graphs_size(), attribute.sparse_tensors_size(), attribute.type_protos_size()});
  if (count > limits.attribute_elements) {
    throw Error(ErrorCode::kLimit,
                "attribute '" + Escaped(attribute.name()) + "' has " + std::to_string(count) + " elements; the limit is " +
                    std::to_string(limits.attribute_elements),
                where());
  }
}

}  // namespace gradloom
