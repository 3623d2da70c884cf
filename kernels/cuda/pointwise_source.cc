#include "kernels/cuda/pointwise_source.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdio>
#include <string_view>
#include <vector>

#include "kernels/catalog/pointwise_tensors.h"
#include "kernels/cuda/rows/padded_rows.h"
#include "kernels/cuda/scalar_text.h"
#include "kernels/reference/operands.h"

namespace gradloom::cuda {
namespace {

constexpr const char* kExpressions[] = {
#define GRADLOOM_POINTWISE(name, operands, expression) #expression,
#include "kernels/scalar/pointwise.def"
#undef GRADLOOM_POINTWISE
};

const char* TypeText(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "float";
    case DType::kFloat16: return "Half";
    case DType::kBfloat16: return "Bfloat16";
    case DType::kBool: return "unsigned char";
    default: break;
  }
  throw Error(ErrorCode::kType, "pointwise programs have no elements of type " + std::string(DTypeName(dtype)));
}

std::string Number(int64_t value) { return std::to_string(value); }

// Exact for every value, because it spells the bits.
std::string FloatText(float value) {
  char text[40];
  std::snprintf(text, sizeof text, "FromBits((int)0x%08Xu)", std::bit_cast<uint32_t>(value));
  return text;
}

// The functions whose result on a GPU is a conversion in hardware; NaN has other bits than on the CPU.
const char* ExpressionOf(PointwiseOp op) {
  switch (op) {
    case PointwiseOp::kToFloat16: return "(float)(Half)a";
    case PointwiseOp::kToBfloat16: return "(float)(Bfloat16)a";
    default: return kExpressions[static_cast<size_t>(op)];
  }
}

// The number of calls of functions, each of which may be many instructions, in the text of a program.
int CallsOf(const PointwiseProgram& program) {
  int calls = 0;
  for (const PointwiseProgram::Instruction& instruction : program.instructions) {
    const std::string_view text = ExpressionOf(instruction.op);
    for (size_t at = 1; at < text.size(); ++at) calls += text[at] == '(' && std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0;
  }
  return calls;
}

// The iteration over the elements of the output, with axes merged where all inputs allow it.
struct Axes {
  std::vector<int64_t> extents;
  std::vector<std::vector<int64_t>> strides;  // by input
  int64_t columns = 0;                        // if rows are padded: the elements of a row, an axis of its own, without padding

  int64_t elements() const {
    int64_t product = 1;
    for (int64_t extent : extents) product *= extent;
    return product;
  }
};

// With padded rows, the iteration includes the padding.
Axes MergedAxes(const KernelCall& call) {
  const int64_t stride = PaddedPointwiseStride(call).value_or(0);
  Shape shape = call.outputs[0].shape;
  std::vector<std::vector<int64_t>> all;
  const int last = shape.rank() - 1;
  for (const OperandType& input : call.inputs) {
    const bool padded = stride > 0 && input.present() && !input.layout.plain();
    all.push_back(BroadcastStrides(padded ? input.layout.Padded(shape) : input.shape, padded ? input.layout.Padded(shape) : shape));
  }
  Axes axes{.extents = {}, .strides = {}, .columns = stride > 0 ? shape[last] : 0};
  if (stride > 0) shape[last] = stride;
  axes.strides.resize(all.size());
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    if (shape[axis] == 1) continue;
    bool merges = !axes.extents.empty() && (stride == 0 || axis < last);
    for (size_t k = 0; k < all.size() && merges; ++k) merges = axes.strides[k].back() == all[k][a] * shape[axis];
    if (merges) {
      axes.extents.back() *= shape[axis];
    } else {
      axes.extents.push_back(shape[axis]);
    }
    for (size_t k = 0; k < all.size(); ++k) {
      if (!merges) axes.strides[k].push_back(0);
      axes.strides[k].back() = all[k][a];
    }
  }
  if (axes.extents.empty()) {
    axes.extents.push_back(1);
    for (auto& strides : axes.strides) strides.push_back(0);
  }
  return axes;
}

// Whether an input's elements differ along rows that are padded in other operands, but not in this one.
bool IsRagged(const KernelCall& call, const Axes& axes, size_t input) {
  return axes.columns > 0 && call.inputs[input].layout.plain() && axes.strides[input].back() != 0;
}

// Whether, in every operand, `width` consecutive elements from a multiple of it are contiguous or the same element, or loaded one by one.
bool HasWidth(const KernelCall& call, const Axes& axes, int width) {
  if (axes.extents.back() % width != 0) return false;
  for (size_t k = 0; k < axes.strides.size(); ++k) {
    const std::vector<int64_t>& strides = axes.strides[k];
    if (strides.back() == 0 || IsRagged(call, axes, k)) continue;
    if (strides.back() != 1) return false;
    for (size_t a = 0; a + 1 < strides.size(); ++a) {
      if (strides[a] % width != 0) return false;
    }
  }
  return true;
}

// The consecutive elements per thread: those of 16 bytes of the widest operand that is as large as the result. Long programs have fewer,
// because the code of all elements is separate.
int WidthOf(const KernelCall& call, const PointwiseProgram& program, const Axes& axes) {
  int64_t widest = 1;
  for (const OperandType& output : call.outputs) widest = std::max(widest, DTypeBytes(output.dtype));
  for (const OperandType& input : call.inputs) {
    if (input.present() && input.shape.elements() == call.outputs[0].shape.elements()) widest = std::max(widest, DTypeBytes(input.dtype));
  }
  if (widest <= 2 && program.instructions.size() <= 32 && CallsOf(program) <= 2 && HasWidth(call, axes, 8)) return 8;
  return HasWidth(call, axes, 4) ? 4 : 1;
}

// Those of groups of tensors: one axis, whatever its extent, along which inputs with a single element have no stride.
Axes AxesOfTensors(const KernelCall& call) {
  Axes axes{.extents = {1}, .strides = {}};
  for (size_t k = 0; k < FusedOf(call, 0).inputs.size(); ++k) axes.strides.push_back({IsSharedElement(call, k) ? 0 : 1});
  return axes;
}

// The functions of kernels/scalar/rounded.h.
constexpr const char* kRounded[] = {"Erf", "Exp", "Expm1", "Gelu", "GeluTanh", "Sigmoid", "Softplus", "Tanh"};

bool RoundsResults(const KernelCall& call) {
  return std::all_of(call.outputs.begin(), call.outputs.end(), [](const OperandType& output) { return Is16BitFloat(output.dtype); });
}

class Writer {
 public:
  // For the groups of tensors of `all`, of which `call` is the first.
  Writer(const KernelCall& all, const KernelCall& call, const PointwiseProgram& program, bool preserves_state)
      : call_(call), program_(program), preserves_state_(preserves_state), axes_(AxesOfTensors(all)) {}

  Writer(const KernelCall& call, const PointwiseProgram& program, bool preserves_state)
      : call_(call),
        program_(program),
        preserves_state_(preserves_state),
        axes_(MergedAxes(call)),
        width_(WidthOf(call, program, axes_)),
        // All loads of a thread are in flight at the same time; functions give the other warps time for theirs.
        at_once_(width_ > 1 && program.instructions.size() <= 12 && CallsOf(program) == 0 ? 2 : 1) {}

  PointwiseSource Write() {
    const int64_t elements = axes_.elements();
    const int64_t groups = elements / width_;
    text_ = ScalarText();
    text_ += "struct Arguments {\n";
    Operands();
    if (preserves_state_) text_ += "  const int* refused;\n";
    text_ += "};\n";
    Head("a");
    // Uses 32-bit indices if possible, because the compiler turns their division by constants into multiplication.
    index_ = elements < (int64_t{1} << 31) ? "unsigned" : "long long";
    text_ += "  const " + index_ + " end = " + Number(groups) + ", step = (" + index_ + ")gridDim.x * blockDim.x;\n";
    text_ += "  for (" + index_ + " g = (" + index_ + ")blockIdx.x * blockDim.x + threadIdx.x; g < end; g += " + Number(at_once_) +
             " * step) {\n";
    Groups();
    text_ += "  }\n}\n";
    return {std::move(text_), (groups + at_once_ - 1) / at_once_, width_};
  }

  PointwiseSource WriteTensors(int tensors) {
    text_ = ScalarText();
    text_ += "struct Tensors {\n";
    Operands();
    text_ += "  long long elements, blocks;\n};\nstruct Arguments {\n  Tensors tensors[" + Number(tensors) + "];\n";
    if (preserves_state_) text_ += "  const int* refused;\n";
    text_ += "};\n";
    Head("all");
    const std::string tile = Number(kPointwiseTile);
    text_ += "  int at = 0;\n";
    text_ += "  for (long long b = blockIdx.x; b < all.tensors[" + Number(tensors - 1) + "].blocks; b += gridDim.x) {\n";
    text_ += "  while (b >= all.tensors[at].blocks) ++at;\n";
    text_ += "  const Tensors& a = all.tensors[at];\n";
    text_ += "  const long long first = (b - (at == 0 ? 0 : all.tensors[at - 1].blocks)) * " + tile + ";\n";
    text_ += "  const long long end = first + " + tile + " < a.elements ? first + " + tile + " : a.elements;\n";
    text_ += "  const long long step = blockDim.x;\n";
    text_ += "  for (long long g = first + threadIdx.x; g < end; g += step) {\n";
    Groups();
    text_ += "  }\n  }\n}\n";
    return {std::move(text_), 0, 1};
  }

 private:
  void Operands() {
    for (size_t k = 0; k < call_.inputs.size(); ++k) {
      text_ +=
          "  const " + std::string(call_.inputs[k].present() ? TypeText(call_.inputs[k].dtype) : "void") + "* in" + Number(Id(k)) + ";\n";
    }
    for (size_t k = 0; k < call_.outputs.size(); ++k)
      text_ += "  " + std::string(TypeText(call_.outputs[k].dtype)) + "* out" + Number(Id(k)) + ";\n";
  }

  static int64_t Id(size_t k) { return static_cast<int64_t>(k); }
  bool Read(size_t input) const { return call_.inputs[input].present(); }

  void Head(const std::string& arguments) {
    text_ += "extern \"C\" __global__ void __launch_bounds__(" + Number(kPointwiseThreads) + ") " + kPointwiseName + "(const Arguments " +
             arguments + ") {\n";
    if (rounded_) {
      for (const char* name : kRounded) text_ += std::string("  using gradloom::scalar::rounded::") + name + ";\n";
    }
    // The other outputs are not needed in a step that has been refused.
    if (preserves_state_) text_ += "  if (*" + arguments + ".refused != 0) return;\n";
  }

  // Computes the groups g, g + step, ... below `end`, each of them `width_` consecutive elements.
  void Groups() {
    for (size_t k = 0; k < call_.inputs.size(); ++k) {
      if (Read(k)) text_ += "    " + (IsVector(k) ? VectorText(call_.inputs[k]) : TypeText(call_.inputs[k].dtype)) + " v" + Each(k) + ";\n";
    }
    EachGroup();
    Offsets();
    Loads();
    text_ += "    }\n";
    EachGroup();
    for (size_t k = 0; k < call_.outputs.size(); ++k) text_ += "    " + VectorText(call_.outputs[k]) + " w" + Number(Id(k)) + ";\n";
    text_ += "#pragma unroll\n    for (int j = 0; j < " + Number(width_) + "; ++j) {\n";
    Compute();
    text_ += "    }\n";
    Stores();
    text_ += "    }\n";
  }

  void EachGroup() {
    text_ += "#pragma unroll\n    for (int u = 0; u < " + Number(at_once_) + "; ++u) {\n";
    text_ += "    if (g + u * step >= end) break;\n";
    text_ += "    const " + index_ + " i = (g + u * step) * " + Number(width_) + ";\n";
    // The elements of a group are in one row.
    if (axes_.columns > 0) text_ += "    const " + index_ + " column = i % " + Number(axes_.extents.back()) + "u;\n";
  }

  // Whether element j of a group is no padding.
  std::string Exists() const { return "column + j < " + Number(axes_.columns) + "u"; }

  // Whether the elements of a group differ.
  bool IsVector(size_t input) const { return (width_ > 1 || axes_.columns > 0) && axes_.strides[input].back() == 1; }
  std::string VectorText(const OperandType& operand) const {
    return "Vector<" + std::string(TypeText(operand.dtype)) + ", " + Number(width_) + ">";
  }
  std::string Each(size_t k) const { return Number(Id(k)) + "[" + Number(at_once_) + "]"; }

  // The index of element i along each axis, then its offset in each input, which is not larger than the result.
  void Offsets() {
    const size_t rank = axes_.extents.size();
    text_ += "    " + index_ + " rest = i;\n";
    for (size_t a = rank; a-- > 0;) {
      const std::string name = "x" + Number(Id(a));
      if (a == 0) {
        text_ += "    const " + index_ + " x0 = rest;\n";
      } else {
        text_ += "    const " + index_ + " " + name + " = rest % " + Number(axes_.extents[a]) +
                 "u;\n    rest /= " + Number(axes_.extents[a]) + "u;\n";
      }
    }
    for (size_t k = 0; k < call_.inputs.size(); ++k) {
      if (!Read(k)) continue;
      text_ += "    const " + index_ + " at" + Number(Id(k)) + " = 0";
      for (size_t a = 0; a < rank; ++a) {
        if (axes_.strides[k][a] != 0) text_ += " + x" + Number(Id(a)) + " * " + Number(axes_.strides[k][a]);
      }
      text_ += ";\n";
    }
  }

  void Loads() {
    for (size_t k = 0; k < call_.inputs.size(); ++k) {
      if (!Read(k)) continue;
      const std::string id = Number(Id(k));
      if (IsRagged(call_, axes_, k)) {
        text_ += "#pragma unroll\n    for (int j = 0; j < " + Number(width_) + "; ++j)\n      if (" + Exists() + ") v" + id +
                 "[u].at[j] = a.in" + id + "[at" + id + " + j];\n";
        continue;
      }
      text_ +=
          "    v" + id + "[u] = " +
          (IsVector(k) ? "*(const " + VectorText(call_.inputs[k]) + "*)(a.in" + id + " + at" + id + ")" : "a.in" + id + "[at" + id + "]") +
          ";\n";
    }
  }

  void Compute() {
    for (size_t k = 0; k < call_.inputs.size(); ++k) {
      if (!Read(k)) continue;
      const std::string id = Number(Id(k));
      const std::string value = "v" + id + (IsVector(k) ? "[u].at[j]" : "[u]");
      text_ += "      const float r" + id + " = " +
               (call_.inputs[k].dtype == DType::kBool ? value + " != 0 ? 1.0f : 0.0f" : "(float)" + value) + ";\n";
    }
    int result = program_.num_inputs;
    for (float constant : program_.constants) text_ += "      const float r" + Number(result++) + " = " + FloatText(constant) + ";\n";
    for (const PointwiseProgram::Instruction& instruction : program_.instructions) {
      const std::string name = "r" + Number(result++);
      text_ += "      float " + name + ";\n      {";
      const char* const operands[] = {"a", "b", "c"};
      for (int k = 0; k < PointwiseOperands(instruction.op); ++k) {
        text_ += std::string(" const float ") + operands[k] + " = r" + Number(instruction.operands[static_cast<size_t>(k)]) + ";";
      }
      text_ += " " + name + " = " + ExpressionOf(instruction.op) + "; }\n";
    }
    for (size_t k = 0; k < call_.outputs.size(); ++k) {
      const std::string value = "r" + Number(Stored(k));
      const std::string type = TypeText(call_.outputs[k].dtype);
      const std::string stored = call_.outputs[k].dtype == DType::kBool ? value + " != 0.0f ? 1 : 0" : "(" + type + ")" + value;
      text_ += "      w" + Number(Id(k)) +
               ".at[j] = " + (axes_.columns > 0 ? Exists() + " ? (" + type + ")(" + stored + ") : (" + type + ")0.0f" : stored) + ";\n";
    }
  }

  // The result that output k rounds: what has been rounded to its type already rounds to itself, so what was before that.
  int Stored(size_t k) const {
    const int result = program_.outputs[k];
    const PointwiseProgram::Instruction& last = program_.instructions[static_cast<size_t>(result - program_.first_result())];
    const DType dtype = call_.outputs[k].dtype;
    const bool rounds = (last.op == PointwiseOp::kToFloat16 && dtype == DType::kFloat16) ||
                        (last.op == PointwiseOp::kToBfloat16 && dtype == DType::kBfloat16);
    return rounds ? last.operands[0] : result;
  }

  void Stores() {
    for (size_t k = 0; k < call_.outputs.size(); ++k) {
      const std::string id = Number(Id(k));
      text_ += width_ > 1 ? "    *(" + VectorText(call_.outputs[k]) + "*)(a.out" + id + " + i) = w" + id + ";\n"
                          : "    a.out" + id + "[i] = w" + id + ".at[0];\n";
    }
  }

  const KernelCall& call_;
  const PointwiseProgram& program_;
  const bool preserves_state_;
  const bool rounded_ = RoundsResults(call_);
  Axes axes_;
  int width_ = 1, at_once_ = 1;  // elements of a group, groups that a thread computes together
  std::string index_ = "long long";
  std::string text_;
};

}  // namespace

PointwiseSource WritePointwiseSource(const KernelCall& call, const PointwiseProgram& program, bool preserves_state) {
  return Writer(call, program, preserves_state).Write();
}

PointwiseSource WriteTensorsSource(const KernelCall& call, bool preserves_state) {
  const KernelCall first = FusedOf(call, 0);
  const PointwiseProgram program = *PointwiseProgramOf(first);
  return Writer(call, first, program, preserves_state).WriteTensors(FusedTensorsOf(call));
}

}  // namespace gradloom::cuda
