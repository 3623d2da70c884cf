#include "kernels/reference/scatter_reduction.h"

#include <string>

#include "runtime/base/error.h"

namespace gradloom {

ScatterReduction ScatterReductionOf(const KernelCall& call) {
  const std::string name = call.attributes.String("reduction", "none");
  if (name == "none") return ScatterReduction::kNone;
  if (name == "add") return ScatterReduction::kAdd;
  if (name == "mul") return ScatterReduction::kMul;
  if (name == "max") return ScatterReduction::kMax;
  if (name == "min") return ScatterReduction::kMin;
  throw Error(ErrorCode::kAttr, call.op + ": reduction '" + Escaped(name) + "' is none of none, add, mul, max, min");
}

}  // namespace gradloom
