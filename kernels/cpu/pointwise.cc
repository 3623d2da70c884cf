#include "kernels/cpu/pointwise.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

using Kind = BroadcastOperand::Kind;

constexpr int64_t kWorkPerThread = 1 << 15;  // in elements of a cheap function
constexpr int64_t kShortRow = 16;            // up to this length, a call per row takes longer than its elements

// The strides of a plain operand along the axes of the output, 0 where it is broadcast.
std::vector<int64_t> StepsAlong(const Shape& from, const Shape& to) {
  const std::vector<int64_t> strides = from.strides();
  std::vector<int64_t> steps(static_cast<size_t>(to.rank()), 0);
  for (int axis = 0; axis < from.rank(); ++axis) {
    if (from[axis] != 1) steps[static_cast<size_t>(axis + to.rank() - from.rank())] = strides[static_cast<size_t>(axis)];
  }
  return steps;
}

// The reading pattern of an operand with these steps along the axes of `shape`. Merges adjacent axes where the steps allow it, and omits
// axes of extent 1.
BroadcastOperand OperandOfStrides(const Shape& shape, const std::vector<int64_t>& steps) {
  BroadcastOperand operand{.kind = Kind::kGeneral};
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 1) continue;
    const int64_t step = steps[static_cast<size_t>(axis)];
    if (!operand.extents.empty() && operand.steps.back() == step * shape[axis]) {
      operand.extents.back() *= shape[axis];
      operand.steps.back() = step;
    } else {
      operand.extents.push_back(shape[axis]);
      operand.steps.push_back(step);
    }
  }
  return operand;
}

// The number of trailing output elements that the operand covers without repetition, or 0 if it also varies outside them.
int64_t PeriodOf(const BroadcastOperand& operand) {
  int64_t period = 1;
  size_t axis = operand.extents.size();
  while (axis > 0 && operand.steps[axis - 1] == period) period *= operand.extents[--axis];
  while (axis > 0) {
    if (operand.steps[--axis] != 0) return 0;
  }
  return period;
}

// Copies rows of few elements, one after the other.
template <typename T>
void CopyRows(const T* from, int64_t row_step, int64_t step, int64_t rows, int64_t width, float* to) {
  for (int64_t r = 0; r < rows; ++r, from += row_step) {
    for (int64_t i = 0; i < width; ++i) *to++ = static_cast<float>(from[i * step]);
  }
}

bool IsExpensive(PointwiseOp op) {
  switch (op) {
    case PointwiseOp::kErf:
    case PointwiseOp::kExp:
    case PointwiseOp::kGelu:
    case PointwiseOp::kGeluTanh:
    case PointwiseOp::kLog:
    case PointwiseOp::kMish:
    case PointwiseOp::kSigmoid:
    case PointwiseOp::kSoftplus:
    case PointwiseOp::kTanh:
    case PointwiseOp::kPow: return true;
    default: return op >= PointwiseOp::kAcos && op <= PointwiseOp::kTan;
  }
}

// Whether the outputs are certainly zero if all dense inputs are zero.
bool KeepsZero(const KernelCall& call, const PointwiseProgram& program) {
  std::vector<bool> zero;
  for (const OperandType& input : call.inputs) zero.push_back(input.present() && input.shape == call.outputs[0].shape);
  for (float constant : program.constants) zero.push_back(constant == 0.0f);
  for (const auto& [op, operands] : program.instructions) {
    const auto is_zero = [&](int i) { return zero[static_cast<size_t>(operands[static_cast<size_t>(i)])]; };
    bool result = false;
    switch (op) {
      case PointwiseOp::kAbs:
      case PointwiseOp::kCopy:
      case PointwiseOp::kErf:
      case PointwiseOp::kGelu:
      case PointwiseOp::kGeluTanh:
      case PointwiseOp::kHardSwish:
      case PointwiseOp::kMish:
      case PointwiseOp::kNeg:
      case PointwiseOp::kRelu:
      case PointwiseOp::kSign:
      case PointwiseOp::kSqrt:
      case PointwiseOp::kSquare:
      case PointwiseOp::kTanh:
      case PointwiseOp::kElu:
      case PointwiseOp::kSelu:
      case PointwiseOp::kToBfloat16:
      case PointwiseOp::kToFloat16:
      case PointwiseOp::kLeakyRelu: result = is_zero(0); break;
      case PointwiseOp::kAdd:
      case PointwiseOp::kSub:
      case PointwiseOp::kMul:
      case PointwiseOp::kGreater:
      case PointwiseOp::kLess:
      case PointwiseOp::kReluGrad: result = is_zero(0) && is_zero(1); break;
      case PointwiseOp::kAddAdd: result = is_zero(0) && is_zero(1) && is_zero(2); break;
      case PointwiseOp::kWhere: result = is_zero(1) && is_zero(2); break;
      default: break;
    }
    zero.push_back(result);
  }
  return std::all_of(program.outputs.begin(), program.outputs.end(), [&](int id) { return zero[static_cast<size_t>(id)]; });
}

// The program without roundings of outputs that no instruction reads, because storing the output rounds as well.
PointwiseProgram WithoutLastRoundings(const KernelCall& call, PointwiseProgram program) {
  const int first = program.first_result();
  std::vector<int> reads(static_cast<size_t>(first) + program.instructions.size(), 0);
  for (const auto& [op, operands] : program.instructions) {
    for (int k = 0; k < PointwiseOperands(op); ++k) ++reads[static_cast<size_t>(operands[static_cast<size_t>(k)])];
  }
  std::vector<bool> gone(program.instructions.size());
  for (size_t k = 0; k < program.outputs.size(); ++k) {
    const auto at = static_cast<size_t>(program.outputs[k] - first);
    const PointwiseProgram::Instruction& last = program.instructions[at];
    const DType dtype = call.outputs[k].dtype;
    const bool repeats = (last.op == PointwiseOp::kToBfloat16 && dtype == DType::kBfloat16) ||
                         (last.op == PointwiseOp::kToFloat16 && dtype == DType::kFloat16);
    const bool once = std::count(program.outputs.begin(), program.outputs.end(), program.outputs[k]) == 1;
    if (!repeats || !once || reads[static_cast<size_t>(program.outputs[k])] > 0 || last.operands[0] < first) continue;
    program.outputs[k] = last.operands[0];
    gone[at] = true;
  }
  // Renumbers the remaining instructions.
  std::vector<int> number(reads.size());
  std::iota(number.begin(), number.end(), 0);
  std::vector<PointwiseProgram::Instruction> kept;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (gone[i]) continue;
    number[static_cast<size_t>(first) + i] = first + static_cast<int>(kept.size());
    kept.push_back(program.instructions[i]);
    for (int& operand : kept.back().operands) operand = operand < 0 ? operand : number[static_cast<size_t>(operand)];
  }
  program.instructions = std::move(kept);
  for (int& output : program.outputs) output = number[static_cast<size_t>(output)];
  return program;
}

// Permuted operands are plain ones with permuted shapes. Blocked operands are flat arrays if all have the same layout; the others must be
// single elements.
std::string RejectsBlocks(const KernelCall& call, const PointwiseProgram& program) {
  const OperandType& out = call.outputs[0];
  bool blocked = false;
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) blocked |= operand.present() && !operand.layout.plain();
  }
  for (const OperandType& output : call.outputs) {
    if (output.shape != out.shape) return "outputs of different shapes";
  }
  if (!blocked || PhysicalOf(call)) return "";
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (!operand.present() || (operand.layout.plain() && operand.shape.elements() == 1)) continue;
      if (operand.shape != out.shape || operand.layout != out.layout) {
        return "layouts " + operand.layout.ToString() + " and " + out.layout.ToString();
      }
    }
  }
  if (out.layout.Padded(out.shape) != out.shape && !KeepsZero(call, program)) return "padding that would not stay zero";
  return "";
}

}  // namespace

PointwiseKernel::PointwiseKernel(const KernelCall& stated, PointwiseProgram program, const Loops& loops)
    : loops_(&loops), elements_(stated.outputs[0].layout.elements(stated.outputs[0].shape)), constants_(program.constants) {
  program = WithoutLastRoundings(stated, std::move(program));
  const auto physical = PhysicalOf(stated);
  const KernelCall& call = physical ? physical->call : stated;
  int64_t work = 0;
  for (const auto& instruction : program.instructions) work += IsExpensive(instruction.op) ? 8 : 1;
  threads_ = elements_ < kTile * 2 ? 1 : ThreadsFor(elements_ * std::max<int64_t>(work, 1), kWorkPerThread, call.threads);
  locations_.resize(static_cast<size_t>(program.first_result()) + program.instructions.size());
  PlaceInputs(call, program);
  PlaceResults(call, program);
  converts_ = IsConversion(call, program);
}

// The loops load to float32 and store from it, so that one of the two types must be float32.
bool PointwiseKernel::IsConversion(const KernelCall& call, const PointwiseProgram& program) const {
  if (program.instructions.size() != 1 || program.num_inputs != 1 || call.inputs.size() != 1 || call.outputs.size() != 1) return false;
  const auto& [op, operands] = program.instructions[0];
  const DType from = call.inputs[0].dtype, to = call.outputs[0].dtype;
  const bool converts = op == PointwiseOp::kCopy || (op == PointwiseOp::kToBfloat16 && to == DType::kBfloat16) ||
                        (op == PointwiseOp::kToFloat16 && to == DType::kFloat16);
  return converts && operands[0] == 0 && operands_[0].kind == Kind::kDense && (from == DType::kFloat32) != (to == DType::kFloat32);
}

int PointwiseKernel::NewTile() { return num_tiles_++; }

void PointwiseKernel::PlaceInputs(const KernelCall& call, const PointwiseProgram& program) {
  for (const OperandType& input : call.inputs) dtypes_.push_back(input.dtype);
  std::vector<bool> used(locations_.size());
  for (const auto& [op, operands] : program.instructions) {
    for (int k = 0; k < PointwiseOperands(op); ++k) used[static_cast<size_t>(operands[static_cast<size_t>(k)])] = true;
  }
  const OperandType& out = call.outputs[0];
  const bool flat = !out.layout.plain();
  operands_.resize(call.inputs.size());
  for (int i = 0; i < program.num_inputs; ++i) {
    const auto at = static_cast<size_t>(i);
    if (!used[at]) continue;
    const OperandType& input = call.inputs[at];
    BroadcastOperand& operand = operands_[at];
    const int64_t n = input.layout.elements(input.shape);
    if (n == elements_ && (n != 1 || out.shape.elements() == 1)) {
      operand.kind = Kind::kDense;
    } else if (n == 1) {
      operand.kind = Kind::kScalar;
    } else {
      GRADLOOM_CHECK(!flat);
      operand = OperandOfStrides(out.shape, StepsAlong(input.shape, out.shape));
      if (const int64_t period = PeriodOf(operand); period > 0 && period <= kTile) operand = {Kind::kPeriodic, period, {}, {}};
    }
    if (operand.kind == Kind::kDense && input.dtype == DType::kFloat32) {
      locations_[at] = {Location::Kind::kInput, i};
      continue;
    }
    locations_[at] = {Location::Kind::kTile, NewTile()};
    if (operand.kind == Kind::kPeriodic) {
      NewTile();  // its tile has the length of a tile plus a period
      periodic_.push_back(i);
    } else if (operand.kind == Kind::kScalar) {
      fills_.push_back({.input = i, .constant = -1, .location = i});
    } else {
      gathers_.push_back({i, i});
    }
  }
  for (int i = program.num_inputs; i < program.first_result(); ++i) {
    if (!used[static_cast<size_t>(i)]) continue;
    locations_[static_cast<size_t>(i)] = {Location::Kind::kTile, NewTile()};
    fills_.push_back({.input = -1, .constant = i - program.num_inputs, .location = i});
  }
}

// A tile is reused after the last read of its value. An output is written directly to its memory, unless a dense input is read later: the
// output may share that memory.
void PointwiseKernel::PlaceResults(const KernelCall& call, const PointwiseProgram& program) {
  const int count = static_cast<int>(program.instructions.size());
  std::vector<int> last_use(locations_.size(), -1);
  int last_input_read = -1;
  for (int q = 0; q < count; ++q) {
    const auto& [op, operands] = program.instructions[static_cast<size_t>(q)];
    for (int k = 0; k < PointwiseOperands(op); ++k) {
      const auto id = static_cast<size_t>(operands[static_cast<size_t>(k)]);
      last_use[id] = q;
      if (locations_[id].kind == Location::Kind::kInput) last_input_read = q;
    }
  }
  for (size_t k = 0; k < program.outputs.size(); ++k) {
    const auto id = static_cast<size_t>(program.outputs[k]);
    const DType dtype = call.outputs[k].dtype;
    const bool direct = dtype == DType::kFloat32 && locations_[id].kind == Location::Kind::kNone &&
                        program.outputs[k] - program.first_result() >= last_input_read;
    if (direct) {
      locations_[id] = {Location::Kind::kOutput, static_cast<int>(k)};
    } else {
      last_use[id] = count;
      copies_.push_back({program.outputs[k], static_cast<int>(k), dtype});
    }
  }
  std::vector<int> free_tiles;
  for (int q = 0; q < count; ++q) {
    const auto& [op, operands] = program.instructions[static_cast<size_t>(q)];
    for (int k = 0; k < PointwiseOperands(op); ++k) {
      const auto id = static_cast<size_t>(operands[static_cast<size_t>(k)]);
      if (static_cast<int>(id) < program.first_result() || locations_[id].kind != Location::Kind::kTile || last_use[id] != q) continue;
      free_tiles.push_back(locations_[id].index);
      last_use[id] = -1;  // freed only once if it is used as two operands
    }
    const int result = program.first_result() + q;
    Location& location = locations_[static_cast<size_t>(result)];
    if (location.kind == Location::Kind::kNone) {
      if (free_tiles.empty()) free_tiles.push_back(NewTile());
      location = {Location::Kind::kTile, free_tiles.back()};
      free_tiles.pop_back();
      if (last_use[static_cast<size_t>(result)] < 0) free_tiles.push_back(location.index);  // never read
    }
    const auto operand = [&](int k) { return k < PointwiseOperands(op) ? operands[static_cast<size_t>(k)] : operands[0]; };
    steps_.push_back({loops_->pointwise[static_cast<size_t>(op)], operand(0), operand(1), operand(2), result});
  }
}

void PointwiseKernel::Run(const void* const* inputs, void* const* outputs, void*, void*) {
  ParallelRanges(elements_, kTile, threads_, [&](int64_t begin, int64_t end) { RunRange(inputs, outputs, begin, end); });
}

void PointwiseKernel::GatherTile(const Gather& gather, const void* input, float* tile, int64_t begin, int64_t n) const {
  const BroadcastOperand& operand = operands_[static_cast<size_t>(gather.input)];
  const DType dtype = dtypes_[static_cast<size_t>(gather.input)];
  if (operand.kind == Kind::kDense) return LoadFloats(*loops_, dtype, input, begin, n, tile);
  const std::vector<int64_t>&extents = operand.extents, &steps = operand.steps;
  const size_t last = extents.size() - 1;
  std::array<int64_t, kMaxRank> index{};
  int64_t rest = begin, offset = 0;
  for (size_t axis = extents.size(); axis-- > 0;) {
    index[axis] = rest % extents[axis];
    rest /= extents[axis];
    offset += index[axis] * steps[axis];
  }
  const int64_t width = extents[last], step = steps[last];
  const bool short_rows = last > 0 && width <= kShortRow && (dtype == DType::kFloat32 || dtype == DType::kBool);
  while (n > 0) {
    int64_t rows = 1;
    if (short_rows && index[last] == 0 && n >= width) {
      rows = std::min(n / width, extents[last - 1] - index[last - 1]);
      const auto copy = [&](const auto* from) { CopyRows(from + offset, steps[last - 1], step, rows, width, tile); };
      dtype == DType::kBool ? copy(static_cast<const unsigned char*>(input)) : copy(static_cast<const float*>(input));
      tile += rows * width;
      n -= rows * width;
    } else {
      const int64_t run = std::min(n, width - index[last]);
      // The innermost step of a plain operand is 1 or 0.
      LoadFloats(*loops_, dtype, input, offset, step == 0 ? 1 : run, tile);
      if (step == 0) loops_->fill(tile, tile[0], run);
      tile += run;
      n -= run;
      offset -= index[last] * step;
      index[last] = 0;
    }
    // Advances to the row after these.
    int64_t ahead = rows;
    for (size_t axis = last; axis-- > 0;) {
      offset += ahead * steps[axis];
      index[axis] += ahead;
      if (index[axis] < extents[axis]) break;
      offset -= steps[axis] * extents[axis];
      index[axis] = 0;
      ahead = 1;
    }
  }
}

void PointwiseKernel::RunRange(const void* const* inputs, void* const* outputs, int64_t begin, int64_t end) const {
  if (converts_) {
    if (dtypes_[0] == DType::kFloat32) {
      StoreFloats(*loops_, copies_[0].dtype, static_cast<const float*>(inputs[0]) + begin, end - begin, outputs[0], begin);
    } else {
      LoadFloats(*loops_, dtypes_[0], inputs[0], begin, end - begin, static_cast<float*>(outputs[0]) + begin);
    }
    return;
  }
  alignas(64) float tiles[kMaxTiles * kTile];
  float* at[PointwiseProgram::kMaxInputs + 2 * PointwiseProgram::kMaxInstructions];
  for (size_t p = 0; p < locations_.size(); ++p)
    at[p] = locations_[p].kind == Location::Kind::kTile ? tiles + locations_[p].index * kTile : nullptr;
  const int64_t longest = std::min(end - begin, kTile);
  const auto load = [&](int input, int64_t n, float* tile) {
    LoadFloats(*loops_, dtypes_[static_cast<size_t>(input)], inputs[input], 0, n, tile);
  };
  for (const Fill& fill : fills_) {
    float value = 0;
    if (fill.input >= 0) load(fill.input, 1, &value);
    loops_->fill(at[fill.location], fill.input >= 0 ? value : constants_[static_cast<size_t>(fill.constant)], longest);
  }
  for (int input : periodic_) {
    const int64_t period = operands_[static_cast<size_t>(input)].period;
    float* tile = at[input];
    load(input, period, tile);
    for (int64_t i = period; i < period + longest; ++i) tile[i] = tile[i - period];
  }
  for (int64_t off = begin; off < end; off += kTile) {
    const int64_t n = std::min(kTile, end - off);
    for (size_t p = 0; p < locations_.size(); ++p) {
      const Location& location = locations_[p];
      const auto i = static_cast<size_t>(location.index);
      // Inputs are only read, but the loops use one pointer type for all operands.
      if (location.kind == Location::Kind::kInput) at[p] = const_cast<float*>(static_cast<const float*>(inputs[i])) + off;
      if (location.kind == Location::Kind::kOutput) at[p] = static_cast<float*>(outputs[i]) + off;
    }
    for (int input : periodic_) {
      at[input] = tiles + locations_[static_cast<size_t>(input)].index * kTile + off % operands_[static_cast<size_t>(input)].period;
    }
    for (const Gather& gather : gathers_) GatherTile(gather, inputs[gather.input], at[gather.location], off, n);
    for (const Step& step : steps_) step.loop({at[step.a], at[step.b], at[step.c], at[step.d], n});
    for (const Copy& copy : copies_) {
      StoreFloats(*loops_, copy.dtype, at[copy.location], n, outputs[copy.output], off);
    }
  }
}

std::string RejectsPointwise(const KernelCall& call) {
  std::string why;
  const auto program = PointwiseProgramOf(call, &why);
  if (!program) return why;
  if (why = RejectsBlocks(call, *program); !why.empty()) return why;
  return PointwiseKernel(call, *program, BestLoops()).num_tiles() > PointwiseKernel::kMaxTiles ? "too many values at a time" : "";
}

}  // namespace gradloom
