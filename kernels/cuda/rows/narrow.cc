// Casts to and from types of at most eight bits.
#include "runtime/base/narrow.h"

#include "kernels/catalog/physical.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

// The type of the result says what CastLike converts to.
std::string Rejects(const KernelCall& call) {
  const DType from = call.inputs[0].dtype, to = call.outputs[0].dtype;
  if (!IsNarrow(from) && !IsNarrow(to)) return "no narrow elements";
  for (const DType dtype : {from, to}) {
    if (!IsNarrow(dtype) && !IsFloating(dtype) && !IsInteger(dtype) && dtype != DType::kBool)
      return "elements of type " + std::string(DTypeName(dtype));
  }
  KernelCall one = call;
  one.inputs.resize(1);
  return PhysicalOf(one) ? "" : "operands in different layouts";
}

constexpr Aliasing kFirst[] = {{0, 0}};

constexpr KernelRow kRows[] = {
    {.name = "cuda.narrow.Cast", .op = "Cast", .domain = "", .device = DeviceKind::kCuda, .rejects = Rejects, .may_alias = kFirst},
    {.name = "cuda.narrow.CastLike", .op = "CastLike", .domain = "", .device = DeviceKind::kCuda, .rejects = Rejects, .may_alias = kFirst},
};

}  // namespace

std::span<const KernelRow> CudaNarrowRows() { return kRows; }

}  // namespace gradloom
