// LSTM and its gradient. The gradient recomputes the forward pass, as the reference does: the graph keeps only X, the weights and the
// initial states.
#include "kernels/cuda/recurrent.cuh"

namespace gradloom::cuda {
namespace {

template <typename T>
struct Lstm : Recurrence<T> {
  using typename Recurrence<T>::A;
  using Cell = Sequences::Cell;

  bool coupled;       // attribute input_forget: f = 1 - i
  const T* peephole;  // [directions, 3, hidden], or null
  A *c, *dc, *sums;

  Lstm(const RecurrentPlan& plan, bool couples, const Launch& l)
      : Recurrence<T>(plan, l), coupled(couples), peephole(plan.operands.In<T>(l, recurrent::kPeephole)) {
    A* const scratch = static_cast<A*>(l.scratch);
    c = scratch + plan.at.c;
    dc = scratch + plan.at.dc;
    sums = scratch + plan.at.sums;
  }

  GRADLOOM_DEVICE A Peephole(const Cell& at, int64_t gate) const {
    return peephole == nullptr ? A(0) : static_cast<A>(peephole[this->n.peephole_at(at.d, gate) + at.j]);
  }

  // Step s of cell i, after the product with R.
  GRADLOOM_DEVICE void Forward(int64_t s, int64_t i) const {
    const Cell at = this->n.CellOf(i);
    const int64_t hidden = this->n.hidden, before = this->StateOf(s, at), after = before + this->n.batch * hidden;
    const bool active = this->n.Active(s, at.b);
    A c1 = c[before], h1 = this->h[before];
    if (active) {
      const Activation* const f = this->f.of[at.d];
      A* const z = this->z + this->RowOf(s, at) * this->n.width() + at.j;
      const A zi = this->Clipped(z[0] + Peephole(at, recurrent::kInputGate) * c1),
              zf = this->Clipped(z[2 * hidden] + Peephole(at, recurrent::kForgetGate) * c1);
      const A zc = this->Clipped(z[3 * hidden]);
      const A in = Activate(f[0], zi), forget = coupled ? 1 - in : Activate(f[0], zf);
      c1 = forget * c1 + in * Activate(f[1], zc);
      const A zo = this->Clipped(z[hidden] + Peephole(at, recurrent::kOutputGate) * c1);
      h1 = Activate(f[0], zo) * Activate(f[2], c1);
      z[0] = zi;
      z[hidden] = zo;
      z[2 * hidden] = zf;
      z[3 * hidden] = zc;
    }
    c[after] = c1;
    this->h[after] = h1;
    if (this->y != nullptr) *this->YOf(s, at) = static_cast<T>(active ? h1 : A(0));
  }

  // Step s backward. On entry, dh and dc are the gradients of the states after the step, on exit of those before it; the contribution to dh
  // through R is added later. The pre-activations are overwritten by their gradients.
  GRADLOOM_DEVICE void Backward(int64_t s, int64_t i) const {
    const Cell at = this->n.CellOf(i);
    const int64_t hidden = this->n.hidden, before = this->StateOf(s, at);
    A* const z = this->z + this->RowOf(s, at) * this->n.width() + at.j;
    if (!this->n.Active(s, at.b)) {
      for (int64_t gate = 0; gate < this->n.gates; ++gate) z[gate * hidden] = 0;
      return;
    }
    const Activation* const f = this->f.of[at.d];
    const A zi = z[0], zo = z[hidden], zf = z[2 * hidden], zc = z[3 * hidden];
    const A in = Activate(f[0], zi), out = Activate(f[0], zo), forget = coupled ? 1 - in : Activate(f[0], zf);
    const A candidate = Activate(f[1], zc);
    const A c0 = c[before], c1 = c[before + this->n.batch * hidden], squashed = Activate(f[2], c1);
    const A d_h = this->Upstream(s, at, i);
    const A d_out = this->ClippedGradient(zo, d_h * squashed * Slope(f[0], zo, out));
    const A d_cell = dc[i] + d_h * out * Slope(f[2], c1, squashed) + d_out * Peephole(at, recurrent::kOutputGate);
    const A d_in = this->ClippedGradient(zi, d_cell * (coupled ? candidate - c0 : candidate) * Slope(f[0], zi, in));
    const A d_forget = coupled ? A(0) : this->ClippedGradient(zf, d_cell * c0 * Slope(f[0], zf, forget));
    z[0] = d_in;
    z[hidden] = d_out;
    z[2 * hidden] = d_forget;
    z[3 * hidden] = this->ClippedGradient(zc, d_cell * in * Slope(f[1], zc, candidate));
    dc[i] = d_cell * forget + d_in * Peephole(at, recurrent::kInputGate) + d_forget * Peephole(at, recurrent::kForgetGate);
    this->dh[i] = 0;
  }
};

// The contribution of a row to the gradient of the peepholes.
template <typename T>
struct PeepholeTerm {
  Lstm<T> lstm;

  GRADLOOM_DEVICE Arithmetic<T> operator()(int64_t d, int64_t row, int64_t column) const {
    const Sequences& n = lstm.n;
    const Quotient which = Divide(column, n.hidden);
    const int64_t gate = which.quotient;
    const int64_t state = d * n.state_stride() + (row + (gate == recurrent::kOutputGate ? n.batch : 0)) * n.hidden + which.rest;
    return lstm.z[(d * n.rows() + row) * n.width() + column] * lstm.c[state];
  }
};

template <typename T>
void RunForward(const Lstm<T>& lstm, const RecurrentPlan& plan, const Launch& l) {
  const Sequences& n = lstm.n;
  CheckLengths(n, plan.site, l.stream);
  LoadState(n, plan.operands.In<T>(l, recurrent::kInitialH), n.state_stride(), lstm.h, l.stream);
  LoadState(n, plan.operands.In<T>(l, recurrent::kInitialC), n.state_stride(), lstm.c, l.stream);
  Project(lstm, n.width(), l.stream);
  for (int64_t s = 0; s < n.steps; ++s) {
    AddRecurrent(lstm, s, StatesFrom(lstm, s), 0, n.width(), l.stream);
    ForEachElement(
        n.all_cells(), l.stream, GRADLOOM_ON_DEVICE(int64_t i) { lstm.Forward(s, i); });
  }
}

template <typename T>
void RunBackward(const Lstm<T>& lstm, cudaStream_t stream) {
  const Sequences& n = lstm.n;
  for (int64_t s = n.steps - 1; s >= 0; --s) {
    ForEachElement(
        n.all_cells(), stream, GRADLOOM_ON_DEVICE(int64_t i) { lstm.Backward(s, i); });
    AddRecurrentGradient(lstm, StepOf(n, lstm.z, s, n.width()), 0, n.width(), lstm.dh, stream);
  }
}

template <typename T>
void BiasGradient(const Lstm<T>& lstm, T* db, cudaStream_t stream) {
  if (db == nullptr) return;
  const Sequences n = lstm.n;
  const int64_t width = n.width();
  const Matrix<Arithmetic<T>, Arithmetic<T>> dz{lstm.z, n.rows() * width, width, 1};
  SumRows(
      n, width, dz, lstm.sums, stream, GRADLOOM_ON_DEVICE(int64_t d, int64_t j, Arithmetic<T> sum) {
        db[n.w_bias_at(d) + j] = db[n.r_bias_at(d) + j] = static_cast<T>(sum);
      });
}

RecurrentPlan PlanOf(const KernelCall& call, const KernelSite& site) { return RecurrentPlan(call, {"Sigmoid", "Tanh", "Tanh"}, site); }

std::unique_ptr<Kernel> MakeLstm(const KernelCall& call, const KernelSite& site) {
  const bool coupled = call.attributes.Int("input_forget", 0) != 0;
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([coupled, plan = PlanOf(call, site)](const Launch& l) {
      Lstm<T> lstm(plan, coupled, l);
      lstm.y = plan.operands.Out<T>(l, 0);
      RunForward(lstm, plan, l);
      StoreLastState(lstm, lstm.h, plan.operands.Out<T>(l, 1), l.stream);
      StoreLastState(lstm, lstm.c, plan.operands.Out<T>(l, 2), l.stream);
    });
  });
}

// Inputs: the eight of LSTM, then the gradients of Y, Y_h and Y_c.
std::unique_ptr<Kernel> MakeLstmGrad(const KernelCall& call, const KernelSite& site) {
  const bool coupled = call.attributes.Int("input_forget", 0) != 0;
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([coupled, plan = PlanOf(call, site), wanted = WantedOutputs(call)](const Launch& l) {
      Lstm<T> lstm(plan, coupled, l);
      const Sequences& n = lstm.n;
      const int64_t stride = n.batch * n.hidden;
      RunForward(lstm, plan, l);
      lstm.dy = l.In<T>(8);
      LoadState(n, l.In<T>(9), stride, lstm.dh, l.stream);
      LoadState(n, l.In<T>(10), stride, lstm.dc, l.stream);
      RunBackward(lstm, l.stream);
      InputGradients(lstm, wanted.Of<T>(l, recurrent::kX), wanted.Of<T>(l, recurrent::kW), l.stream);
      RecurrentWeightGradient(lstm, Transposed(n, lstm.z, n.width()), StatesFrom(lstm, 0), 0, n.width(), wanted.Of<T>(l, recurrent::kR),
                              l.stream);
      BiasGradient(lstm, wanted.Of<T>(l, recurrent::kB), l.stream);
      StoreState(n, lstm.dh, stride, wanted.Of<T>(l, recurrent::kInitialH), l.stream);
      StoreState(n, lstm.dc, stride, wanted.Of<T>(l, recurrent::kInitialC), l.stream);
      PeepholeGradient(n, PeepholeTerm<T>{lstm}, lstm.sums, wanted.Of<T>(l, recurrent::kPeephole), l.stream);
    });
  });
}

constexpr CudaKernel kRecurrentKernels[] = {
    {"cuda.LSTM", MakeLstm}, {"cuda.gradloom.LstmGrad", MakeLstmGrad}, {"cuda.GRU", MakeGru}, {"cuda.gradloom.GruGrad", MakeGruGrad},
    {"cuda.RNN", MakeRnn},   {"cuda.gradloom.RnnGrad", MakeRnnGrad},
};

}  // namespace

std::span<const CudaKernel> RecurrentKernels() { return kRecurrentKernels; }

}  // namespace gradloom::cuda
