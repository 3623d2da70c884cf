// Fourier transforms in double. One of rows * columns points is computed as transforms of `rows` points and then of `columns` points, each
// by its definition, one thread per result (Cooley and Tukey, 1965; "four-step" of Bailey, 1990). So each point costs rows + columns
// products instead of their product, and memory is passed over twice.
#include <cmath>
#include <numbers>

#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/float_operand.cuh"
#include "kernels/cuda/offset_calculator.cuh"
#include "kernels/cuda/rows/signal.h"

namespace gradloom::cuda {
namespace {

struct Complex {
  double re = 0, im = 0;
};

// exp(2 pi i k / n) for each k < n.
void FindRoots(int64_t n, Complex* roots, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t k) {
        const double angle = 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
        roots[k] = {::cos(angle), ::sin(angle)};
      });
}

// The sum over i < count of x(i) conj(root)^(first + i step), or of x(i) root^(first + i step) if `inverse`, with n roots. `first` and
// `step` are below n.
template <typename Load>
GRADLOOM_DEVICE Complex Transformed(int64_t n, const Complex* roots, bool inverse, int64_t first, int64_t step, int64_t count,
                                    const Load& x) {
  Complex sum;
  int64_t at = first;
  for (int64_t i = 0; i < count; ++i) {
    const Complex value = x(i), root = roots[at];
    const double turn = inverse ? root.im : -root.im;
    sum.re += value.re * root.re - value.im * turn;
    sum.im += value.re * turn + value.im * root.re;
    at += step;
    if (at >= n) at -= n;
  }
  return sum;
}

// Some transforms of the same number of points.
struct Transforms {
  int64_t lines, length, results;  // of the spectrum of each line, the first `results`, which repeat after `length`
  int64_t used;                    // points after these are zero
  bool inverse;
  bool adjacent;  // equal points of adjacent lines are adjacent in memory, not the points of one line
};

// A point of a line, for threads that follow each other in memory.
struct Point {
  int64_t line, at;
};
GRADLOOM_DEVICE Point PointOf(int64_t i, int64_t lines, int64_t points, bool adjacent) {
  const Quotient parts = Divide(i, adjacent ? lines : points);
  return adjacent ? Point{parts.rest, parts.quotient} : Point{parts.quotient, parts.rest};
}
GRADLOOM_DEVICE int64_t IndexOf(const Point& point, int64_t lines, int64_t points, bool adjacent) {
  return adjacent ? point.at * lines + point.line : point.line * points + point.at;
}

// Sets the results of all lines: set(line, k, load(line, t) transformed). `scratch` has cuda_rows' size.
template <typename Load, typename Set>
void TransformLines(const Transforms& d, void* scratch, cudaStream_t stream, const Load& load, const Set& set) {
  auto* const roots = static_cast<Complex*>(scratch);
  FindRoots(d.length, roots, stream);
  const cuda_rows::TransformSplit split = cuda_rows::SplitTransform(d.length);
  const int64_t n = d.length, rows = split.rows, columns = split.columns;
  if (rows == 1) {
    ForEachElement(
        d.lines * d.results, stream, GRADLOOM_ON_DEVICE(int64_t i) {
          const Point result = PointOf(i, d.lines, d.results, d.adjacent);
          const auto x = [&](int64_t t) { return load(result.line, t); };
          set(result.line, result.at, Transformed(n, roots, d.inverse, 0, Divide(result.at, n).rest, d.used, x));
        });
    return;
  }
  // With t = columns i + j and k = r + rows c, the root's exponent t k is r t + rows j c, modulo n.
  Complex* const halves = roots + n;
  const int64_t most = cuda_rows::TransformsAtATime(d.lines, n);
  for (int64_t first = 0; first < d.lines; first += most) {
    const int64_t lines = d.lines - first < most ? d.lines - first : most;
    ForEachElement(
        lines * n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
          const Point half = PointOf(i, lines, n, d.adjacent);
          const Quotient at = Divide(half.at, rows);
          const int64_t j = at.quotient, r = at.rest, count = d.used > j ? Divide(d.used - j + columns - 1, columns).quotient : 0;
          const auto x = [&](int64_t row) { return load(first + half.line, columns * row + j); };
          halves[i] = Transformed(n, roots, d.inverse, r * j, r * columns, count, x);
        });
    ForEachElement(
        lines * d.results, stream, GRADLOOM_ON_DEVICE(int64_t i) {
          const Point result = PointOf(i, lines, d.results, d.adjacent);
          const Quotient k = Divide(Divide(result.at, n).rest, rows);
          const auto x = [&](int64_t j) { return halves[IndexOf({result.line, j * rows + k.rest}, lines, n, d.adjacent)]; };
          set(first + result.line, result.at, Transformed(n, roots, d.inverse, 0, rows * k.quotient, columns, x));
        });
  }
}

// Real or complex numbers.
struct Line {
  FloatOperand x;
  int64_t first, step, parts;  // offset and stride of the line, in elements; numbers per element: 1 or 2
  GRADLOOM_DEVICE Complex operator[](int64_t t) const {
    const int64_t at = (first + t * step) * parts;
    return {x[at], parts > 1 ? x[at + 1] : 0.0};
  }
};

struct Result {
  void* y;
  DType dtype;
  int64_t parts;
  GRADLOOM_DEVICE void Set(int64_t at, const Complex& value, double scale) const {
    StoreAs(y, dtype, at * parts, value.re * scale);
    if (parts > 1) StoreAs(y, dtype, at * parts + 1, value.im * scale);
  }
};

// Lines [outer, from or to, inner] along an axis.
struct Dft {
  int64_t outer, from, to, inner, length, parts;
  bool inverse, to_real;
};

void Transform(const Dft& d, void* scratch, const FloatOperand& x, const Result& y, cudaStream_t stream) {
  const int64_t half = d.length / 2 + 1, coefficients = d.to_real ? half : d.length, used = d.from < coefficients ? d.from : coefficients;
  // The second half of the spectrum of real numbers is the conjugate mirror image of the first.
  const auto load = GRADLOOM_ON_DEVICE(int64_t line, int64_t t) {
    const Quotient at = Divide(line, d.inner);
    const Line points{x, at.quotient * d.from * d.inner + at.rest, d.inner, d.parts};
    const int64_t from = t < half || !d.to_real ? t : d.length - t;
    Complex value = from < used ? points[from] : Complex{};
    if (from != t) value.im = -value.im;
    return value;
  };
  const auto set = GRADLOOM_ON_DEVICE(int64_t line, int64_t k, const Complex& sum) {
    const Quotient at = Divide(line, d.inner);
    y.Set((at.quotient * d.to + k) * d.inner + at.rest, sum, d.inverse ? 1 / static_cast<double>(d.length) : 1.0);
  };
  TransformLines({d.outer * d.inner, d.length, d.to, d.to_real ? d.length : used, d.inverse, d.inner > 1}, scratch, stream, load, set);
}

std::unique_ptr<Kernel> MakeDft(const KernelCall& call, const KernelSite&) {
  const Shape &from = call.inputs[0].shape, &to = call.outputs[0].shape;
  const int rank = from.rank(), axis = AxisOf(call, call.ConstantInts(2, {-2}).at(0), rank);
  const bool inverse = call.attributes.Int("inverse", 0) != 0, onesided = call.attributes.Int("onesided", 0) != 0;
  const Dft d{Product(from, 0, axis),           from[axis],     to[axis], Product(from, axis + 1, rank - 1),
              cuda_rows::TransformLength(call), from[rank - 1], inverse,  inverse && onesided};
  return MakeKernel([=, out_parts = to[rank - 1], in = call.inputs[0].dtype, out = call.outputs[0].dtype](const Launch& l) {
    Transform(d, l.scratch, {l.inputs[0], in}, {l.outputs[0], out, out_parts}, l.stream);
  });
}

// Frames of a signal [batch, samples]: each has `length` samples, and they are `step` apart.
struct Stft {
  int64_t batch, samples, frames, bins, length, step, parts;
};

// Transforms the samples of each frame, multiplied by the window if there is one.
void TransformFrames(const Stft& s, void* scratch, const FloatOperand& x, const FloatOperand& window, const Result& y,
                     cudaStream_t stream) {
  const auto load = GRADLOOM_ON_DEVICE(int64_t line, int64_t t) {
    const Quotient frame = Divide(line, s.frames);
    const Complex value = Line{x, frame.quotient * s.samples + frame.rest * s.step, 1, s.parts}[t];
    const double factor = window.data == nullptr ? 1.0 : window[t];
    return Complex{value.re * factor, value.im * factor};
  };
  const auto set = GRADLOOM_ON_DEVICE(int64_t line, int64_t k, const Complex& sum) { y.Set(line * s.bins + k, sum, 1); };
  TransformLines({s.batch * s.frames, s.length, s.bins, s.length, false, false}, scratch, stream, load, set);
}

std::unique_ptr<Kernel> MakeStft(const KernelCall& call, const KernelSite&) {
  const Shape &from = call.inputs[0].shape, &to = call.outputs[0].shape;
  const Stft s{from[0], from[1], to[1], to[2], cuda_rows::TransformLength(call), call.ConstantInts(1).at(0), from.rank() > 2 ? from[2] : 1};
  const DType window = Has(call.inputs, 2) ? call.inputs[2].dtype : DType::kUndefined;
  return MakeKernel([=, in = call.inputs[0].dtype, out = call.outputs[0].dtype](const Launch& l) {
    const FloatOperand factors{window == DType::kUndefined ? nullptr : l.inputs[2], window};
    TransformFrames(s, l.scratch, {l.inputs[0], in}, factors, {l.outputs[0], out, 2}, l.stream);
  });
}

// A scalar operand.
struct Number {
  const void* data;
  DType dtype;
  GRADLOOM_DEVICE double operator*() const { return LoadAs<double>(data, dtype, 0); }
};

struct MelScale {
  int64_t spectrum, bins;
  Number length, rate, low, high;

  GRADLOOM_DEVICE static double Mel(double hertz) { return 2595 * ::log10(1 + hertz / 700); }
  // The first spectrum bin of triangle i, of bins + 2 edges; -1: above half the sample rate.
  GRADLOOM_DEVICE int64_t Edge(int64_t i) const {
    const double from = Mel(*low), at = from + static_cast<double>(i) * (Mel(*high) - from) / static_cast<double>(bins + 2);
    const double edge = ::floor((*length + 1) * (700 * (::pow(10.0, at / 2595) - 1)) / *rate);
    return edge >= 0 && edge < static_cast<double>(spectrum) ? static_cast<int64_t>(edge) : -1;
  }
};

void WriteMelWeights(const MelScale& mel, void* y, DType dtype, DataFault* fault, int site, cudaStream_t stream) {
  ForEachElement(
      mel.spectrum * mel.bins, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient at = Divide(i, mel.bins);
        const int64_t left = mel.Edge(at.rest), centre = mel.Edge(at.rest + 1), right = mel.Edge(at.rest + 2), bin = at.quotient;
        if (left < 0 || centre < 0 || right < 0) Report(fault, site, kFrequencyTooHigh, 0, 0);
        double weight = 0;
        if (centre == left && bin == centre) weight = 1;
        if (centre > left && bin >= left && bin <= centre) weight = static_cast<double>(bin - left) / static_cast<double>(centre - left);
        if (bin >= centre && bin < right) weight = static_cast<double>(right - bin) / static_cast<double>(right - centre);
        StoreAs(y, dtype, i, weight);
      });
}

std::unique_ptr<Kernel> MakeMelWeightMatrix(const KernelCall& call, const KernelSite& site) {
  const Shape& to = call.outputs[0].shape;
  return MakeKernel([spectrum = to[0], bins = to[1], inputs = call.inputs, out = call.outputs[0].dtype, fault = site.fault,
                     id = site.id](const Launch& l) {
    const auto number = [&](size_t i) { return Number{l.inputs[i], inputs[i].dtype}; };
    WriteMelWeights({spectrum, bins, number(1), number(2), number(3), number(4)}, l.outputs[0], out, fault, id, l.stream);
  });
}

constexpr CudaKernel kSignalKernels[] = {
    {"cuda.DFT", MakeDft},
    {"cuda.MelWeightMatrix", MakeMelWeightMatrix},
    {"cuda.STFT", MakeStft},
};

}  // namespace

std::span<const CudaKernel> SignalKernels() { return kSignalKernels; }

}  // namespace gradloom::cuda
