// DFT and STFT by fast Fourier transforms, kFourierLines lines at a time.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "kernels/cpu/families.h"
#include "kernels/cpu/fourier.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 12;
constexpr int64_t kLongest = 1 << 18;  // 128 MiB of scratch memory per thread

using LineOffsets = std::array<int64_t, kFourierLines>;

bool IsOnesided(const KernelCall& call) { return call.attributes.Int("onesided", call.op == "STFT" ? 1 : 0) != 0; }
bool IsInverse(const KernelCall& call) { return call.attributes.Int("inverse", 0) != 0; }

// Whether the transform is from real numbers to their spectrum, or back.
bool IsOfRealNumbers(const KernelCall& call) {
  const Shape &from = call.inputs[0].shape, &to = call.outputs[0].shape;
  if (IsInverse(call)) return IsOnesided(call) && to[to.rank() - 1] == 1;
  return from[from.rank() - 1] == 1 || (call.op == "STFT" && from.rank() == 2);
}

// An upper bound of the transform length from the shape of its result: half a spectrum fits two lengths, and any axis may be the one meant.
int64_t MaxTransformLength(const KernelCall& call) {
  const Shape& to = call.outputs[0].shape;
  const bool half = IsOnesided(call) && !IsInverse(call);
  int64_t longest = 1;
  for (int axis = 0; axis + 1 < to.rank(); ++axis) longest = std::max(longest, half ? 2 * to[axis] - 1 : to[axis]);
  return longest;
}

int64_t Scratch(const KernelCall& call) {
  return std::max(call.threads, 1) * 2 * Fourier::Numbers(MaxTransformLength(call)) * static_cast<int64_t>(sizeof(double));
}

int64_t IntOf(const KernelCall& call, const void* const* inputs, size_t i, int64_t absent) {
  if (!HasInput(call, i)) return absent;
  return call.inputs[i].dtype == DType::kInt64 ? *static_cast<const int64_t*>(inputs[i]) : int64_t{*static_cast<const int32_t*>(inputs[i])};
}

class SignalTransform : public Kernel {
 public:
  explicit SignalTransform(const KernelCall& call)
      : call_(call),
        longest_(MaxTransformLength(call)),
        threads_(ThreadsFor(call.inputs[0].shape.elements() + call.outputs[0].shape.elements(), kElementsPerThread, call.threads)),
        loops_(BestLoops()) {}

 protected:
  // The tables of the first step are reused in all others: the length is a constant of the model.
  void Prepare(int64_t length, int64_t bins) {
    const bool half = IsOnesided(call_) && !IsInverse(call_);
    if (length <= 0 || length > longest_ || bins != (half ? length / 2 + 1 : length)) {
      throw Error(ErrorCode::kValue, call_.op + ": a length of " + std::to_string(length) + " for " + std::to_string(bins) + " results");
    }
    if (IsOfRealNumbers(call_) && length % 2 == 0) {
      if (!halves_ || halves_->length() != length) halves_.emplace(length, IsInverse(call_));
      fourier_.reset();
    } else {
      if (!fourier_ || fourier_->length() != length) fourier_.emplace(length, IsInverse(call_));
      halves_.reset();
    }
  }

  // Whether real numbers are ordered as in RealFourier, and a spectrum has only the first half. Otherwise, all are complex.
  bool by_halves() const { return halves_.has_value(); }
  // Number `t` of a line of real numbers.
  double& Number(double* elements, int64_t t, int64_t line) const { return elements[(by_halves() ? t : 2 * t) * kFourierLines + line]; }

  // The element of a transform that has bin `k` of the spectrum, and the sign of its imaginary part: the second half of the spectrum of
  // real numbers is the conjugate mirror image of the first.
  std::pair<int64_t, double> BinOf(int64_t k) const {
    return by_halves() && 2 * k > halves_->length() ? std::pair(halves_->length() - k, -1.0) : std::pair(k, 1.0);
  }

  // For each group of lines: fill(first, count, elements) writes the elements that are not zero, take(first, count, elements) reads their
  // transforms.
  template <typename Fill, typename Take>
  void ForLines(int64_t lines, void* scratch, const Fill& fill, const Take& take) const {
    const int64_t numbers = Fourier::Numbers(longest_);
    const int64_t elements = by_halves() ? halves_->length() / 2 + 1 : fourier_->length();
    ParallelFor(CeilDiv(lines, kFourierLines), threads_, [&](int64_t group) {
      double* const memory = static_cast<double*>(scratch) + ThreadIndex() * 2 * numbers;
      const int64_t first = group * kFourierLines, count = std::min<int64_t>(kFourierLines, lines - first);
      std::fill(memory, memory + 2 * kFourierLines * elements, 0.0);
      fill(first, count, memory);
      take(first, count, by_halves() ? halves_->Run(loops_, memory, memory + numbers) : fourier_->Run(loops_, memory, memory + numbers));
    });
  }

  static double& Real(double* elements, int64_t t, int64_t line) { return elements[2 * kFourierLines * t + line]; }
  static double& Imaginary(double* elements, int64_t t, int64_t line) { return elements[2 * kFourierLines * t + kFourierLines + line]; }

  KernelCall call_;
  int64_t longest_;
  int threads_;
  const Loops& loops_;
  std::optional<Fourier> fourier_;  // one of the two
  std::optional<RealFourier> halves_;
};

// (x [..., 1 or 2], length, axis), as in kernels/reference/signal.cc.
class Dft : public SignalTransform {
 public:
  using SignalTransform::SignalTransform;

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const Shape &from = call_.inputs[0].shape, &to = call_.outputs[0].shape;
    const int rank = from.rank();
    const std::optional<int> place = NormalAxis(IntOf(call_, inputs, 2, -2), rank);
    if (!place || *place == rank - 1) throw Error(ErrorCode::kAttr, call_.op + ": the axis is out of range");
    const int axis = *place;
    const bool to_real = IsInverse(call_) && IsOnesided(call_);
    const int64_t length = IntOf(call_, inputs, 1, to_real ? to[axis] : from[axis]);
    Prepare(length, to[axis]);
    const int64_t inner = Product(from, axis + 1, rank - 1), parts = from[rank - 1], out_parts = to[rank - 1];
    const int64_t half = length / 2 + 1, used = std::min(from[axis], to_real ? half : length);
    const double scale = IsInverse(call_) ? 1.0 / static_cast<double>(length) : 1.0;
    const float* const x = static_cast<const float*>(inputs[0]);
    float* const y = static_cast<float*>(outputs[0]);
    // The offset of a line's first element in a tensor with `extent` along the axis.
    const auto offsets_of = [inner](int64_t first, int64_t count, int64_t extent, int64_t width) {
      LineOffsets at{};
      for (int64_t l = 0; l < count; ++l) {
        const int64_t line = first + l;
        at[static_cast<size_t>(l)] = (line / inner * extent * inner + line % inner) * width;
      }
      return at;
    };
    ForLines(
        Product(from, 0, axis) * inner, scratch,
        [&](int64_t first, int64_t count, double* elements) {
          const LineOffsets at = offsets_of(first, count, from[axis], parts);
          for (int64_t t = 0; t < used; ++t) {
            const float* const row = x + t * inner * parts;
            for (int64_t l = 0; l < count; ++l) (to_real ? Real(elements, t, l) : Number(elements, t, l)) = row[at[static_cast<size_t>(l)]];
            for (int64_t l = 0; parts > 1 && l < count; ++l) Imaginary(elements, t, l) = row[at[static_cast<size_t>(l)] + 1];
          }
          for (int64_t t = half; to_real && !by_halves() && t < length; ++t) {
            for (int64_t l = 0; l < count; ++l) {
              Real(elements, t, l) = Real(elements, length - t, l);
              Imaginary(elements, t, l) = -Imaginary(elements, length - t, l);
            }
          }
        },
        [&](int64_t first, int64_t count, double* elements) {
          const LineOffsets at = offsets_of(first, count, to[axis], out_parts);
          for (int64_t k = 0; k < to[axis]; ++k) {
            float* const row = y + k * inner * out_parts;
            for (int64_t l = 0; out_parts == 1 && l < count; ++l)
              row[at[static_cast<size_t>(l)]] = static_cast<float>(Number(elements, k, l) * scale);
            const auto [bin, sign] = BinOf(k);
            for (int64_t l = 0; out_parts > 1 && l < count; ++l) {
              row[at[static_cast<size_t>(l)]] = static_cast<float>(Real(elements, bin, l) * scale);
              row[at[static_cast<size_t>(l)] + 1] = static_cast<float>(Imaginary(elements, bin, l) * sign * scale);
            }
          }
        });
  }
};

// (signal [batch, samples, 1 or 2], step, window, length) -> [batch, frames, bins, 2].
class Stft : public SignalTransform {
 public:
  using SignalTransform::SignalTransform;

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    const Shape &from = call_.inputs[0].shape, &to = call_.outputs[0].shape;
    const int64_t samples = from[1], parts = from.rank() > 2 ? from[2] : 1, step = IntOf(call_, inputs, 1, 0);
    const int64_t windowed = HasInput(call_, 2) ? call_.inputs[2].shape.elements() : 0, length = IntOf(call_, inputs, 3, windowed);
    Prepare(length, to[2]);
    if (step <= 0 || (windowed != 0 && windowed != length) || (to[1] > 0 && (to[1] - 1) * step + length > samples)) {
      throw Error(ErrorCode::kValue, call_.op + ": frames of " + std::to_string(length) + " samples, a window of " +
                                         std::to_string(windowed) + ", steps of " + std::to_string(step));
    }
    const float *const x = static_cast<const float*>(inputs[0]), *const window =
                                                                     windowed != 0 ? static_cast<const float*>(inputs[2]) : nullptr;
    float* const y = static_cast<float*>(outputs[0]);
    ForLines(
        to[0] * to[1], scratch,
        [&](int64_t first, int64_t count, double* elements) {
          for (int64_t l = 0; l < count; ++l) {
            const float* const frame = x + ((first + l) / to[1] * samples + (first + l) % to[1] * step) * parts;
            for (int64_t t = 0; t < length; ++t) {
              const double weight = window != nullptr ? window[t] : 1.0;
              Number(elements, t, l) = frame[t * parts] * weight;
              if (parts > 1) Imaginary(elements, t, l) = frame[t * parts + 1] * weight;
            }
          }
        },
        [&](int64_t first, int64_t count, double* elements) {
          for (int64_t l = 0; l < count; ++l) {
            float* const row = y + (first + l) * to[2] * 2;
            for (int64_t k = 0; k < to[2]; ++k) {
              const auto [bin, sign] = BinOf(k);
              row[2 * k] = static_cast<float>(Real(elements, bin, l));
              row[2 * k + 1] = static_cast<float>(Imaginary(elements, bin, l) * sign);
            }
          }
        });
  }
};

std::string Rejects(const KernelCall& call) {
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    const OperandType& operand = call.inputs[i];
    if (!operand.present() || (call.op == "STFT" && i == 2)) continue;
    if ((operand.dtype != DType::kInt64 && operand.dtype != DType::kInt32) || operand.shape.elements() != 1)
      return "a length that is not an integer";
  }
  if (HasInput(call, 2) && call.op == "STFT" && call.inputs[2].dtype != DType::kFloat32)
    return std::string(DTypeName(call.inputs[2].dtype));
  if (MaxTransformLength(call) > kLongest) return "a length beyond " + std::to_string(kLongest);
  return RejectsAllBut(call, DType::kFloat32, 0);
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.DFT", .op = "DFT", .domain = "", .rejects = Rejects, .scratch_bytes = Scratch}, .make = MakeKernel<Dft>},
    {.row = {.name = "cpu.STFT", .op = "STFT", .domain = "", .rejects = Rejects, .scratch_bytes = Scratch}, .make = MakeKernel<Stft>},
};

}  // namespace

std::span<const CpuKernel> CpuSignalKernels() { return kKernels; }

}  // namespace gradloom
