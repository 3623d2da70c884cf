#include "kernels/catalog/pointwise.h"

#include <algorithm>
#include <map>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

struct Function {
  std::string_view name;
  int operands;
};

constexpr Function kFunctions[] = {
#define GRADLOOM_POINTWISE(name, operands, expression) {#name, operands},
#include "kernels/scalar/pointwise.def"
#undef GRADLOOM_POINTWISE
};

[[noreturn]] void Refuse(const std::string& what) {
  throw Error(ErrorCode::kPlan, "the program of a fused operator is invalid: " + what, "", "compile the plan again with this version");
}

using P = PointwiseProgram;
using Op = PointwiseOp;

// An operator whose float attributes are additional operands of its function.
struct WithAttributes {
  std::string_view op;
  std::vector<std::pair<const char*, double>> attributes;  // with ONNX's defaults
};

const std::vector<WithAttributes>& OperatorsWithAttributes() {
  static const std::vector<WithAttributes> table = {
      {"Celu", {{"alpha", 1.0}}},
      {"Elu", {{"alpha", 1.0}}},
      {"HardSigmoid", {{"alpha", 0.20000000298023223876953125}, {"beta", 0.5}}},
      {"LeakyRelu", {{"alpha", 0.00999999977648258209228515625}}},
      {"Selu", {{"alpha", 1.67326319217681884765625}, {"gamma", 1.05070102214813232421875}}},
      {"ThresholdedRelu", {{"alpha", 1.0}}},
  };
  return table;
}

P Fold(Op op, int n) {
  P p{.num_inputs = n};
  int total = n == 1 ? p.Emit(Op::kCopy, 0) : p.Emit(op, 0, 1);
  for (int i = 2; i < n; ++i) total = p.Emit(op, total, i);
  p.outputs = {total};
  return p;
}

P Mean(int n) {
  P p{.num_inputs = n, .constants = {static_cast<float>(n)}};
  int total = 0;
  for (int i = 1; i < n; ++i) total = p.Emit(Op::kAdd, total, i);
  p.outputs = {p.Emit(Op::kDiv, total, n)};
  return p;
}

// x sigmoid(alpha x), for SwiGLU times the second input.
P Swish(int n, float alpha) {
  P p{.num_inputs = n, .constants = {alpha}};
  const int scaled = alpha == 1.0f ? 0 : p.Emit(Op::kMul, 0, n);
  int y = p.Emit(Op::kMul, 0, p.Emit(Op::kSigmoid, scaled));
  if (n == 2) y = p.Emit(Op::kMul, y, 1);
  p.outputs = {y};
  return p;
}

P Clip(const KernelCall& call) {
  const bool low = call.inputs.size() > 1 && call.inputs[1].present(), high = call.inputs.size() > 2 && call.inputs[2].present();
  P p{.num_inputs = static_cast<int>(call.inputs.size())};
  // One-sided bounds use a comparison and a selection, so that NaN propagates and an absent bound costs nothing.
  if (low && high) {
    p.outputs = {p.Emit(Op::kClip, 0, 1, 2)};
  } else if (low) {
    p.outputs = {p.Emit(Op::kWhere, p.Emit(Op::kLess, 0, 1), 1, 0)};
  } else if (high) {
    p.outputs = {p.Emit(Op::kWhere, p.Emit(Op::kGreater, 0, 2), 2, 0)};
  } else {
    p.outputs = {p.Emit(Op::kCopy, 0)};
  }
  return p;
}

std::optional<P> StandardProgram(const KernelCall& call) {
  const int n = static_cast<int>(call.inputs.size());
  const Attributes& attributes = call.attributes;
  if (call.op == "Sum") return Fold(Op::kAdd, n);
  if (call.op == "Max") return Fold(Op::kMax, n);
  if (call.op == "Min") return Fold(Op::kMin, n);
  if (call.op == "Mean") return Mean(n);
  if (call.op == "Swish" || call.op == "SwiGLU") return Swish(n, static_cast<float>(attributes.Float("alpha", 1.0)));
  if (call.op == "Clip") return Clip(call);
  Op op;
  if (call.op == "Identity" || call.op == "Cast" || call.op == "CastLike") {
    op = Op::kCopy;
    // To bool: nonzero is true.
    if (call.outputs[0].dtype == DType::kBool && call.inputs[0].dtype != DType::kBool) {
      P p{.num_inputs = n};
      p.outputs = {p.Emit(Op::kNot, p.Emit(Op::kNot, 0))};
      return p;
    }
  } else if (call.op == "Gelu") {
    op = attributes.String("approximate", "none") == "tanh" ? Op::kGeluTanh : Op::kGelu;
  } else if (call.op == "Mod") {
    op = attributes.Int("fmod", 0) != 0 ? Op::kFmod : Op::kMod;
  } else if (const auto named = PointwiseOpFromName(call.op); named && *named < Op::kGeluTanh) {
    op = *named;
  } else {
    return std::nullopt;
  }
  P p{.num_inputs = n};
  const int wanted = PointwiseOperands(op);
  for (const WithAttributes& row : OperatorsWithAttributes()) {
    if (row.op != call.op) continue;
    for (const auto& [name, absent] : row.attributes) p.constants.push_back(static_cast<float>(attributes.Float(name, absent)));
  }
  if (op != Op::kCopy && p.first_result() != wanted) return std::nullopt;
  p.outputs = {p.Emit(op, 0, wanted > 1 ? 1 : -1, wanted > 2 ? 2 : -1)};
  return p;
}

// Whether an operand is boolean, by operator; the others are numbers.
bool HasBoolInput(const KernelCall& call, size_t input) {
  if (call.op == "Where") return input == 0;
  return call.op == "And" || call.op == "Or" || call.op == "Xor" || call.op == "Not";
}

bool HasBoolOutput(const KernelCall& call) {
  return call.op == "And" || call.op == "Or" || call.op == "Xor" || call.op == "Not" || call.op == "Equal" || call.op == "Greater" ||
         call.op == "GreaterOrEqual" || call.op == "Less" || call.op == "LessOrEqual" || call.op == "IsNaN";
}

bool IsNumber(DType dtype) { return dtype == DType::kFloat32 || Is16BitFloat(dtype); }

// For operators that accept both numbers and booleans.
std::string RejectsConversion(const KernelCall& call) {
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (size_t i = 0; i < operands->size(); ++i) {
      const DType dtype = (*operands)[i].dtype;
      const bool ignored = dtype == DType::kUndefined || (call.op == "CastLike" && operands == &call.inputs && i == 1);
      if (!ignored && !IsNumber(dtype) && dtype != DType::kBool) return std::string(DTypeName(dtype));
    }
  }
  return "";
}

// All numbers must have the same type.
std::string DTypeRejection(const KernelCall& call) {
  if (call.domain == "gradloom" || call.op == "Cast" || call.op == "CastLike" || call.op == "Identity") return RejectsConversion(call);
  DType number = DType::kUndefined;
  const auto fits = [&](DType dtype, bool truth) {
    if (truth) return dtype == DType::kBool;
    if (number == DType::kUndefined) number = dtype;
    return IsNumber(dtype) && dtype == number;
  };
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const DType dtype = call.inputs[i].dtype;
    if (dtype != DType::kUndefined && !fits(dtype, HasBoolInput(call, i))) return std::string(DTypeName(dtype));
  }
  for (const OperandType& output : call.outputs) {
    if (!fits(output.dtype, HasBoolOutput(call))) return std::string(DTypeName(output.dtype));
  }
  return "";
}

}  // namespace

std::string_view PointwiseOpName(PointwiseOp op) { return kFunctions[static_cast<size_t>(op)].name; }

std::optional<PointwiseOp> PointwiseOpFromName(std::string_view name) {
  static const std::map<std::string_view, PointwiseOp> index = [] {
    std::map<std::string_view, PointwiseOp> made;
    for (int i = 0; i < kNumPointwiseOps; ++i) made.emplace(kFunctions[i].name, static_cast<PointwiseOp>(i));
    return made;
  }();
  const auto found = index.find(name);
  if (found == index.end()) return std::nullopt;
  return found->second;
}

bool IsExact(PointwiseOp op) {
  switch (op) {
    case Op::kCopy:
    case Op::kAbs:
    case Op::kNeg:
    case Op::kRelu:
    case Op::kMax:
    case Op::kMin:
    case Op::kWhere:
    case Op::kClip:
    case Op::kReluGrad: return true;
    default: return false;
  }
}

bool HasOneSize(const KernelCall& call) {
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (operand.present() && DTypeBytes(operand.dtype) != DTypeBytes(call.outputs[0].dtype)) return false;
    }
  }
  return true;
}

int PointwiseOperands(PointwiseOp op) { return kFunctions[static_cast<size_t>(op)].operands; }

int PointwiseProgram::Emit(PointwiseOp op, int a, int b, int c) {
  instructions.push_back({op, {a, b, c}});
  return first_result() + static_cast<int>(instructions.size()) - 1;
}

Attributes PointwiseProgram::ToAttributes() const {
  std::vector<std::string> functions;
  std::vector<int64_t> operands;
  for (const Instruction& instruction : instructions) {
    functions.emplace_back(PointwiseOpName(instruction.op));
    operands.insert(operands.end(), instruction.operands.begin(), instruction.operands.end());
  }
  return {{"functions", functions},
          {"operands", operands},
          {"constants", std::vector<double>(constants.begin(), constants.end())},
          {"results", std::vector<int64_t>(outputs.begin(), outputs.end())}};
}

PointwiseProgram PointwiseProgram::FromAttributes(const Attributes& attributes, int num_inputs) {
  const auto functions = attributes.Strings("functions");
  const auto operands = attributes.Ints("operands"), results = attributes.Ints("results");
  const auto constants = attributes.Floats("constants");
  if (functions.empty() || functions.size() > kMaxInstructions || operands.size() != 3 * functions.size()) Refuse("wrong length");
  if (num_inputs > kMaxInputs || constants.size() > kMaxInstructions) Refuse("too many operands");
  if (results.empty() || results.size() > kMaxOutputs) Refuse("wrong number of results");
  PointwiseProgram program{.num_inputs = num_inputs};
  for (double constant : constants) program.constants.push_back(static_cast<float>(constant));
  for (size_t i = 0; i < functions.size(); ++i) {
    const auto op = PointwiseOpFromName(functions[i]);
    if (!op) Refuse("unknown function '" + Escaped(functions[i]) + "'");
    const int64_t known = program.first_result() + static_cast<int64_t>(i);
    std::array<int, 3> numbers{-1, -1, -1};
    for (int k = 0; k < 3; ++k) {
      const int64_t operand = operands[3 * i + static_cast<size_t>(k)];
      const bool wanted = k < PointwiseOperands(*op);
      if (wanted ? operand < 0 || operand >= known : operand != -1) Refuse("operand " + std::to_string(operand) + " is out of range");
      numbers[static_cast<size_t>(k)] = static_cast<int>(operand);
    }
    program.instructions.push_back({*op, numbers});
  }
  const int64_t end = program.first_result() + static_cast<int64_t>(functions.size());
  for (int64_t result : results) {
    if (result < program.first_result() || result >= end) Refuse("result " + std::to_string(result) + " is out of range");
    program.outputs.push_back(static_cast<int>(result));
  }
  return program;
}

std::optional<PointwiseProgram> PointwiseProgramOf(const KernelCall& call, std::string* why) {
  const auto reject = [&](std::string reason) -> std::optional<PointwiseProgram> {
    if (why != nullptr) *why = std::move(reason);
    return std::nullopt;
  };
  if (call.inputs.empty() || call.outputs.empty()) return reject("no operands");
  if (std::string dtype = DTypeRejection(call); !dtype.empty()) return reject(dtype);
  if (call.inputs.size() > PointwiseProgram::kMaxInputs) return reject("more than 24 inputs");
  std::optional<PointwiseProgram> program;
  if (call.domain.empty()) {
    program = StandardProgram(call);
  } else if (call.op == "Fused") {
    program = PointwiseProgram::FromAttributes(call.attributes, static_cast<int>(call.inputs.size()));
    if (program->outputs.size() != call.outputs.size()) return reject("a program with a different number of results");
  }
  if (!program) return reject("no pointwise program");
  return program;
}

}  // namespace gradloom
