// GRU and RNN with their gradients, which recompute the forward pass like LSTM's.
#include "kernels/reference/families.h"
#include "kernels/reference/recurrent.h"
#include "kernels/reference/wide.h"

namespace gradloom {
namespace {

// The gates of GRU are z, r and h. RNN has a single one, the pre-activation of its state, and no gating.
template <typename T>
struct Gru {
  RecurrentDirection<T> dir;
  bool gated;   // GRU
  bool linear;  // attribute linear_before_reset
  std::vector<Activation> f;

  std::vector<T> z, gates;  // [steps, batch, width]: pre-activations after the clip, and gates
  std::vector<T> h;         // [steps + 1, batch, hidden], starting with the initial state
  std::vector<T> reset;     // [steps, batch, hidden]: linear: h * Rh^T + Rbh, otherwise r (.) h

  Gru(const KernelCall& call, const void* const* inputs, int64_t direction, bool is_gru)
      : dir(call, inputs, direction),
        gated(is_gru),
        linear(call.attributes.Int("linear_before_reset", 0) != 0),
        f(ActivationsOf(call, direction, is_gru ? std::vector<std::string>{"Sigmoid", "Tanh"} : std::vector<std::string>{"Tanh"})) {
    const int64_t state = dir.size.cells();
    h = dir.State(call, inputs, recurrent::kInitialH);
    h.resize(static_cast<size_t>((dir.size.steps + 1) * state));
    if (gated) reset.resize(static_cast<size_t>(dir.size.steps * state));
    z = dir.Projection();
    gates.resize(z.size());
  }

  int64_t cells() const { return dir.size.cells(); }
  // The number of columns of the product with R that depend only on the state.
  int64_t plain_width() const { return gated ? 2 * dir.size.hidden : dir.size.width(); }

  void RunForward() {
    const RecurrentExtents& n = dir.size;
    const int64_t H = n.hidden;
    for (int64_t s = 0; s < n.steps; ++s) {
      T* zs = z.data() + s * n.batch * n.width();
      const T* h0 = h.data() + s * cells();
      AddBias(zs, n.width(), dir.r_bias, gated && linear ? 2 * H : n.width());
      AddProduct(n.batch, plain_width(), H, h0, H, int64_t{1}, dir.r_transposed.data(), n.width(), zs, n.width());
      if (!gated) {
        dir.Clip(n.batch * H, zs);
        T* gs = gates.data() + s * n.batch * H;
        ApplyActivation(f[0], n.batch * H, zs, gs);
        for (int64_t b = 0; b < n.batch; ++b)
          std::copy_n(dir.active(s, b) ? gs + b * H : h0 + b * H, H, h.data() + (s + 1) * cells() + b * H);
        continue;
      }
      T* gs = gates.data() + s * n.batch * n.width();
      T* rs = reset.data() + s * cells();
      for (int64_t b = 0; b < n.batch; ++b) {
        dir.Clip(2 * H, zs + b * n.width());
        ApplyActivation(f[0], 2 * H, zs + b * n.width(), gs + b * n.width());
      }
      if (linear) {
        AddBias(rs, H, dir.r_bias == nullptr ? nullptr : dir.r_bias + 2 * H, H);
        AddProduct(n.batch, H, H, h0, H, int64_t{1}, dir.r_transposed.data() + 2 * H, n.width(), rs, H);
      } else {
        ForEachCell([&](int64_t b, int64_t j) { rs[b * H + j] = gs[b * n.width() + H + j] * h0[b * H + j]; });
        AddProduct(n.batch, H, H, rs, H, int64_t{1}, dir.r_transposed.data() + 2 * H, n.width(), zs + 2 * H, n.width());
      }
      FinishStep(s);
    }
  }

  void FinishStep(int64_t s) {
    const int64_t H = dir.size.hidden, width = dir.size.width();
    for (int64_t b = 0; b < dir.size.batch; ++b) {
      const int64_t row = s * dir.size.batch + b;
      T *zr = z.data() + row * width, *gr = gates.data() + row * width;
      const T *h0 = h.data() + row * H, *rs = reset.data() + row * H;
      T* h1 = h.data() + row * H + cells();
      if (linear) {
        for (int64_t j = 0; j < H; ++j) zr[2 * H + j] += gr[H + j] * rs[j];
      }
      dir.Clip(H, zr + 2 * H);
      ApplyActivation(f[1], H, zr + 2 * H, gr + 2 * H);
      if (dir.active(s, b)) {
        for (int64_t j = 0; j < H; ++j) h1[j] = (1 - gr[j]) * gr[2 * H + j] + gr[j] * h0[j];
      } else {
        std::copy_n(h0, H, h1);
      }
    }
  }

  // Adds `bias` to the first `count` columns of rows of `width` columns.
  void AddBias(T* rows, int64_t width, const T* bias, int64_t count) const {
    if (bias == nullptr) return;
    for (int64_t b = 0; b < dir.size.batch; ++b) {
      for (int64_t j = 0; j < count; ++j) rows[b * width + j] += bias[j];
    }
  }

  template <typename F>
  void ForEachCell(F&& visit) const {
    for (int64_t b = 0; b < dir.size.batch; ++b) {
      for (int64_t j = 0; j < dir.size.hidden; ++j) visit(b, j);
    }
  }

  // On entry, dh is the gradient of the state after step s, on exit that of the state before it. dz is set to the gradient of the
  // pre-activations, dr to that of the products with R (they differ in the h gate if `linear`).
  void BackwardStep(int64_t s, T* dh, T* dz, T* dr) const {
    const RecurrentExtents& n = dir.size;
    const int64_t H = n.hidden;
    if (!gated) {
      for (int64_t b = 0; b < n.batch; ++b) {
        if (!dir.active(s, b)) continue;
        const int64_t row = s * n.batch + b;
        std::copy_n(dh + b * H, H, dz + b * H);
        std::fill_n(dh + b * H, H, T(0));
        MultiplyBySlope(f[0], H, z.data() + row * H, gates.data() + row * H, dz + b * H);
        dir.ClipGradient(H, z.data() + row * H, dz + b * H);
      }
      std::copy_n(dz, n.batch * H, dr);
      AddProduct(n.batch, H, H, dz, H, int64_t{1}, dir.r, H, dh, H);
      return;
    }
    const T* h0 = h.data() + s * cells();
    const T* gs = gates.data() + s * n.batch * n.width();
    const T* zs = z.data() + s * n.batch * n.width();
    const T* rs = reset.data() + s * cells();
    for (int64_t b = 0; b < n.batch; ++b) {
      if (!dir.active(s, b)) continue;
      const T *g = gs + b * n.width(), *zb = zs + b * n.width();
      T *db = dz + b * n.width(), *dhb = dh + b * H;
      for (int64_t j = 0; j < H; ++j) {
        db[j] = dhb[j] * (h0[b * H + j] - g[2 * H + j]);
        db[2 * H + j] = dhb[j] * (1 - g[j]);
        dhb[j] *= g[j];
      }
      MultiplyBySlope(f[1], H, zb + 2 * H, g + 2 * H, db + 2 * H);
      dir.ClipGradient(H, zb + 2 * H, db + 2 * H);
    }
    if (linear) {
      ForEachCell([&](int64_t b, int64_t j) {
        const int64_t at = b * n.width() + j;
        dz[at + H] = dz[at + 2 * H] * rs[b * H + j];
        dr[at + 2 * H] = dz[at + 2 * H] * gs[at + H];
      });
    } else {
      std::vector<T> d_reset_h(static_cast<size_t>(n.batch * H));
      AddProduct(n.batch, H, H, dz + 2 * H, n.width(), int64_t{1}, dir.r + n.r_at(0, recurrent::kCandidateGate), H, d_reset_h.data(), H);
      ForEachCell([&](int64_t b, int64_t j) {
        const int64_t at = b * n.width() + j;
        dz[at + H] = d_reset_h[static_cast<size_t>(b * H + j)] * h0[b * H + j];
        dr[at + 2 * H] = dz[at + 2 * H];
        dh[b * H + j] += d_reset_h[static_cast<size_t>(b * H + j)] * gs[at + H];
      });
    }
    for (int64_t b = 0; b < n.batch; ++b) {
      MultiplyBySlope(f[0], 2 * H, zs + b * n.width(), gs + b * n.width(), dz + b * n.width());
      dir.ClipGradient(2 * H, zs + b * n.width(), dz + b * n.width());
      std::copy_n(dz + b * n.width(), 2 * H, dr + b * n.width());
    }
    AddProduct(n.batch, H, linear ? n.width() : 2 * H, dr, n.width(), int64_t{1}, dir.r, H, dh, H);
  }
};

template <bool kGru>
void Forward(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloat(call.inputs[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t d = 0; d < call.inputs[recurrent::kW].shape[0]; ++d) {
      Gru<T> gru(call, inputs, d, kGru);
      gru.RunForward();
      gru.dir.WriteSequence(gru.h.data(), outputs[0]);
      if (call.outputs.size() > 1) gru.dir.WriteState(gru.h.data() + gru.dir.size.steps * gru.cells(), outputs[1]);
      if (call.outputs.size() > 2) {
        const int64_t gates = gru.dir.size.gates;
        gru.dir.WriteKept(0, gru.gates.data(), gates, outputs[2]);
        if (gru.linear) gru.dir.WriteKept(gates, gru.reset.data(), 1, outputs[2]);
      }
    }
  });
}

// Inputs: the six of GRU or RNN, then the gradients of Y and Y_h. The values kept by the forward pass are not read.
template <bool kGru>
void Gradient(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloat(call.inputs[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    ZeroOutputs(call, outputs);
    for (int64_t d = 0; d < call.inputs[recurrent::kW].shape[0]; ++d) {
      Gru<T> gru(call, inputs, d, kGru);
      gru.RunForward();
      const RecurrentDirection<T>& dir = gru.dir;
      const RecurrentExtents& n = dir.size;
      std::vector<T> dh = dir.StateGradient(inputs[n.grad(1)]);
      std::vector<T> dz(gru.z.size()), dr(gru.z.size());
      for (int64_t s = n.steps - 1; s >= 0; --s) {
        dir.AddSequenceGradient(s, inputs[n.grad(0)], dh.data());
        gru.BackwardStep(s, dh.data(), dz.data() + s * n.batch * n.width(), dr.data() + s * n.batch * n.width());
      }
      dir.AddInputGradients(dz, GradientOf(call, outputs, recurrent::kX), GradientOf(call, outputs, recurrent::kW),
                            GradientOf(call, outputs, recurrent::kB));
      const int64_t rows = n.steps * n.batch, H = n.hidden;
      if (T* to = static_cast<T*>(GradientOf(call, outputs, recurrent::kR))) {
        to += n.r_at(d);
        const int64_t plain = gru.plain_width();
        AddProduct(plain, H, rows, dr.data(), int64_t{1}, n.width(), gru.h.data(), H, to, H);
        const T* state = gru.linear ? gru.h.data() : gru.reset.data();
        if (kGru) AddProduct(H, H, rows, dr.data() + plain, int64_t{1}, n.width(), state, H, to + plain * H, H);
      }
      if (T* db = static_cast<T*>(GradientOf(call, outputs, recurrent::kB))) {
        AddColumnSums(rows, n.width(), dr.data(), n.width(), db + n.r_bias_at(d));
      }
      dir.WriteState(dh.data(), GradientOf(call, outputs, recurrent::kInitialH));
    }
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"GRU", "", Wide<Forward<true>>},  {"GruTraining", "gradloom", Wide<Forward<true>>}, {"GruGrad", "gradloom", Wide<Gradient<true>>},
    {"RNN", "", Wide<Forward<false>>}, {"RnnGrad", "gradloom", Wide<Gradient<false>>},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceGru() { return kKernels; }

}  // namespace gradloom
