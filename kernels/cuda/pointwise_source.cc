#include "kernels/cuda/pointwise_source.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <vector>

#include "kernels/catalog/pointwise_tensors.h"
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

// The iteration over the elements of the output, with axes merged where all inputs allow it.
struct Axes {
  std::vector<int64_t> extents;
  std::vector<std::vector<int64_t>> strides;  // by input
};

Axes MergedAxes(const KernelCall& call) {
  const Shape& shape = call.outputs[0].shape;
  std::vector<std::vector<int64_t>> all;
  for (const OperandType& input : call.inputs) all.push_back(BroadcastStrides(input.shape, shape));
  Axes axes;
  axes.strides.resize(all.size());
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    if (shape[axis] == 1) continue;
    bool merges = !axes.extents.empty();
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

// Four consecutive elements per thread if, in every operand, they are contiguous or the same element.
int WidthOf(const Axes& axes) {
  if (axes.extents.back() % 4 != 0) return 1;
  for (const auto& strides : axes.strides) {
    if (strides.back() == 0) continue;
    if (strides.back() != 1) return 1;
    for (size_t a = 0; a + 1 < strides.size(); ++a) {
      if (strides[a] % 4 != 0) return 1;
    }
  }
  return 4;
}

// Those of groups of tensors: one axis, whatever its extent, along which inputs with a single element have no stride.
Axes AxesOfTensors(const KernelCall& call) {
  Axes axes{{1}, {}};
  for (size_t k = 0; k < FusedOf(call, 0).inputs.size(); ++k) axes.strides.push_back({IsSharedElement(call, k) ? 0 : 1});
  return axes;
}

class Writer {
 public:
  // For the groups of tensors of `all`, of which `call` is the first.
  Writer(const KernelCall& all, const KernelCall& call, const PointwiseProgram& program, bool preserves_state)
      : call_(call), program_(program), preserves_state_(preserves_state), axes_(AxesOfTensors(all)), width_(1), index_("long long") {}

  Writer(const KernelCall& call, const PointwiseProgram& program, bool preserves_state)
      : call_(call), program_(program), preserves_state_(preserves_state), axes_(MergedAxes(call)), width_(WidthOf(axes_)) {}

  PointwiseSource Write() {
    const int64_t elements = call_.outputs[0].shape.elements();
    const int64_t groups = elements / width_;
    text_ = ScalarText();
    text_ += "struct Arguments {\n";
    Operands();
    if (preserves_state_) text_ += "  const int* refused;\n";
    text_ += "};\nextern \"C\" __global__ void " + std::string(kPointwiseName) + "(const Arguments a) {\n";
    // The other outputs are not needed in a step that has been refused.
    if (preserves_state_) text_ += "  if (*a.refused != 0) return;\n";
    // Uses 32-bit indices if possible, because the compiler turns their division by constants into multiplication.
    index_ = elements < (int64_t{1} << 31) ? "unsigned" : "long long";
    text_ += "  const long long step = (long long)gridDim.x * blockDim.x;\n";
    text_ += "  for (long long g = (long long)blockIdx.x * blockDim.x + threadIdx.x; g < " + Number(groups) + "LL; g += step) {\n";
    text_ += "    const " + index_ + " i = (" + index_ + ")g * " + Number(width_) + ";\n";
    Offsets();
    Loads();
    text_ += "    for (int j = 0; j < " + Number(width_) + "; ++j) {\n";
    Compute();
    text_ += "    }\n";
    Stores();
    text_ += "  }\n}\n";
    return {std::move(text_), groups, width_};
  }

  PointwiseSource WriteTensors(int tensors) {
    text_ = ScalarText();
    text_ += "struct Tensors {\n";
    Operands();
    text_ += "  long long elements, blocks;\n};\nstruct Arguments {\n  Tensors tensors[" + Number(tensors) + "];\n";
    if (preserves_state_) text_ += "  const int* refused;\n";
    text_ += "};\nextern \"C\" __global__ void " + std::string(kPointwiseName) + "(const Arguments all) {\n";
    if (preserves_state_) text_ += "  if (*all.refused != 0) return;\n";
    const std::string tile = Number(kPointwiseTile);
    text_ += "  int at = 0;\n";
    text_ += "  for (long long b = blockIdx.x; b < all.tensors[" + Number(tensors - 1) + "].blocks; b += gridDim.x) {\n";
    text_ += "  while (b >= all.tensors[at].blocks) ++at;\n";
    text_ += "  const Tensors& a = all.tensors[at];\n";
    text_ += "  const long long first = (b - (at == 0 ? 0 : all.tensors[at - 1].blocks)) * " + tile + ";\n";
    text_ += "  const long long end = first + " + tile + " < a.elements ? first + " + tile + " : a.elements;\n";
    text_ += "  for (long long i = first + threadIdx.x; i < end; i += blockDim.x) {\n";
    Offsets();
    Loads();
    text_ += "    for (int j = 0; j < 1; ++j) {\n";
    Compute();
    text_ += "    }\n";
    Stores();
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

  // The index of element i along each axis, then its offset in each input.
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
      text_ += "    const long long at" + Number(Id(k)) + " = 0";
      for (size_t a = 0; a < rank; ++a) {
        if (axes_.strides[k][a] != 0) text_ += " + (long long)x" + Number(Id(a)) + " * " + Number(axes_.strides[k][a]) + "LL";
      }
      text_ += ";\n";
    }
  }

  void Loads() {
    for (size_t k = 0; k < call_.inputs.size(); ++k) {
      if (!Read(k)) continue;
      const std::string id = Number(Id(k)), type = TypeText(call_.inputs[k].dtype);
      if (width_ > 1 && axes_.strides[k].back() == 1) {
        text_ += "    const Four<" + type + "> v" + id + " = *(const Four<" + type + ">*)(a.in" + id + " + at" + id + ");\n";
      } else {
        text_ += "    const " + type + " v" + id + " = a.in" + id + "[at" + id + "];\n";
      }
    }
    for (size_t k = 0; k < call_.outputs.size(); ++k) {
      text_ += "    Four<" + std::string(TypeText(call_.outputs[k].dtype)) + "> w" + Number(Id(k)) + ";\n";
    }
  }

  void Compute() {
    for (size_t k = 0; k < call_.inputs.size(); ++k) {
      if (!Read(k)) continue;
      const std::string id = Number(Id(k));
      const std::string value = width_ > 1 && axes_.strides[k].back() == 1 ? "v" + id + ".at[j]" : "v" + id;
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
      text_ += " " + name + " = " + kExpressions[static_cast<size_t>(instruction.op)] + "; }\n";
    }
    for (size_t k = 0; k < call_.outputs.size(); ++k) {
      const std::string value = "r" + Number(program_.outputs[k]);
      const std::string type = TypeText(call_.outputs[k].dtype);
      text_ += "      w" + Number(Id(k)) +
               ".at[j] = " + (call_.outputs[k].dtype == DType::kBool ? value + " != 0.0f ? 1 : 0" : "(" + type + ")" + value) + ";\n";
    }
  }

  void Stores() {
    for (size_t k = 0; k < call_.outputs.size(); ++k) {
      const std::string id = Number(Id(k)), type = TypeText(call_.outputs[k].dtype);
      text_ +=
          width_ > 1 ? "    *(Four<" + type + ">*)(a.out" + id + " + i) = w" + id + ";\n" : "    a.out" + id + "[i] = w" + id + ".at[0];\n";
    }
  }

  const KernelCall& call_;
  const PointwiseProgram& program_;
  const bool preserves_state_;
  Axes axes_;
  int width_;
  std::string index_;
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
