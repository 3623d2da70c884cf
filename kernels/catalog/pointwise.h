// Pointwise programs: the computation of a pointwise operator, or of a fused group of them. Plans store them in attributes; the kernels of
// each backend interpret or compile them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// The functions of kernels/scalar/pointwise.def.
enum class PointwiseOp : uint8_t {
#define GRADLOOM_POINTWISE(name, operands, expression) k##name,
#include "kernels/scalar/pointwise.def"
#undef GRADLOOM_POINTWISE
};

inline constexpr int kNumPointwiseOps = 0
#define GRADLOOM_POINTWISE(name, operands, expression) +1
#include "kernels/scalar/pointwise.def"
#undef GRADLOOM_POINTWISE
    ;

std::string_view PointwiseOpName(PointwiseOp op);
std::optional<PointwiseOp> PointwiseOpFromName(std::string_view name);
// 1, 2 or 3.
int PointwiseOperands(PointwiseOp op);

// Operands are numbered: the inputs, then the constants, then the results of the instructions in order.
struct PointwiseProgram {
  static constexpr int kMaxInputs = 24;
  static constexpr int kMaxOutputs = 8;
  static constexpr int kMaxInstructions = 256;

  struct Instruction {
    PointwiseOp op = PointwiseOp::kCopy;
    std::array<int, 3> operands{-1, -1, -1};  // -1 beyond the function's operands
    bool operator==(const Instruction&) const = default;
  };

  int num_inputs = 0;
  std::vector<float> constants = {};
  std::vector<Instruction> instructions = {};
  std::vector<int> outputs = {};  // results of instructions

  int first_result() const { return num_inputs + static_cast<int>(constants.size()); }
  bool operator==(const PointwiseProgram&) const = default;

  // Appends an instruction and returns the operand number of its result. All constants must be added before.
  int Emit(PointwiseOp op, int a, int b = -1, int c = -1);

  // The attributes of gradloom.Fused: "functions" strings, "operands" ints (three each), "constants"
  // floats, "results" ints.
  Attributes ToAttributes() const;

  // The inverse. Throws Error(kPlan) for an invalid program: unknown functions, operands that are not yet computed, outputs that are not
  // results, sizes beyond the limits.
  static PointwiseProgram FromAttributes(const Attributes& attributes, int num_inputs);
};

// The program of a call to a standard operator or to gradloom.Fused over float32, float16 or bfloat16 (bool for truth values), or nullopt
// if there is none; sets `why`, if given, to the reason. Elements are loaded as float32 and rounded when stored.
std::optional<PointwiseProgram> PointwiseProgramOf(const KernelCall& call, std::string* why = nullptr);

// Whether the result of this function for 16-bit operands is representable in 16 bits, so that it need not be rounded.
bool IsExact(PointwiseOp op);

// Whether the elements of all operands have the same size.
bool HasOneSize(const KernelCall& call);

}  // namespace gradloom
