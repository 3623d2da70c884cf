#include "kernels/reference/recurrent.h"

#include <cmath>
#include <iterator>

#include "runtime/base/ascii_lower.h"

namespace gradloom {
namespace {

struct ActivationName {
  std::string_view name;  // in lower case: ONNX's names are case-insensitive
  Activation::Kind kind;
  bool has_alpha, has_beta;
  double alpha, beta;
};

constexpr ActivationName kActivations[] = {
    {"sigmoid", Activation::Kind::kSigmoid, false, false, 0, 0},
    {"tanh", Activation::Kind::kTanh, false, false, 0, 0},
    {"relu", Activation::Kind::kRelu, false, false, 0, 0},
    {"affine", Activation::Kind::kAffine, true, true, 1, 0},
    {"leakyrelu", Activation::Kind::kLeakyRelu, true, false, 0.01, 0},
    {"thresholdedrelu", Activation::Kind::kThresholdedRelu, true, false, 1, 0},
    {"scaledtanh", Activation::Kind::kScaledTanh, true, true, 1, 1},
    {"hardsigmoid", Activation::Kind::kHardSigmoid, true, true, 0.2, 0.5},
    {"elu", Activation::Kind::kElu, true, false, 1, 0},
    {"softsign", Activation::Kind::kSoftsign, false, false, 0, 0},
    {"softplus", Activation::Kind::kSoftplus, false, false, 0, 0},
};

const ActivationName& ActivationNamed(const KernelCall& call, const std::string& name) {
  const std::string lower = AsciiLower(name);
  for (const ActivationName& row : kActivations) {
    if (row.name == lower) return row;
  }
  throw Error(ErrorCode::kAttr, call.op + ": activation '" + Escaped(name) + "' is not known");
}

// A tile of R x kColumns elements of the product, with its sums in registers.
constexpr int kRows = 4, kColumns = 8;

// `panel` has kColumns columns of b, row by row.
template <int R, typename T>
void AddTile(int64_t k, const T* a, int64_t a_row, const T* panel, int64_t columns, T* c, int64_t c_row) {
  T sum[R][kColumns] = {};
  for (int64_t p = 0; p < k; ++p) {
    for (int i = 0; i < R; ++i) {
      const T x = a[i * a_row + p];
      for (int q = 0; q < kColumns; ++q) sum[i][q] += x * panel[p * kColumns + q];
    }
  }
  for (int i = 0; i < R; ++i) {
    for (int64_t q = 0; q < columns; ++q) c[i * c_row + q] += sum[i][q];
  }
}

// The transpose of a [k, m] block of a matrix with row stride `step`.
template <typename T>
std::vector<T> Transposed(int64_t m, int64_t k, const T* a, int64_t step) {
  std::vector<T> out(static_cast<size_t>(m * k));
  for (int64_t i0 = 0; i0 < m; i0 += 16) {
    for (int64_t p = 0; p < k; ++p) {
      for (int64_t i = i0; i < std::min(i0 + 16, m); ++i) out[static_cast<size_t>(i * k + p)] = a[p * step + i];
    }
  }
  return out;
}

// The time of each step of each sequence.
std::vector<int64_t> TimesOf(const KernelCall& call, const void* const* inputs, const RecurrentExtents& size, int64_t direction) {
  std::vector<int64_t> lengths =
      InputInts(call, inputs, recurrent::kLengths, std::vector<int64_t>(static_cast<size_t>(size.batch), size.steps));
  std::vector<int64_t> times(static_cast<size_t>(size.steps * size.batch), -1);
  for (int64_t b = 0; b < size.batch; ++b) {
    const int64_t length = lengths[static_cast<size_t>(b)];
    if (length < 0 || length > size.steps) {
      throw Error(ErrorCode::kData, call.op + ": sequence " + std::to_string(b) + " has length " + std::to_string(length) +
                                        " in sequence_lens, X has " + std::to_string(size.steps) + " steps");
    }
    for (int64_t s = 0; s < length; ++s) times[static_cast<size_t>(s * size.batch + b)] = size.time(direction, s, length);
  }
  return times;
}

}  // namespace

std::vector<Activation> ActivationsOf(const KernelCall& call, int64_t direction, const std::vector<std::string>& defaults) {
  std::vector<std::string> names = call.attributes.Strings("activations");
  const size_t count = defaults.size();
  if (names.empty()) {
    names = defaults;
    names.insert(names.end(), defaults.begin(), defaults.end());
  }
  // alpha and beta list values only for those activations that have one.
  const std::vector<double> alphas = call.attributes.Floats("activation_alpha"), betas = call.attributes.Floats("activation_beta");
  size_t next_alpha = 0, next_beta = 0;
  std::vector<Activation> all;
  for (const std::string& name : names) {
    const ActivationName& row = ActivationNamed(call, name);
    all.push_back({row.kind, row.alpha, row.beta});
    if (row.has_alpha && next_alpha < alphas.size()) all.back().alpha = alphas[next_alpha++];
    if (row.has_beta && next_beta < betas.size()) all.back().beta = betas[next_beta++];
  }
  const size_t first = static_cast<size_t>(direction) * count;
  if (first + count > all.size()) {
    throw Error(ErrorCode::kAttr,
                call.op + ": " + std::to_string(all.size()) + " activations, each direction needs " + std::to_string(count));
  }
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

template <typename T>
void AddProduct(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_row, int64_t a_column, const T* b, int64_t b_row, T* c,
                int64_t c_row) {
  std::vector<T> rows;
  if (a_column != 1) {
    GRADLOOM_CHECK(a_row == 1);
    rows = Transposed(m, k, a, a_column);
    a = rows.data();
    a_row = k;
  }
  std::vector<T> panel(static_cast<size_t>(k * kColumns));
  for (int64_t j = 0; j < n; j += kColumns) {
    const int64_t columns = std::min<int64_t>(kColumns, n - j);
    for (int64_t p = 0; p < k; ++p) std::copy_n(b + p * b_row + j, columns, panel.data() + p * kColumns);
    int64_t i = 0;
    for (; i + kRows <= m; i += kRows) AddTile<kRows>(k, a + i * a_row, a_row, panel.data(), columns, c + i * c_row + j, c_row);
    for (; i < m; ++i) AddTile<1>(k, a + i * a_row, a_row, panel.data(), columns, c + i * c_row + j, c_row);
  }
}

template <typename T>
RecurrentDirection<T>::RecurrentDirection(const KernelCall& call, const void* const* inputs, int64_t which)
    : size(call), direction(which), clip(call.attributes.Float("clip", 0)) {
  times = TimesOf(call, inputs, size, direction);
  w = In<T>(inputs, recurrent::kW) + size.w_at(direction);
  r = In<T>(inputs, recurrent::kR) + size.r_at(direction);
  const T* bias = Has(call.inputs, recurrent::kB) ? In<T>(inputs, recurrent::kB) : nullptr;
  w_bias = bias == nullptr ? nullptr : bias + size.w_bias_at(direction);
  r_bias = bias == nullptr ? nullptr : bias + size.r_bias_at(direction);
  x.resize(static_cast<size_t>(size.steps * size.batch * size.input));
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i] < 0) continue;
    const T* from = In<T>(inputs, recurrent::kX) + size.x_at(times[i], static_cast<int64_t>(i) % size.batch);
    std::copy_n(from, size.input, x.data() + static_cast<int64_t>(i) * size.input);
  }
  r_transposed.resize(static_cast<size_t>(size.hidden * size.width()));
  for (int64_t i = 0; i < size.width(); ++i) {
    for (int64_t j = 0; j < size.hidden; ++j) r_transposed[static_cast<size_t>(j * size.width() + i)] = r[i * size.hidden + j];
  }
}

template <typename T>
std::vector<T> RecurrentDirection<T>::Projection() const {
  std::vector<T> transposed(static_cast<size_t>(size.input * size.width()));
  for (int64_t i = 0; i < size.width(); ++i) {
    for (int64_t j = 0; j < size.input; ++j) transposed[static_cast<size_t>(j * size.width() + i)] = w[i * size.input + j];
  }
  const int64_t rows = size.steps * size.batch;
  std::vector<T> z(static_cast<size_t>(rows * size.width()));
  if (w_bias != nullptr) {
    for (int64_t i = 0; i < rows; ++i) std::copy_n(w_bias, size.width(), z.data() + i * size.width());
  }
  AddProduct(rows, size.width(), size.input, x.data(), size.input, int64_t{1}, transposed.data(), size.width(), z.data(), size.width());
  return z;
}

template <typename T>
std::vector<T> RecurrentDirection<T>::State(const KernelCall& call, const void* const* inputs, size_t i) const {
  return StateGradient(Has(call.inputs, i) ? inputs[i] : nullptr);
}

template <typename T>
void RecurrentDirection<T>::Clip(int64_t n, T* z) const {
  if (clip <= 0) return;
  const T bound = static_cast<T>(clip);
  for (int64_t i = 0; i < n; ++i) z[i] = std::min(std::max(z[i], -bound), bound);
}

template <typename T>
void RecurrentDirection<T>::ClipGradient(int64_t n, const T* z, T* dz) const {
  if (clip <= 0) return;
  const T bound = static_cast<T>(clip);
  for (int64_t i = 0; i < n; ++i) dz[i] = std::abs(z[i]) < bound ? dz[i] : T(0);
}

template <typename T>
void RecurrentDirection<T>::WriteSequence(const T* h, void* y) const {
  if (y == nullptr) return;
  T* out = static_cast<T*>(y);
  for (int64_t t = 0; t < size.steps; ++t) {
    for (int64_t b = 0; b < size.batch; ++b) {
      if (!active(t, b)) std::fill_n(out + size.y_at(t, direction, b), size.hidden, T(0));
    }
  }
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i] < 0) continue;
    const int64_t row = static_cast<int64_t>(i);
    std::copy_n(h + (row + size.batch) * size.hidden, size.hidden, out + size.y_at(times[i], direction, row % size.batch));
  }
}

template <typename T>
void RecurrentDirection<T>::WriteState(const T* last, void* y_h) const {
  if (y_h == nullptr) return;
  for (int64_t b = 0; b < size.batch; ++b) {
    std::copy_n(last + b * size.hidden, size.hidden, static_cast<T*>(y_h) + size.state_at(direction, b));
  }
}

template <typename T>
void RecurrentDirection<T>::WriteKept(int64_t first, const T* rows, int64_t count, void* kept) const {
  if (kept == nullptr) return;
  const int64_t width = size.kept * size.hidden;
  T* const out = static_cast<T*>(kept) + direction * size.rows() * width + first * size.hidden;
  const auto at = [&](int64_t t, int64_t b) { return out + size.row(t, b) * width; };
  // A sequence of n steps has the times [0, n).
  for (size_t i = 0; i < times.size(); ++i) {
    const int64_t s = static_cast<int64_t>(i) / size.batch, b = static_cast<int64_t>(i) % size.batch;
    if (times[i] < 0) {
      std::fill_n(at(s, b), count * size.hidden, T(0));
    } else {
      std::copy_n(rows + static_cast<int64_t>(i) * count * size.hidden, count * size.hidden, at(times[i], b));
    }
  }
}

template <typename T>
void RecurrentDirection<T>::AddSequenceGradient(int64_t s, const void* dy, T* dh) const {
  if (dy == nullptr) return;
  for (int64_t b = 0; b < size.batch; ++b) {
    if (!active(s, b)) continue;
    const T* from = static_cast<const T*>(dy) + size.y_at(times[static_cast<size_t>(s * size.batch + b)], direction, b);
    for (int64_t j = 0; j < size.hidden; ++j) dh[b * size.hidden + j] += from[j];
  }
}

template <typename T>
std::vector<T> RecurrentDirection<T>::StateGradient(const void* d) const {
  std::vector<T> state(static_cast<size_t>(size.batch * size.hidden));
  if (d == nullptr) return state;
  for (int64_t b = 0; b < size.batch; ++b) {
    std::copy_n(static_cast<const T*>(d) + size.state_at(direction, b), size.hidden, state.data() + b * size.hidden);
  }
  return state;
}

template <typename T>
void RecurrentDirection<T>::AddInputGradients(const std::vector<T>& dz, void* dx, void* dw, void* db) const {
  const int64_t rows = size.steps * size.batch;
  if (dx != nullptr) {
    std::vector<T> packed(x.size());
    AddProduct(rows, size.input, size.width(), dz.data(), size.width(), int64_t{1}, w, size.input, packed.data(), size.input);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t t = times[static_cast<size_t>(i)];
      if (t < 0) continue;
      T* to = static_cast<T*>(dx) + size.x_at(t, i % size.batch);
      for (int64_t j = 0; j < size.input; ++j) to[j] += packed[static_cast<size_t>(i * size.input + j)];
    }
  }
  if (dw != nullptr) {
    T* to = static_cast<T*>(dw) + size.w_at(direction);
    AddProduct(size.width(), size.input, rows, dz.data(), int64_t{1}, size.width(), x.data(), size.input, to, size.input);
  }
  if (db != nullptr) AddColumnSums(rows, size.width(), dz.data(), size.width(), static_cast<T*>(db) + size.w_bias_at(direction));
}

template struct RecurrentDirection<float>;
template struct RecurrentDirection<double>;
template void AddProduct(int64_t, int64_t, int64_t, const float*, int64_t, int64_t, const float*, int64_t, float*, int64_t);
template void AddProduct(int64_t, int64_t, int64_t, const double*, int64_t, int64_t, const double*, int64_t, double*, int64_t);

}  // namespace gradloom
