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
    Row{DType::kUndefined, "undefined", 0, false, false},
    Row{DType::kFloat32, "float32", 4, true, false},
    Row{DType::kUint8, "uint8", 1, false, true},
    Row{DType::kInt8, "int8", 1, false, true},
    Row{DType::kUint16, "uint16", 2, false, true},
    Row{DType::kInt16, "int16", 2, false, true},
    Row{DType::kInt32, "int32", 4, false, true},
    Row{DType::kInt64, "int64", 8, false, true},
    Row{DType::kString, "string", 0, false, false},
    Row{DType::kBool, "bool", 1, false, false},
    Row{DType::kFloat16, "float16", 2, true, false},
    Row{DType::kFloat64, "float64", 8, true, false},
    Row{DType::kUint32, "uint32", 4, false, true},
    Row{DType::kUint64, "uint64", 8, false, true},
    Row{DType::kBfloat16, "bfloat16", 2, true, false},
    Row{DType::kFloat8E4M3Fn, "float8e4m3fn", 1, false, false},
    Row{DType::kFloat8E4M3Fnuz, "float8e4m3fnuz", 1, false, false},
    Row{DType::kFloat8E5M2, "float8e5m2", 1, false, false},
    Row{DType::kFloat8E5M2Fnuz, "float8e5m2fnuz", 1, false, false},
    Row{DType::kUint4, "uint4", 1, false, false},
    Row{DType::kInt4, "int4", 1, false, false},
    Row{DType::kFloat4E2M1, "float4e2m1", 1, false, false},
    Row{DType::kFloat8E8M0, "float8e8m0", 1, false, false},
    Row{DType::kUint2, "uint2", 1, false, false},
    Row{DType::kInt2, "int2", 1, false, false},
    Row{DType::kFloat6E2M3, "float6e2m3", 1, false, false},
    Row{DType::kFloat6E3M2, "float6e3m2", 1, false, false},
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

bool Is16BitFloat(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBfloat16; }

bool IsInteger(DType dtype) { return RowOf(dtype).integer; }

}  // namespace gradloom
