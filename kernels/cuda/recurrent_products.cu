// LSTM, GRU and RNN as matrix products by cuBLASLt: one product with W for all steps, and per step one product with R and a kernel for the
// cells. The forward pass keeps its gates, and LSTM's cell states, in float32. The gradient runs through the steps once; then the gradients
// of X, W and R are one product each. In 16-bit types the operands of products have 16 bits: the states, which are also in Y, and the
// gradients of the pre-activations are rounded for them, while sums and cells are float32.
#include "kernels/cuda/recurrent_steps.cuh"

namespace gradloom::cuda {
namespace {

using Cell = Sequences::Cell;

// The contribution of a row to the gradient of LSTM's peepholes.
template <typename T>
struct KeptPeepholeTerm {
  Steps<T> steps;

  GRADLOOM_DEVICE Arithmetic<T> operator()(int64_t d, int64_t row, int64_t column) const {
    const Sequences& n = steps.n;
    const auto [t, b] = n.PlaceOf(row);
    if (!n.Active(t, b)) return 0;
    const Quotient which = Divide(column, n.hidden);
    const int64_t gate = which.quotient;
    const Cell at{d, b, which.rest};
    const Arithmetic<T> c = gate == recurrent::kOutputGate ? steps.Kept(at, row)[4 * n.hidden] : steps.CellBefore(n.Time(d, t, b), at);
    return static_cast<Arithmetic<T>>(steps.Dz(at, row)[gate * n.hidden]) * c;
  }
};

template <typename T>
void LoadInitialState(const Steps<T>& c, cudaStream_t stream) {
  ForEachElement(
      c.n.all_cells(), stream, GRADLOOM_ON_DEVICE(int64_t i) { c.state[i] = static_cast<T>(c.Initial(c.initial_h, c.n.CellOf(i))); });
}

template <typename T>
void GruSteps(const Steps<T>& c, const StepsPlan& plan, int64_t s, const Arithmetic<T>* product, cudaStream_t stream) {
  const int64_t cells = c.n.all_cells();
  if (c.linear) {
    ForEachElement(
        cells, stream, GRADLOOM_ON_DEVICE(int64_t i) { c.LinearGruForward(s, i, product); });
    return;
  }
  ForEachElement(
      cells, stream, GRADLOOM_ON_DEVICE(int64_t i) { c.GruGates(s, i, product); });
  if (product != nullptr) plan.candidate.Run(c.reset, c.r + plan.candidate_at, c.step, c.workspace, stream);
  ForEachElement(
      cells, stream, GRADLOOM_ON_DEVICE(int64_t i) { c.GruCandidate(s, i, product); });
}

template <typename T>
void RunForward(const Steps<T>& c, const StepsPlan& plan, cudaStream_t stream) {
  const Sequences& n = c.n;
  CheckLengths(n, plan.site, stream);
  plan.project.Run(c.x, c.w, c.kept, c.workspace, stream);
  if (c.initial_h != nullptr) LoadInitialState(c, stream);
  for (int64_t s = 0; s < n.steps; ++s) {
    const bool from_zero = s == 0 && c.initial_h == nullptr;
    if (!from_zero) plan.step.Run(c.state, c.r, c.step, c.workspace, stream);
    const Arithmetic<T>* const product = from_zero ? nullptr : c.step;
    if (c.gates == 3) {
      GruSteps(c, plan, s, product, stream);
    } else if (c.gates == 4) {
      ForEachElement(
          n.all_cells(), stream, GRADLOOM_ON_DEVICE(int64_t i) { c.LstmForward(s, i, product); });
    } else {
      ForEachElement(
          n.all_cells(), stream, GRADLOOM_ON_DEVICE(int64_t i) { c.RnnForward(s, i, product); });
    }
  }
}

// Runs the steps backward. The gradient of the initial state is complete only if `initial` is set.
template <typename T>
void RunBackward(const Steps<T>& c, const StepsPlan& plan, bool initial, cudaStream_t stream) {
  const Sequences& n = c.n;
  const int64_t cells = n.all_cells();
  for (int64_t s = n.steps - 1; s >= 0; --s) {
    T* const dr = c.dr + c.Place(s) * n.batch * n.width();
    if (c.gates == 4) {
      ForEachElement(
          cells, stream, GRADLOOM_ON_DEVICE(int64_t i) { c.LstmBackward(s, i); });
    } else if (c.gates == 1) {
      ForEachElement(
          cells, stream, GRADLOOM_ON_DEVICE(int64_t i) { c.RnnBackward(s, i); });
    } else {
      ForEachElement(
          cells, stream, GRADLOOM_ON_DEVICE(int64_t i) { c.GruBackward(s, i); });
    }
    if (plan.extents.resets()) {
      plan.back_candidate.Run(dr + 2 * n.hidden, c.r + plan.candidate_at, c.d_reset_state, c.workspace, stream);
      ForEachElement(
          cells, stream, GRADLOOM_ON_DEVICE(int64_t i) { c.GruResetBackward(s, i); });
    }
    if (s > 0 || initial) plan.back.Run(dr, c.r, c.dh, c.workspace, stream);
  }
}

template <typename T>
void BiasGradient(const Steps<T>& c, T* db, cudaStream_t stream) {
  using A = Arithmetic<T>;
  if (db == nullptr) return;
  const Sequences& n = c.n;
  const int64_t width = n.width();
  const bool linear = c.linear;
  const Matrix<A, T> dz{c.dz, width, n.directions * width, 1}, dr{c.dr, n.rows() * width, width, 1};
  SumRows(
      n, width, dz, c.sums, stream, GRADLOOM_ON_DEVICE(int64_t d, int64_t j, A sum) {
        db[n.w_bias_at(d) + j] = static_cast<T>(sum);
        if (!linear) db[n.r_bias_at(d) + j] = static_cast<T>(sum);
      });
  if (!linear) return;
  SumRows(
      n, width, dr, c.sums, stream, GRADLOOM_ON_DEVICE(int64_t d, int64_t j, A sum) { db[n.r_bias_at(d) + j] = static_cast<T>(sum); });
}

// X, or a copy with zeros past the ends of sequences: the elements there may be NaN or infinite, which zero gradients would not hide.
template <typename T>
const T* XWithinLengths(const Steps<T>& c, T* copy, cudaStream_t stream) {
  if (c.n.lengths == nullptr) return c.x;
  const Sequences n = c.n;
  const T* const x = c.x;
  ForEachElement(
      n.rows() * n.input, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const auto [t, b] = n.PlaceOf(Divide(i, n.input).quotient);
        copy[i] = n.Active(t, b) ? x[i] : static_cast<T>(Arithmetic<T>(0));
      });
  return copy;
}

template <typename T>
void RunForwardCall(const StepsPlan& plan, const Launch& l) {
  const RecurrentExtents& n = plan.extents;
  Steps<T> c(plan, l);
  c.y = plan.operands.template Out<T>(l, 0);
  c.last_h = plan.operands.template Out<T>(l, 1);
  if (n.gates == 4) c.last_c = plan.operands.template Out<T>(l, 2);
  if (n.training) c.kept = l.Out<Arithmetic<T>>(n.outputs);
  RunForward(c, plan, l.stream);
}

template <typename T>
void RunGradientCall(const StepsPlan& plan, const Launch& l) {
  using A = Arithmetic<T>;
  const RecurrentExtents& extents = plan.extents;
  Steps<T> c(plan, l);
  const Sequences& n = c.n;
  const int64_t stride = n.batch * n.hidden;
  if (extents.recomputes) {
    RunForward(c, plan, l.stream);
  } else {
    c.y = const_cast<T*>(l.In<T>(extents.saved_y()));
    if (extents.gates > 1) c.kept = const_cast<A*>(l.In<A>(extents.saved_rows()));
  }
  c.dy = l.In<T>(extents.grad(0));
  const T* const d_last = l.In<T>(extents.grad(1));
  LoadState(n, d_last, stride, c.dh, l.stream);
  if (c.gates == 4) LoadState(n, l.In<T>(extents.grad(2)), stride, c.dc, l.stream);
  const int64_t cells = n.all_cells();
  ForEachElement(
      n.steps * cells, l.stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient step = Divide(i, cells);
        c.GatherBefore(step.quotient, step.rest);
      });
  T* const d_initial = plan.wanted.template Of<T>(l, recurrent::kInitialH);
  RunBackward(c, plan, d_initial != nullptr, l.stream);
  if (T* const dx = plan.wanted.template Of<T>(l, recurrent::kX)) plan.x_gradient.Run(c.dz, c.w, dx, c.workspace, l.stream);
  if (T* const dw = plan.wanted.template Of<T>(l, recurrent::kW)) {
    const T* const x = XWithinLengths(c, Steps<T>::template At<T>(l, plan.at.x), l.stream);
    plan.w_gradient.Run(c.dz, x, dw, c.workspace, l.stream);
  }
  if (T* const dr = plan.wanted.template Of<T>(l, recurrent::kR)) {
    plan.r_gradient.Run(c.dr, c.before, dr, c.workspace, l.stream);
    if (extents.resets()) plan.r_candidate_gradient.Run(c.dr + 2 * n.hidden, c.reset_before, dr + plan.candidate_at, c.workspace, l.stream);
  }
  BiasGradient(c, plan.wanted.template Of<T>(l, recurrent::kB), l.stream);
  if (d_initial != nullptr) StoreState(n, c.dh, stride, d_initial, l.stream);
  if (c.gates != 4) return;
  StoreState(n, c.dc, stride, plan.wanted.template Of<T>(l, recurrent::kInitialC), l.stream);
  PeepholeGradient(c.n, KeptPeepholeTerm<T>{c}, c.sums, plan.wanted.template Of<T>(l, recurrent::kPeephole), l.stream);
}

template <typename F>
void WithServedType(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat16: return f(std::type_identity<Half>{});
    case DType::kBfloat16: return f(std::type_identity<Bfloat16>{});
    default: return f(std::type_identity<float>{});
  }
}

std::unique_ptr<Kernel> Make(const KernelCall& call, const KernelSite& site) {
  return MakeKernel([dtype = call.inputs[0].dtype, plan = std::make_unique<const StepsPlan>(call, site)](const Launch& l) {
    WithServedType(dtype, [&]<typename T>(std::type_identity<T>) {
      plan->extents.gradient ? RunGradientCall<T>(*plan, l) : RunForwardCall<T>(*plan, l);
    });
  });
}

constexpr CudaKernel kRecurrentBlasKernels[] = {
    {"cublas.LSTM", Make}, {"cublas.gradloom.LstmTraining", Make}, {"cublas.gradloom.LstmGrad", Make},
    {"cublas.GRU", Make},  {"cublas.gradloom.GruTraining", Make},  {"cublas.gradloom.GruGrad", Make},
    {"cublas.RNN", Make},  {"cublas.gradloom.RnnGrad", Make},
};

}  // namespace

std::span<const CudaKernel> RecurrentBlasKernels() { return kRecurrentBlasKernels; }

}  // namespace gradloom::cuda
