// LSTM and its gradient. The gradient recomputes the forward pass: the graph keeps only X, the weights and the initial states. This costs
// another forward pass and no memory between the passes.
#include "kernels/reference/families.h"
#include "kernels/reference/recurrent.h"
#include "kernels/reference/wide.h"

namespace gradloom {
namespace {

template <typename T>
struct Lstm {
  RecurrentDirection<T> dir;
  bool coupled;  // attribute input_forget: f = 1 - i
  std::vector<Activation> f;
  const T* peephole;  // [3, hidden], or null

  // [steps, batch, 4 * hidden]: pre-activations after the clip, and gates.
  std::vector<T> z, gates;
  // [steps + 1, batch, hidden], starting with the initial states.
  std::vector<T> h, c;
  std::vector<T> squashed;  // [steps, batch, hidden]: h(C)

  Lstm(const KernelCall& call, const void* const* inputs, int64_t direction)
      : dir(call, inputs, direction),
        coupled(call.attributes.Int("input_forget", 0) != 0),
        f(ActivationsOf(call, direction, {"Sigmoid", "Tanh", "Tanh"})),
        peephole(Has(call.inputs, recurrent::kPeephole) ? In<T>(inputs, recurrent::kPeephole) + dir.size.peephole_at(direction) : nullptr) {
    const int64_t cells = dir.size.cells();
    h = dir.State(call, inputs, recurrent::kInitialH);
    c = dir.State(call, inputs, recurrent::kInitialC);
    h.resize(static_cast<size_t>((dir.size.steps + 1) * cells));
    c.resize(h.size());
    squashed.resize(static_cast<size_t>(dir.size.steps * cells));
    z = dir.Projection();
    gates.resize(z.size());
  }

  int64_t cells() const { return dir.size.cells(); }

  void Forward() {
    const RecurrentExtents& n = dir.size;
    for (int64_t s = 0; s < n.steps; ++s) {
      T* zs = z.data() + s * n.batch * n.width();
      if (dir.r_bias != nullptr) {
        for (int64_t b = 0; b < n.batch; ++b) {
          for (int64_t j = 0; j < n.width(); ++j) zs[b * n.width() + j] += dir.r_bias[j];
        }
      }
      AddProduct(n.batch, n.width(), n.hidden, h.data() + s * cells(), n.hidden, int64_t{1}, dir.r_transposed.data(), n.width(), zs,
                 n.width());
      for (int64_t b = 0; b < n.batch; ++b) ForwardCell(s, b);
    }
  }

  void ForwardCell(int64_t s, int64_t b) {
    const int64_t H = dir.size.hidden, row = s * dir.size.batch + b;
    const T* c0 = c.data() + row * H;
    T* c1 = c.data() + row * H + cells();
    T* h1 = h.data() + row * H + cells();
    if (!dir.active(s, b)) {
      std::copy_n(c0, H, c1);
      std::copy_n(h.data() + row * H, H, h1);
      return;
    }
    T* zi = z.data() + row * 4 * H;
    T *zo = zi + H, *zf = zi + 2 * H, *zc = zi + 3 * H;
    T* gi = gates.data() + row * 4 * H;
    T *go = gi + H, *gf = gi + 2 * H, *gc = gi + 3 * H;
    if (peephole != nullptr) {
      for (int64_t j = 0; j < H; ++j) zi[j] += peephole[j] * c0[j];
      for (int64_t j = 0; j < H; ++j) zf[j] += peephole[2 * H + j] * c0[j];
    }
    dir.Clip(H, zi);
    dir.Clip(2 * H, zf);  // f and c
    ApplyActivation(f[0], H, zi, gi);
    ApplyActivation(f[0], H, zf, gf);
    ApplyActivation(f[1], H, zc, gc);
    if (coupled) {
      for (int64_t j = 0; j < H; ++j) gf[j] = 1 - gi[j];
    }
    for (int64_t j = 0; j < H; ++j) c1[j] = gf[j] * c0[j] + gi[j] * gc[j];
    if (peephole != nullptr) {
      for (int64_t j = 0; j < H; ++j) zo[j] += peephole[H + j] * c1[j];
    }
    dir.Clip(H, zo);
    ApplyActivation(f[0], H, zo, go);
    T* hc = squashed.data() + row * H;
    ApplyActivation(f[2], H, c1, hc);
    for (int64_t j = 0; j < H; ++j) h1[j] = go[j] * hc[j];
  }

  // One cell backward. On entry, dh and dc are the gradients of the states after step s, on exit of those before it; the caller adds the
  // contribution to dh through R. dz is set to the gradient of the pre-activations.
  void BackwardCell(int64_t s, int64_t b, T* dh, T* dc, T* dz, T* dp) const {
    const int64_t H = dir.size.hidden, row = s * dir.size.batch + b;
    const T *c0 = c.data() + row * H, *c1 = c0 + cells(), *hc = squashed.data() + row * H;
    const T *zi = z.data() + row * 4 * H, *gi = gates.data() + row * 4 * H;
    const T *go = gi + H, *gf = gi + 2 * H, *gc = gi + 3 * H;
    T *di = dz, *d_o = dz + H, *df = dz + 2 * H, *dg = dz + 3 * H;
    std::vector<T> d_cell(static_cast<size_t>(H));
    for (int64_t j = 0; j < H; ++j) d_o[j] = dh[j] * hc[j];
    MultiplyBySlope(f[0], H, zi + H, go, d_o);
    dir.ClipGradient(H, zi + H, d_o);
    for (int64_t j = 0; j < H; ++j) d_cell[static_cast<size_t>(j)] = dh[j] * go[j];
    MultiplyBySlope(f[2], H, c1, hc, d_cell.data());
    for (int64_t j = 0; j < H; ++j) dc[j] += d_cell[static_cast<size_t>(j)];
    if (peephole != nullptr) {
      for (int64_t j = 0; j < H; ++j) dc[j] += d_o[j] * peephole[H + j];
    }
    for (int64_t j = 0; j < H; ++j) {
      di[j] = dc[j] * (coupled ? gc[j] - c0[j] : gc[j]);
      df[j] = coupled ? T(0) : dc[j] * c0[j];
      dg[j] = dc[j] * gi[j];
    }
    MultiplyBySlope(f[0], H, zi, gi, di);
    if (!coupled) MultiplyBySlope(f[0], H, zi + 2 * H, gf, df);
    MultiplyBySlope(f[1], H, zi + 3 * H, gc, dg);
    dir.ClipGradient(H, zi, di);
    dir.ClipGradient(2 * H, zi + 2 * H, df);
    for (int64_t j = 0; j < H; ++j) {
      dc[j] *= gf[j];
      dh[j] = 0;
    }
    if (peephole != nullptr) {
      for (int64_t j = 0; j < H; ++j) dc[j] += di[j] * peephole[j] + df[j] * peephole[2 * H + j];
    }
    if (dp != nullptr) {
      for (int64_t j = 0; j < H; ++j) {
        dp[j] += di[j] * c0[j];
        dp[H + j] += d_o[j] * c1[j];
        dp[2 * H + j] += df[j] * c0[j];
      }
    }
  }
};

void Forward(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloat(call.inputs[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t d = 0; d < call.inputs[recurrent::kW].shape[0]; ++d) {
      Lstm<T> lstm(call, inputs, d);
      lstm.Forward();
      const int64_t last = lstm.dir.size.steps * lstm.cells();
      lstm.dir.WriteSequence(lstm.h.data(), outputs[0]);
      if (call.outputs.size() > 1) lstm.dir.WriteState(lstm.h.data() + last, outputs[1]);
      if (call.outputs.size() > 2) lstm.dir.WriteState(lstm.c.data() + last, outputs[2]);
      if (call.outputs.size() > 3) {
        const int64_t gates = lstm.dir.size.gates;
        lstm.dir.WriteKept(0, lstm.gates.data(), gates, outputs[3]);
        lstm.dir.WriteKept(gates, lstm.c.data() + lstm.cells(), 1, outputs[3]);
      }
    }
  });
}

// Inputs: the eight of LSTM, then the gradients of Y, Y_h and Y_c. The values kept by the training form are not read.
void Gradient(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  WithFloat(call.inputs[0].dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    ZeroOutputs(call, outputs);
    for (int64_t d = 0; d < call.inputs[recurrent::kW].shape[0]; ++d) {
      Lstm<T> lstm(call, inputs, d);
      lstm.Forward();
      const RecurrentDirection<T>& dir = lstm.dir;
      const RecurrentExtents& n = dir.size;
      std::vector<T> dh = dir.StateGradient(inputs[n.grad(1)]), dc = dir.StateGradient(inputs[n.grad(2)]);
      std::vector<T> dz(lstm.z.size());
      T* dp = static_cast<T*>(GradientOf(call, outputs, recurrent::kPeephole));
      if (dp != nullptr) dp += n.peephole_at(d);
      for (int64_t s = n.steps - 1; s >= 0; --s) {
        dir.AddSequenceGradient(s, inputs[n.grad(0)], dh.data());
        T* dzs = dz.data() + s * n.batch * n.width();
        for (int64_t b = 0; b < n.batch; ++b) {
          if (dir.active(s, b)) lstm.BackwardCell(s, b, dh.data() + b * n.hidden, dc.data() + b * n.hidden, dzs + b * n.width(), dp);
        }
        AddProduct(n.batch, n.hidden, n.width(), dzs, n.width(), int64_t{1}, dir.r, n.hidden, dh.data(), n.hidden);
      }
      dir.AddInputGradients(dz, GradientOf(call, outputs, recurrent::kX), GradientOf(call, outputs, recurrent::kW),
                            GradientOf(call, outputs, recurrent::kB));
      const int64_t rows = n.steps * n.batch;
      if (T* dr = static_cast<T*>(GradientOf(call, outputs, recurrent::kR))) {
        AddProduct(n.width(), n.hidden, rows, dz.data(), int64_t{1}, n.width(), lstm.h.data(), n.hidden, dr + n.r_at(d), n.hidden);
      }
      if (T* db = static_cast<T*>(GradientOf(call, outputs, recurrent::kB))) {
        AddColumnSums(rows, n.width(), dz.data(), n.width(), db + n.r_bias_at(d));
      }
      dir.WriteState(dh.data(), GradientOf(call, outputs, recurrent::kInitialH));
      dir.WriteState(dc.data(), GradientOf(call, outputs, recurrent::kInitialC));
    }
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"LSTM", "", Wide<Forward>},
    {"LstmTraining", "gradloom", Wide<Forward>},
    {"LstmGrad", "gradloom", Wide<Gradient>},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceLstm() { return kKernels; }

}  // namespace gradloom
