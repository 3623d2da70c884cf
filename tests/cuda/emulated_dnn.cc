// cuDNN without a GPU, for tests: problems are computed in double, with the strides of their tensors, as specified in cuDNN's
// documentation. Only the real library knows which problems it has an algorithm for, and how much workspace that needs.
#include "tests/cuda/emulated_dnn.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/cuda/dnn_handle.h"
#include "kernels/cuda/dnn_plan.h"
#include "kernels/cuda/emulated_launch.h"
#include "runtime/base/error.h"
#include "tests/cuda/emulated_tensor.h"

namespace gradloom::cuda {
namespace {

using Addresses = std::vector<const void*>;

bool& HasAlgorithms() {
  static bool has = true;
  return has;
}

// The alignment that cuDNN's front end states for every tensor. cuDNN does not check it: kernels fault or compute something else.
constexpr uintptr_t kTensorAlignment = 16;

// A function of the addresses that a step passes, run on a stream. It overwrites all the scratch memory that it is given.
class EmulatedPlan : public DnnPlan {
 public:
  EmulatedPlan(int64_t scratch_bytes, std::function<void(const Addresses&)> compute)
      : scratch_bytes_(scratch_bytes), compute_(std::move(compute)) {}

  void Run(std::span<const void* const> addresses, void* scratch, CUstream_st* stream) override {
    for (const void* const address : addresses) {
      if (reinterpret_cast<uintptr_t>(address) % kTensorAlignment != 0)
        throw Error(ErrorCode::kDevice, "a tensor of cuDNN is not aligned to 16 bytes");
    }
    EmulatedLaunch(stream, [compute = compute_, all = Addresses(addresses.begin(), addresses.end()), scratch, bytes = scratch_bytes_] {
      std::memset(scratch, 0xA5, static_cast<size_t>(bytes));
      compute(all);
    });
  }

 private:
  int64_t scratch_bytes_;
  std::function<void(const Addresses&)> compute_;
};

// Calls f(index) for each element of a tensor of these dimensions.
void ForEachIndex(const std::vector<int64_t>& dims, const std::function<void(const std::vector<int64_t>&)>& f) {
  std::vector<int64_t> index(dims.size(), 0);
  for (size_t dim = 1; dim > 0;) {
    f(index);
    for (dim = index.size(); dim > 0 && ++index[dim - 1] == dims[dim - 1]; --dim) index[dim - 1] = 0;
  }
}

// The spatial dimensions of [N, C, ...], extended to three.
struct Volume {
  std::array<int64_t, 3> extent{1, 1, 1}, stride{0, 0, 0};

  explicit Volume(const DnnTensor& tensor) {
    const size_t missing = 5 - tensor.dims.size();
    for (size_t dim = 2; dim < tensor.dims.size(); ++dim) {
      extent[dim - 2 + missing] = tensor.dims[dim];
      stride[dim - 2 + missing] = tensor.strides[dim];
    }
  }
  int64_t points() const { return extent[0] * extent[1] * extent[2]; }
  std::array<int64_t, 3> At(int64_t i) const { return {i / (extent[1] * extent[2]), i / extent[2] % extent[1], i % extent[2]}; }
  int64_t Place(const std::array<int64_t, 3>& p) const { return p[0] * stride[0] + p[1] * stride[1] + p[2] * stride[2]; }
};

// Calls f(offset in x, offset in w, offset in y) for each product of the convolution.
template <typename F>
void ForEachProduct(const DnnConvolution& c, F f) {
  const int64_t group_x = c.w.dims[1], group_y = c.y.dims[1] / (c.x.dims[1] / group_x);
  const Volume xs(c.x), ws(c.w), ys(c.y);
  for (int64_t window = 0; window < ys.points(); ++window) {
    for (int64_t tap = 0; tap < ws.points(); ++tap) {
      const auto at = ys.At(window), element = ws.At(tap);
      std::array<int64_t, 3> from{};
      bool inside = true;
      for (size_t i = 0, dim = 3 - c.pads.size(); i < c.pads.size(); ++i, ++dim) {
        from[dim] = at[dim] * c.strides[i] - c.pads[i] + element[dim] * c.dilations[i];
        inside = inside && from[dim] >= 0 && from[dim] < xs.extent[dim];
      }
      if (!inside) continue;
      for (int64_t n = 0; n < c.x.dims[0]; ++n) {
        for (int64_t m = 0; m < c.y.dims[1]; ++m) {
          const int64_t x = n * c.x.strides[0] + m / group_y * group_x * c.x.strides[1] + xs.Place(from);
          const int64_t w = m * c.w.strides[0] + ws.Place(element);
          const int64_t y = n * c.y.strides[0] + m * c.y.strides[1] + ys.Place(at);
          for (int64_t k = 0; k < group_x; ++k) f(x + k * c.x.strides[1], w + k * c.w.strides[1], y);
        }
      }
    }
  }
}

void Convolve(const DnnConvolution& c, const Addresses& addresses) {
  using Direction = DnnConvolution::Direction;
  std::array tensors{EmulatedTensor(c.x, c.dtype), EmulatedTensor(c.w, c.dtype), EmulatedTensor(c.y, c.dtype)};
  const size_t made = c.direction == Direction::kForward ? 2 : c.direction == Direction::kGradInput ? 0 : 1;
  const size_t left = made == 0 ? 1 : 0, right = made == 2 ? 1 : 2;
  for (size_t k : {left, right}) tensors[k].Load(addresses[k]);
  double* const sums = tensors[made].at.data();
  const double *const a = tensors[left].at.data(), *const b = tensors[right].at.data();
  ForEachProduct(c, [&](int64_t x, int64_t w, int64_t y) {
    if (made == 2) sums[y] += a[x] * b[w];
    if (made == 1) sums[w] += a[x] * b[y];
    if (made == 0) sums[x] += a[w] * b[y];
  });
  tensors[made].Store(const_cast<void*>(addresses[made]));
}

// Rejects inconsistent tensors and descriptors, as cuDNN does.
bool IsConsistent(const DnnConvolution& c) {
  const size_t rank = c.x.dims.size();
  if (rank < 4 || rank > 5 || c.w.dims.size() != rank || c.y.dims.size() != rank || c.pads.size() != rank - 2) return false;
  if (c.x.dims[0] != c.y.dims[0] || c.w.dims[0] != c.y.dims[1] || c.x.dims[1] % c.w.dims[1] != 0) return false;
  for (size_t i = 0; i + 2 < rank; ++i) {
    const int64_t room = c.x.dims[i + 2] + 2 * c.pads[i] - (c.w.dims[i + 2] - 1) * c.dilations[i] - 1;
    if (room < 0 || room / c.strides[i] + 1 != c.y.dims[i + 2]) return false;
  }
  return true;
}

// Attention, one query at a time.
struct Attention {
  DnnAttention a;
  EmulatedTensor q, k, v, o, sums, mask;

  explicit Attention(const DnnAttention& attention)
      : a(attention),
        q(a.q, a.dtype),
        k(a.k, a.dtype),
        v(a.v, a.dtype),
        o(a.o, a.dtype),
        sums({{a.q.dims[0], a.q.dims[1], a.q.dims[2], 1}, {a.q.dims[1] * a.q.dims[2], a.q.dims[2], 1, 1}}, DType::kFloat32),
        mask(a.has_mask() ? a.mask : DnnTensor{{1, 1, 1, 1}, {1, 1, 1, 1}}, a.dtype) {}

  void Load(const Addresses& addresses) {
    q.Load(addresses[0]), k.Load(addresses[1]), v.Load(addresses[2]);
    if (a.has_mask()) mask.Load(addresses.back());
  }
  int64_t KeyHead(int64_t head) const { return head / (a.q.dims[1] / a.k.dims[1]); }
  int64_t KeysOf(int64_t i) const { return a.causal ? std::min(i + 1, a.k.dims[2]) : a.k.dims[2]; }

  double Score(int64_t b, int64_t h, int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t e = 0; e < a.q.dims[3]; ++e) sum += q[{b, h, i, e}] * k[{b, KeyHead(h), j, e}];
    return sum * a.scale + (a.has_mask() ? mask[{b, a.mask.dims[1] == 1 ? 0 : h, i, j}] : 0.0);
  }
};

// Calls f(batch, head, query).
template <typename F>
void ForEachQuery(const DnnAttention& a, F f) {
  ForEachIndex({a.q.dims[0], a.q.dims[1], a.q.dims[2]}, [&](const std::vector<int64_t>& at) { f(at[0], at[1], at[2]); });
}

void Attend(const DnnAttention& problem, const Addresses& addresses) {
  Attention t(problem);
  t.Load(addresses);
  ForEachQuery(problem, [&](int64_t b, int64_t h, int64_t i) {
    std::vector<double> scores;
    for (int64_t j = 0; j < t.KeysOf(i); ++j) scores.push_back(t.Score(b, h, i, j));
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - largest);
    t.sums[{b, h, i, 0}] = largest + std::log(sum);
    for (int64_t j = 0; j < t.KeysOf(i); ++j) {
      const double probability = scores[static_cast<size_t>(j)] / sum;
      for (int64_t e = 0; e < problem.v.dims[3]; ++e) t.o[{b, h, i, e}] += probability * t.v[{b, t.KeyHead(h), j, e}];
    }
  });
  t.o.Store(const_cast<void*>(addresses[3]));
  if (addresses.size() > (problem.has_mask() ? 5 : 4)) t.sums.Store(const_cast<void*>(addresses[4]));
}

void AttendGradient(const DnnAttention& problem, const Addresses& addresses) {
  Attention t(problem);
  t.Load(addresses);
  t.o.Load(addresses[3]);
  t.sums.Load(addresses[5]);
  EmulatedTensor dy(problem.o, problem.dtype), dq(problem.q, problem.dtype), dk(problem.k, problem.dtype), dv(problem.v, problem.dtype);
  dy.Load(addresses[4]);
  ForEachQuery(problem, [&](int64_t b, int64_t h, int64_t i) {
    const int64_t g = t.KeyHead(h), size = problem.q.dims[3], v_size = problem.v.dims[3];
    double mean = 0;
    for (int64_t e = 0; e < v_size; ++e) mean += dy[{b, h, i, e}] * t.o[{b, h, i, e}];
    for (int64_t j = 0; j < t.KeysOf(i); ++j) {
      const double probability = std::exp(t.Score(b, h, i, j) - t.sums[{b, h, i, 0}]);
      double by_probability = 0;
      for (int64_t e = 0; e < v_size; ++e) by_probability += dy[{b, h, i, e}] * t.v[{b, g, j, e}];
      for (int64_t e = 0; e < v_size; ++e) dv[{b, g, j, e}] += probability * dy[{b, h, i, e}];
      const double by_score = probability * (by_probability - mean) * problem.scale;
      for (int64_t e = 0; e < size; ++e) dq[{b, h, i, e}] += by_score * t.k[{b, g, j, e}];
      for (int64_t e = 0; e < size; ++e) dk[{b, g, j, e}] += by_score * t.q[{b, h, i, e}];
    }
  });
  dq.Store(const_cast<void*>(addresses[6]));
  dk.Store(const_cast<void*>(addresses[7]));
  dv.Store(const_cast<void*>(addresses[8]));
}

std::unique_ptr<DnnPlan> Plan(int64_t scratch_bytes, std::string& why, std::function<void(const Addresses&)> compute) {
  if (HasAlgorithms()) return std::make_unique<EmulatedPlan>(scratch_bytes, std::move(compute));
  why = "a test wants it so";
  return nullptr;
}

}  // namespace

std::unique_ptr<DnnPlan> PlanDnnConvolution(const DnnConvolution& convolution, int64_t scratch_bytes, Libraries&, std::string& why) {
  if (!IsConsistent(convolution)) throw Error(ErrorCode::kDevice, "cuDNN refuses the problem");
  return Plan(scratch_bytes, why, [=](const Addresses& addresses) { Convolve(convolution, addresses); });
}

std::unique_ptr<DnnPlan> PlanDnnAttention(const DnnAttention& attention, bool, int64_t scratch_bytes, Libraries&, std::string& why) {
  return Plan(scratch_bytes, why, [=](const Addresses& addresses) { Attend(attention, addresses); });
}

std::unique_ptr<DnnPlan> PlanDnnAttentionGradient(const DnnAttention& attention, int64_t scratch_bytes, Libraries&, std::string& why) {
  return Plan(scratch_bytes, why, [=](const Addresses& addresses) { AttendGradient(attention, addresses); });
}

// Only the real library has a handle.
cudnnContext* NewDnn() { throw Error(ErrorCode::kDevice, "the emulated cuDNN has no handle"); }
void DeleteDnn(cudnnContext*) noexcept {}

}  // namespace gradloom::cuda

namespace gradloom::emulated {

void SetDnnHasAlgorithms(bool all) { cuda::HasAlgorithms() = all; }

}  // namespace gradloom::emulated
