#include "runtime/base/dtype.h"

#include <array>

namespace gradloom {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int64_t bytes;
  bool floating;
  bool integer;
};

constexpr std::array kRows = {
    Row{DType::kUndefined, "undefined", 0, false, false}, Row{DType::kFloat32, "float32", 4, true, false},
    Row{DType::kUint8, "uint8", 1, false, true},          Row{DType::kInt8, "int8", 1, false, true},
    Row{DType::kUint16, "uint16", 2, false, true},        Row{DType::kInt16, "int16", 2, false, true},
    Row{DType::kInt32, "int32", 4, false, true},          Row{DType::kInt64, "int64", 8, false, true},
    Row{DType::kString, "string", 0, false, false},       Row{DType::kBool, "bool", 1, false, false},
    Row{DType::kFloat16, "float16", 2, true, false},      Row{DType::kFloat64, "float64", 8, true, false},
    Row{DType::kUint32, "uint32", 4, false, true},        Row{DType::kUint64, "uint64", 8, false, true},
    Row{DType::kBfloat16, "bfloat16", 2, true, false},
};

const Row& RowOf(DType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return row;
  }
  return kRows[0];
}

}  // namespace

std::string_view DTypeName(DType dtype) { return RowOf(dtype).name; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

int64_t DTypeBytes(DType dtype) { return RowOf(dtype).bytes; }

bool IsFloating(DType dtype) { return RowOf(dtype).floating; }

bool IsInteger(DType dtype) { return RowOf(dtype).integer; }

}  // namespace gradloom
