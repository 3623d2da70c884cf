// Reductions over any axes. The order of additions depends only on the shape, not on the number of threads. 16-bit operands are widened
// in the first-level cache, and results are rounded once.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 14;
constexpr int64_t kPart = 1 << 14;    // elements per part of a long reduction
constexpr int64_t kColumnGroup = 64;  // columns that are summed together
constexpr int64_t kMaxParts = 256;
constexpr int64_t kWideRun = 4096, kWideRows = 16;  // elements of a row, and rows of a group of columns, that are widened at once

enum class Finish : uint8_t { kNone, kMean, kRoot, kLog };

struct Rule {
  std::string_view op;
  Reduction reduction;
  Finish finish;
};

constexpr Rule kRules[] = {
    {"ReduceSum", Reduction::kSum, Finish::kNone},     {"ReduceMean", Reduction::kSum, Finish::kMean},
    {"ReduceMax", Reduction::kMax, Finish::kNone},     {"ReduceMin", Reduction::kMin, Finish::kNone},
    {"ReduceProd", Reduction::kProd, Finish::kNone},   {"ReduceSumSquare", Reduction::kSumSquare, Finish::kNone},
    {"ReduceL1", Reduction::kSumAbs, Finish::kNone},   {"ReduceL2", Reduction::kSumSquare, Finish::kRoot},
    {"ReduceLogSum", Reduction::kSum, Finish::kLog},   {"GlobalAveragePool", Reduction::kSum, Finish::kMean},
    {"GlobalMaxPool", Reduction::kMax, Finish::kNone}, {"ReduceLogSumExp", Reduction::kLogSumExp, Finish::kNone},
};

const Rule& RuleOf(std::string_view op) {
  for (const Rule& rule : kRules) {
    if (rule.op == op) return rule;
  }
  GRADLOOM_CHECK(false);
  return kRules[0];
}

float StartOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kMax:
    case Reduction::kLogSumExp: return -std::numeric_limits<float>::infinity();
    case Reduction::kMin: return std::numeric_limits<float>::infinity();
    case Reduction::kProd: return 1.0f;
    default: return 0.0f;
  }
}

// Combines the totals of parts; sums are in double.
struct Total {
  explicit Total(Reduction reduction) : reduction(reduction), value(StartOf(reduction)) {}
  void Join(float part) {
    const double x = static_cast<double>(part);
    switch (reduction) {
      case Reduction::kMax: value = value != value ? value : (x != x || x > value) ? x : value; break;
      case Reduction::kMin: value = value != value ? value : (x != x || x < value) ? x : value; break;
      case Reduction::kProd: value *= x; break;
      case Reduction::kLogSumExp: JoinLogSumExp(x); break;
      default: value += x; break;
    }
  }
  void JoinLogSumExp(double x) {
    const double max = value != value || value > x ? value : x;
    value = std::isfinite(max) ? max + std::log(std::exp(value - max) + std::exp(x - max)) : max;
  }
  Reduction reduction;
  double value;
};

// The input as alternating kept and reduced axes, without those of extent 1.
struct Pattern {
  std::array<int64_t, kMaxRank> extents{}, strides{};
  std::array<bool, kMaxRank> reduced{};
  int rank = 0;

  Pattern(const Shape& shape, uint64_t reduced_axes) {
    int64_t stride = 1;
    // Built from the innermost axis outward, then reversed.
    for (int axis = shape.rank(); axis-- > 0;) {
      const bool is_reduced = (reduced_axes >> axis & 1) != 0;
      if (shape[axis] != 1) {
        const auto at = static_cast<size_t>(rank);
        if (rank > 0 && reduced[at - 1] == is_reduced) {
          extents[at - 1] *= shape[axis];
        } else {
          extents[at] = shape[axis];
          strides[at] = stride;
          reduced[at] = is_reduced;
          ++rank;
        }
      }
      stride *= shape[axis];
    }
    for (int i = 0; i < rank / 2; ++i) {
      const auto a = static_cast<size_t>(i), b = static_cast<size_t>(rank - 1 - i);
      std::swap(extents[a], extents[b]);
      std::swap(strides[a], strides[b]);
      std::swap(reduced[a], reduced[b]);
    }
  }
};

// The offsets of all index tuples over some of the axes of a pattern.
struct IndexOffsets {
  std::array<int64_t, kMaxRank> extents{}, strides{};
  int rank = 0;
  int64_t count = 1;

  void Add(int64_t extent, int64_t stride) {
    extents[static_cast<size_t>(rank)] = extent;
    strides[static_cast<size_t>(rank++)] = stride;
    count *= extent;
  }
  int64_t Offset(int64_t i) const {
    int64_t offset = 0;
    for (int axis = rank; axis-- > 0;) {
      const auto at = static_cast<size_t>(axis);
      offset += i % extents[at] * strides[at];
      i /= extents[at];
    }
    return offset;
  }
};

bool IsGlobalPool(std::string_view op) { return op == "GlobalAveragePool" || op == "GlobalMaxPool"; }

// Permutes only the input: the result has the same order of elements, see Rejects.
PhysicalCall PhysicalInput(const KernelCall& call) {
  KernelCall input = call;
  input.inputs.resize(1);
  input.outputs.clear();
  return *PhysicalOf(input);
}

class ReduceKernel : public Kernel {
 public:
  explicit ReduceKernel(const KernelCall& call)
      : loops_(BestLoops()),
        rule_(RuleOf(call.op)),
        physical_(PhysicalInput(call)),
        shape_(physical_.call.inputs[0].shape),
        in_(call.inputs[0].dtype),
        out_(call.outputs[0].dtype),
        outputs_(call.outputs[0].shape.elements()),
        threads_(call.threads),
        noop_(call.attributes.Int("noop_with_empty_axes", 0) != 0),
        planes_(IsGlobalPool(call.op)) {
    const bool has_axes = call.inputs.size() > 1 && call.inputs[1].present();
    num_axes_ = has_axes ? call.inputs[1].shape.elements() : 0;
    wide_axes_ = !has_axes || call.inputs[1].dtype == DType::kInt64;
    parts_.resize(static_cast<size_t>(kMaxParts * kColumnGroup));
    if (out_ != DType::kFloat32) results_.resize(static_cast<size_t>(outputs_));
  }

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    if (outputs_ == 0) return;
    const void* const x = inputs[0];
    float* const y = out_ == DType::kFloat32 ? static_cast<float*>(outputs[0]) : results_.data();
    const Pattern pattern(shape_, ReducedAxes(num_axes_ > 0 ? inputs[1] : nullptr));
    const int64_t total = shape_.elements();
    const int64_t count = total / outputs_;
    if (total == 0) {
      loops_.fill(y, StartOf(rule_.reduction), outputs_);
    } else if (pattern.rank > 0 && pattern.reduced[static_cast<size_t>(pattern.rank - 1)]) {
      Rows(pattern, x, y);
    } else {
      Columns(pattern, x, y);
    }
    if (rule_.finish != Finish::kNone) FinishAll(y, count);
    if (out_ != DType::kFloat32) StoreFloats(loops_, out_, y, outputs_, outputs[0], 0);
  }

 private:
  uint64_t ReducedAxes(const void* axes) const {
    uint64_t bits = 0;
    if (planes_) {
      for (int axis = 2; axis < shape_.rank(); ++axis) bits |= uint64_t{1} << physical_.Axis(axis);
      return bits;
    }
    if (axes == nullptr) return noop_ ? 0 : ~uint64_t{0};
    for (int64_t i = 0; i < num_axes_; ++i) {
      const int64_t axis = wide_axes_ ? static_cast<const int64_t*>(axes)[i] : static_cast<const int32_t*>(axes)[i];
      const auto normal = NormalAxis(axis, shape_.rank());
      if (!normal) throw Error(ErrorCode::kAttr, std::string(rule_.op) + ": axis " + std::to_string(axis) + " is out of range");
      bits |= uint64_t{1} << physical_.Axis(*normal);
    }
    return bits;
  }

  // The reduction of n contiguous elements.
  float Row(const void* x, int64_t offset, int64_t n) const {
    const auto reduce = loops_.reduce_row[static_cast<size_t>(rule_.reduction)];
    if (in_ == DType::kFloat32) return reduce(static_cast<const float*>(x) + offset, n);
    alignas(64) float wide[kWideRun];
    const auto run = [&](int64_t begin) {
      const int64_t count = std::min(kWideRun, n - begin);
      LoadFloats(loops_, in_, x, offset + begin, count, wide);
      return reduce(wide, count);
    };
    if (n <= kWideRun) return run(0);
    Total total(rule_.reduction);
    for (int64_t begin = 0; begin < n; begin += kWideRun) total.Join(run(begin));
    return static_cast<float>(total.value);
  }

  // Reduces `rows` rows of at most kColumnGroup elements, `stride` apart, into as many columns.
  void ReduceGroup(const void* x, int64_t offset, int64_t rows, int64_t stride, int64_t columns, float* into) const {
    const auto reduce = loops_.reduce_columns[static_cast<size_t>(rule_.reduction)];
    if (in_ == DType::kFloat32) return reduce(static_cast<const float*>(x) + offset, rows, stride, columns, into);
    alignas(64) float wide[kWideRows * kColumnGroup];
    for (int64_t begin = 0; begin < rows; begin += kWideRows) {
      const int64_t count = std::min(kWideRows, rows - begin);
      for (int64_t r = 0; r < count; ++r) LoadFloats(loops_, in_, x, offset + (begin + r) * stride, columns, wide + r * kColumnGroup);
      reduce(wide, count, kColumnGroup, columns, into);
    }
  }

  // The innermost axis is reduced, as rows.
  void Rows(const Pattern& pattern, const void* x, float* y) {
    IndexOffsets kept, reduced;
    for (int i = 0; i + 1 < pattern.rank; ++i) {
      const auto at = static_cast<size_t>(i);
      (pattern.reduced[at] ? reduced : kept).Add(pattern.extents[at], pattern.strides[at]);
    }
    const int64_t n = pattern.extents[static_cast<size_t>(pattern.rank - 1)];
    if (kept.count == 1 && reduced.count == 1 && n > 2 * kPart) return OneRow(x, n, y);
    const int threads = ThreadsFor(kept.count * reduced.count * n, kElementsPerThread, threads_);
    ParallelFor(kept.count, threads, [&](int64_t k) {
      const int64_t from = kept.Offset(k);
      if (reduced.count == 1) {
        y[k] = Row(x, from, n);
        return;
      }
      Total total(rule_.reduction);
      for (int64_t r = 0; r < reduced.count; ++r) total.Join(Row(x, from + reduced.Offset(r), n));
      y[k] = static_cast<float>(total.value);
    });
  }

  // One long sum: parts of fixed length, combined in order.
  void OneRow(const void* x, int64_t n, float* y) {
    const int64_t part = std::max(kPart, (n + kMaxParts - 1) / kMaxParts), count = (n + part - 1) / part;
    ParallelFor(count, ThreadsFor(n, kElementsPerThread, threads_),
                [&](int64_t i) { parts_[static_cast<size_t>(i)] = Row(x, i * part, std::min(part, n - i * part)); });
    Total total(rule_.reduction);
    for (int64_t i = 0; i < count; ++i) total.Join(parts_[static_cast<size_t>(i)]);
    y[0] = static_cast<float>(total.value);
  }

  // The innermost axis is kept: groups of its columns, each over all rows.
  void Columns(const Pattern& pattern, const void* x, float* y) {
    IndexOffsets kept, reduced;
    int64_t columns = 1, rows = 1, stride = 0;
    for (int i = 0; i < pattern.rank; ++i) {
      const auto at = static_cast<size_t>(i);
      if (i + 1 == pattern.rank) {
        columns = pattern.extents[at];
      } else if (i + 2 == pattern.rank) {
        rows = pattern.extents[at];
        stride = pattern.strides[at];
      } else {
        (pattern.reduced[at] ? reduced : kept).Add(pattern.extents[at], pattern.strides[at]);
      }
    }
    const float start = StartOf(rule_.reduction);
    const int64_t groups = (columns + kColumnGroup - 1) / kColumnGroup,
                  rows_per_part = std::max(kPart / columns, (rows + kMaxParts - 1) / kMaxParts);
    const int threads = ThreadsFor(kept.count * reduced.count * rows * columns, kElementsPerThread, threads_);
    if (kept.count == 1 && reduced.count == 1 && groups == 1 && rows > 2 * rows_per_part) {
      const int64_t count = (rows + rows_per_part - 1) / rows_per_part;
      ParallelFor(count, threads, [&](int64_t i) {
        float* part = parts_.data() + i * kColumnGroup;
        loops_.fill(part, start, columns);
        ReduceGroup(x, i * rows_per_part * stride, std::min(rows_per_part, rows - i * rows_per_part), stride, columns, part);
      });
      loops_.fill(y, start, columns);
      // The totals of parts are summed, even if the parts sum squares or absolute values.
      const Reduction join =
          rule_.reduction == Reduction::kSumSquare || rule_.reduction == Reduction::kSumAbs ? Reduction::kSum : rule_.reduction;
      loops_.reduce_columns[static_cast<size_t>(join)](parts_.data(), count, kColumnGroup, columns, y);
      return;
    }
    ParallelFor(kept.count * groups, threads, [&](int64_t i) {
      const int64_t k = i / groups, column = i % groups * kColumnGroup, width = std::min(kColumnGroup, columns - column);
      float* to = y + k * columns + column;
      const int64_t from = kept.Offset(k) + column;
      loops_.fill(to, start, width);
      for (int64_t r = 0; r < reduced.count; ++r) ReduceGroup(x, from + reduced.Offset(r), rows, stride, width, to);
    });
  }

  void FinishAll(float* y, int64_t count) {
    for (int64_t i = 0; i < outputs_; ++i) {
      switch (rule_.finish) {
        case Finish::kMean: y[i] = static_cast<float>(static_cast<double>(y[i]) / static_cast<double>(count)); break;
        case Finish::kRoot: y[i] = std::sqrt(y[i]); break;
        case Finish::kLog: y[i] = std::log(y[i]); break;
        case Finish::kNone: break;
      }
    }
  }

  const Loops& loops_;
  const Rule& rule_;
  PhysicalCall physical_;
  Shape shape_;  // in memory order
  DType in_, out_;
  int64_t outputs_;
  int threads_;
  bool noop_, planes_;
  int64_t num_axes_ = 0;
  bool wide_axes_ = true;
  std::vector<float> parts_;
  std::vector<float> results_;  // before they are rounded to 16 bits
};

// A permuted input is supported if the elements of the result are in the same order: the result has the dimensions of the input, or is a
// vector.
std::string RejectsPermuted(const KernelCall& call) {
  if (RejectsLayouts(call).empty()) return "";
  const OperandType &in = call.inputs[0], &out = call.outputs[0];
  int long_axes = 0;
  for (int64_t extent : out.shape) long_axes += extent != 1;
  KernelCall both = call;
  both.inputs.resize(1);
  if (in.shape.rank() != out.shape.rank()) {
    if (long_axes > 1 || !out.layout.plain()) return "a result in another order";
    both.outputs.clear();
  }
  return PhysicalOf(both) ? "" : "layouts " + in.layout.ToString() + " and " + out.layout.ToString();
}

std::string Rejects(const KernelCall& call) {
  if (std::string why = RejectsPermuted(call); !why.empty()) return why;
  if (IsGlobalPool(call.op) && call.inputs[0].shape.rank() < 3) return "no spatial dimensions";
  const DType in = call.inputs[0].dtype, out = call.outputs[0].dtype;
  if (in != DType::kFloat32 && in != DType::kFloat16 && in != DType::kBfloat16) return std::string(DTypeName(in));
  if (out != in && out != DType::kFloat32) return "a result of " + std::string(DTypeName(out));
  if (call.inputs.size() < 2 || !call.inputs[1].present()) return "";
  const DType axes = call.inputs[1].dtype;
  return axes == DType::kInt64 || axes == DType::kInt32 ? "" : "axes that are not int64";
}

constexpr CpuKernel Row(std::string_view name, std::string_view op) {
  return {.row = {.name = name, .op = op, .domain = "", .rejects = Rejects}, .make = MakeKernel<ReduceKernel>};
}

constexpr CpuKernel kKernels[] = {
    Row("cpu.ReduceSum", "ReduceSum"),         Row("cpu.ReduceMean", "ReduceMean"),
    Row("cpu.ReduceMax", "ReduceMax"),         Row("cpu.ReduceMin", "ReduceMin"),
    Row("cpu.ReduceProd", "ReduceProd"),       Row("cpu.ReduceSumSquare", "ReduceSumSquare"),
    Row("cpu.ReduceL1", "ReduceL1"),           Row("cpu.ReduceL2", "ReduceL2"),
    Row("cpu.ReduceLogSum", "ReduceLogSum"),   Row("cpu.GlobalAveragePool", "GlobalAveragePool"),
    Row("cpu.GlobalMaxPool", "GlobalMaxPool"), Row("cpu.ReduceLogSumExp", "ReduceLogSumExp"),
};

}  // namespace

std::span<const CpuKernel> CpuReduceKernels() { return kKernels; }

}  // namespace gradloom
