// GRU and RNN with their gradients, which recompute the forward pass like LSTM's. RNN is the case of one gate.
#include "kernels/cuda/recurrent.cuh"

namespace gradloom::cuda {
namespace {

// The gates of GRU are z, r and h, called `update`, `reset` and `candidate` below; W and R have their rows in this order.
template <typename T>
struct Gru : Recurrence<T> {
  using typename Recurrence<T>::A;
  using Cell = Sequences::Cell;

  bool gated;   // GRU
  bool linear;  // attribute linear_before_reset
  // GRU: the operand of the candidate's rows of R, r (.) h. If `linear`: the product of these rows with h, plus bias; in the gradient, its
  // gradient.
  A* reset;
  A *d_reset_state, *sums;

  Gru(const RecurrentPlan& plan, bool is_gru, bool is_linear, const Launch& l)
      : Recurrence<T>(plan, l), gated(is_gru), linear(is_gru && is_linear) {
    A* const scratch = static_cast<A*>(l.scratch);
    reset = scratch + plan.at.reset;
    d_reset_state = scratch + plan.at.dc;
    sums = scratch + plan.at.sums;
  }

  // The number of rows of R whose product with the state is added to z directly.
  int64_t plain_width() const { return gated ? 2 * this->n.hidden : this->n.width(); }

  GRADLOOM_DEVICE A* ZOf(int64_t s, const Cell& at) const { return this->z + this->RowOf(s, at) * this->n.width() + at.j; }
  GRADLOOM_DEVICE A* ResetOf(int64_t s, const Cell& at) const { return reset + this->RowOf(s, at) * this->n.hidden + at.j; }

  GRADLOOM_DEVICE void Finish(int64_t s, const Cell& at, bool active, A h1) const {
    const int64_t before = this->StateOf(s, at);
    this->h[before + this->n.batch * this->n.hidden] = active ? h1 : this->h[before];
    if (this->y != nullptr) *this->YOf(s, at) = static_cast<T>(active ? h1 : A(0));
  }

  // Step s of cell i, after the products with R.
  GRADLOOM_DEVICE void RnnForward(int64_t s, int64_t i) const {
    const Cell at = this->n.CellOf(i);
    A* const z = ZOf(s, at);
    *z = this->Clipped(*z);
    Finish(s, at, this->n.Active(s, at.b), Activate(this->f.of[at.d][0], *z));
  }

  // The reset gate, before the product with the candidate's rows of R. Not used if `linear`.
  GRADLOOM_DEVICE void Reset(int64_t s, int64_t i) const {
    const Cell at = this->n.CellOf(i);
    A* const z = ZOf(s, at) + this->n.hidden;
    *z = this->Clipped(*z);
    *ResetOf(s, at) = Activate(this->f.of[at.d][0], *z) * this->h[this->StateOf(s, at)];
  }

  GRADLOOM_DEVICE void GruForward(int64_t s, int64_t i) const {
    const Cell at = this->n.CellOf(i);
    const int64_t hidden = this->n.hidden;
    const Activation* const f = this->f.of[at.d];
    A* const z = ZOf(s, at);
    A candidate = z[2 * hidden];
    if (linear) {
      z[hidden] = this->Clipped(z[hidden]);
      candidate += Activate(f[0], z[hidden]) * *ResetOf(s, at);
    }
    z[0] = this->Clipped(z[0]);
    z[2 * hidden] = this->Clipped(candidate);
    const A update = Activate(f[0], z[0]);
    Finish(s, at, this->n.Active(s, at.b), (1 - update) * Activate(f[1], z[2 * hidden]) + update * this->h[this->StateOf(s, at)]);
  }

  // Step s backward. On entry, dh is the gradient of the state after the step, on exit that of the state before it, without the
  // contribution through R. The pre-activations are overwritten by their gradients.
  GRADLOOM_DEVICE void RnnBackward(int64_t s, int64_t i) const {
    const Cell at = this->n.CellOf(i);
    A* const z = ZOf(s, at);
    if (!this->n.Active(s, at.b)) {
      *z = 0;
      return;
    }
    const Activation& f = this->f.of[at.d][0];
    *z = this->ClippedGradient(*z, this->Upstream(s, at, i) * Slope(f, *z, Activate(f, *z)));
    this->dh[i] = 0;
  }

  GRADLOOM_DEVICE void GruBackward(int64_t s, int64_t i) const {
    const Cell at = this->n.CellOf(i);
    const int64_t hidden = this->n.hidden;
    A* const z = ZOf(s, at);
    d_reset_state[i] = 0;
    if (!this->n.Active(s, at.b)) {
      z[0] = z[hidden] = z[2 * hidden] = *ResetOf(s, at) = 0;
      return;
    }
    const Activation* const f = this->f.of[at.d];
    const A update = Activate(f[0], z[0]), candidate = Activate(f[1], z[2 * hidden]);
    const A d_h = this->Upstream(s, at, i), h0 = this->h[this->StateOf(s, at)];
    const A d_candidate = this->ClippedGradient(z[2 * hidden], d_h * (1 - update) * Slope(f[1], z[2 * hidden], candidate));
    z[0] = this->ClippedGradient(z[0], d_h * (h0 - candidate) * Slope(f[0], z[0], update));
    z[2 * hidden] = d_candidate;
    this->dh[i] = d_h * update;
    if (linear) {
      const A gate = Activate(f[0], z[hidden]);
      z[hidden] = this->ClippedGradient(z[hidden], d_candidate * *ResetOf(s, at) * Slope(f[0], z[hidden], gate));
      *ResetOf(s, at) = d_candidate * gate;
    }
  }

  // The reset gate, once the gradient of its product with the state is known. Not used if `linear`.
  GRADLOOM_DEVICE void ResetBackward(int64_t s, int64_t i) const {
    const Cell at = this->n.CellOf(i);
    if (!this->n.Active(s, at.b)) return;
    const Activation& f = this->f.of[at.d][0];
    A* const z = ZOf(s, at) + this->n.hidden;
    const A gate = Activate(f, *z);
    this->dh[i] += d_reset_state[i] * gate;
    *z = this->ClippedGradient(*z, d_reset_state[i] * this->h[this->StateOf(s, at)] * Slope(f, *z, gate));
  }
};

// The product with the candidate's rows of R, plus bias, if it precedes the reset gate.
template <typename T>
void LinearCandidate(const Gru<T>& gru, int64_t s, cudaStream_t stream) {
  using A = Arithmetic<T>;
  const Sequences n = gru.n;
  const T* const bias = gru.bias;
  A* const to = gru.reset + s * n.batch * n.hidden;
  const Matrix<A, T> r{gru.r + n.r_at(0, recurrent::kCandidateGate), n.width() * n.hidden, 1, n.hidden};
  TiledProduct<A, 2, Contiguous::kDepth, Contiguous::kDepth>(
      {n.directions, n.batch, n.hidden, n.hidden}, stream, StatesFrom(gru, s), r,
      GRADLOOM_ON_DEVICE(int64_t d, int64_t b, int64_t j, A value) {
        if (bias != nullptr) value += static_cast<A>(bias[n.r_bias_at(d, recurrent::kCandidateGate) + j]);
        to[(d * n.rows() + b) * n.hidden + j] = value;
      });
}

template <typename T>
void GruStep(const Gru<T>& gru, int64_t s, cudaStream_t stream) {
  const Sequences& n = gru.n;
  if (gru.linear) {
    LinearCandidate(gru, s, stream);
  } else {
    ForEachElement(
        n.all_cells(), stream, GRADLOOM_ON_DEVICE(int64_t i) { gru.Reset(s, i); });
    AddRecurrent(gru, s, StepOf(n, gru.reset, s, n.hidden), 2 * n.hidden, n.hidden, stream);
  }
  ForEachElement(
      n.all_cells(), stream, GRADLOOM_ON_DEVICE(int64_t i) { gru.GruForward(s, i); });
}

template <typename T>
void RunForward(const Gru<T>& gru, const RecurrentPlan& plan, const Launch& l) {
  const Sequences& n = gru.n;
  CheckLengths(n, plan.site, l.stream);
  LoadState(n, plan.operands.In<T>(l, recurrent::kInitialH), n.state_stride(), gru.h, l.stream);
  Project(gru, gru.linear ? 2 * n.hidden : n.width(), l.stream);
  for (int64_t s = 0; s < n.steps; ++s) {
    AddRecurrent(gru, s, StatesFrom(gru, s), 0, gru.plain_width(), l.stream);
    if (gru.gated) {
      GruStep(gru, s, l.stream);
    } else {
      ForEachElement(
          n.all_cells(), l.stream, GRADLOOM_ON_DEVICE(int64_t i) { gru.RnnForward(s, i); });
    }
  }
}

template <typename T>
void GruStepBack(const Gru<T>& gru, int64_t s, cudaStream_t stream) {
  const Sequences& n = gru.n;
  ForEachElement(
      n.all_cells(), stream, GRADLOOM_ON_DEVICE(int64_t i) { gru.GruBackward(s, i); });
  if (gru.linear) {
    AddRecurrentGradient(gru, StepOf(n, gru.reset, s, n.hidden), 2 * n.hidden, n.hidden, gru.dh, stream);
  } else {
    AddRecurrentGradient(gru, StepOf(n, gru.z + 2 * n.hidden, s, n.width()), 2 * n.hidden, n.hidden, gru.d_reset_state, stream);
    ForEachElement(
        n.all_cells(), stream, GRADLOOM_ON_DEVICE(int64_t i) { gru.ResetBackward(s, i); });
  }
}

template <typename T>
void RunBackward(const Gru<T>& gru, cudaStream_t stream) {
  const Sequences& n = gru.n;
  for (int64_t s = n.steps - 1; s >= 0; --s) {
    if (gru.gated) {
      GruStepBack(gru, s, stream);
    } else {
      ForEachElement(
          n.all_cells(), stream, GRADLOOM_ON_DEVICE(int64_t i) { gru.RnnBackward(s, i); });
    }
    AddRecurrentGradient(gru, StepOf(n, gru.z, s, n.width()), 0, gru.plain_width(), gru.dh, stream);
  }
}

// The gradient of the biases. A linear candidate's recurrent bias has a gradient of its own.
template <typename T>
void BiasGradient(const Gru<T>& gru, T* db, cudaStream_t stream) {
  using A = Arithmetic<T>;
  if (db == nullptr) return;
  const Sequences& n = gru.n;
  const int64_t width = n.width(), hidden = n.hidden;
  const Matrix<A, A> dz{gru.z, n.rows() * width, width, 1}, dr{gru.reset, n.rows() * hidden, hidden, 1};
  SumRows(
      n, width, dz, gru.sums, stream,
      GRADLOOM_ON_DEVICE(int64_t d, int64_t j, A sum) { db[n.w_bias_at(d) + j] = db[n.r_bias_at(d) + j] = static_cast<T>(sum); });
  if (!gru.linear) return;
  SumRows(
      n, hidden, dr, gru.sums, stream,
      GRADLOOM_ON_DEVICE(int64_t d, int64_t j, A sum) { db[n.r_bias_at(d, recurrent::kCandidateGate) + j] = static_cast<T>(sum); });
}

template <typename T>
void WeightGradient(const Gru<T>& gru, T* dr, cudaStream_t stream) {
  const Sequences& n = gru.n;
  const int64_t plain = gru.plain_width();
  RecurrentWeightGradient(gru, Transposed(n, gru.z, n.width()), StatesFrom(gru, 0), 0, plain, dr, stream);
  if (!gru.gated) return;
  if (gru.linear) {
    RecurrentWeightGradient(gru, Transposed(n, gru.reset, n.hidden), StatesFrom(gru, 0), plain, n.hidden, dr, stream);
  } else {
    RecurrentWeightGradient(gru, Transposed(n, gru.z + plain, n.width()), StepOf(n, gru.reset, 0, n.hidden), plain, n.hidden, dr, stream);
  }
}

RecurrentPlan PlanOf(const KernelCall& call, bool gated, const KernelSite& site) {
  return gated ? RecurrentPlan(call, {"Sigmoid", "Tanh"}, site) : RecurrentPlan(call, {"Tanh"}, site);
}

std::unique_ptr<Kernel> MakeForward(bool gated, const KernelCall& call, const KernelSite& site) {
  const bool linear = call.attributes.Int("linear_before_reset", 0) != 0;
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([gated, linear, plan = PlanOf(call, gated, site)](const Launch& l) {
      Gru<T> gru(plan, gated, linear, l);
      gru.y = plan.operands.Out<T>(l, 0);
      RunForward(gru, plan, l);
      StoreLastState(gru, gru.h, plan.operands.Out<T>(l, 1), l.stream);
    });
  });
}

// Inputs: the six of GRU or RNN, then the gradients of Y and Y_h.
std::unique_ptr<Kernel> MakeGradient(bool gated, const KernelCall& call, const KernelSite& site) {
  const bool linear = call.attributes.Int("linear_before_reset", 0) != 0;
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([gated, linear, plan = PlanOf(call, gated, site), wanted = WantedOutputs(call)](const Launch& l) {
      Gru<T> gru(plan, gated, linear, l);
      const Sequences& n = gru.n;
      const int64_t stride = n.batch * n.hidden;
      RunForward(gru, plan, l);
      gru.dy = l.In<T>(6);
      LoadState(n, l.In<T>(7), stride, gru.dh, l.stream);
      RunBackward(gru, l.stream);
      InputGradients(gru, wanted.Of<T>(l, recurrent::kX), wanted.Of<T>(l, recurrent::kW), l.stream);
      WeightGradient(gru, wanted.Of<T>(l, recurrent::kR), l.stream);
      BiasGradient(gru, wanted.Of<T>(l, recurrent::kB), l.stream);
      StoreState(n, gru.dh, stride, wanted.Of<T>(l, recurrent::kInitialH), l.stream);
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> MakeGru(const KernelCall& call, const KernelSite& site) { return MakeForward(true, call, site); }
std::unique_ptr<Kernel> MakeGruGrad(const KernelCall& call, const KernelSite& site) { return MakeGradient(true, call, site); }
std::unique_ptr<Kernel> MakeRnn(const KernelCall& call, const KernelSite& site) { return MakeForward(false, call, site); }
std::unique_ptr<Kernel> MakeRnnGrad(const KernelCall& call, const KernelSite& site) { return MakeGradient(false, call, site); }

}  // namespace gradloom::cuda
