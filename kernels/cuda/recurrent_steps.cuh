// The cells of LSTM, GRU and RNN for recurrent_products.cu: the pointwise work between the matrix products of the steps.
#pragma once

#include <type_traits>

#include "kernels/cuda/prepared_product.h"
#include "kernels/cuda/recurrent.cuh"
#include "kernels/cuda/rows/recurrent_products.h"

namespace gradloom::cuda {

// Everything that does not change between runs.
struct StepsPlan {
  RecurrentExtents extents;
  RecurrentScratchLayout at;
  OperandCounts operands;
  WantedOutputs wanted;
  Sequences n;
  int64_t candidate_at;
  KernelSite site;
  PreparedProduct project, step, candidate, back, back_candidate, x_gradient, w_gradient, r_gradient, r_candidate_gradient;

  StepsPlan(const KernelCall& call, const KernelSite& where) : StepsPlan(call, RecurrentProducts(call), where) {}

 private:
  StepsPlan(const KernelCall& call, const RecurrentProducts& products, const KernelSite& where)
      : extents(call),
        at(call),
        operands(call),
        wanted(call),
        n(SequencesOf(extents)),
        candidate_at(products.candidate_at),
        site(where),
        project(products.project, call, where),
        step(products.step, call, where),
        candidate(products.candidate, call, where),
        back(products.back, call, where),
        back_candidate(products.back_candidate, call, where),
        x_gradient(products.x_gradient, call, where),
        w_gradient(products.w_gradient, call, where),
        r_gradient(products.r_gradient, call, where),
        r_candidate_gradient(products.r_candidate_gradient, call, where) {}
};

// The operands of a run, and the cells. Rows of X, Y and `kept` are ordered by time, those of `before` and `dr` by step.
template <typename T>
struct Steps {
  using A = Arithmetic<T>;

  Sequences n;
  int64_t gates, kept_row;
  bool one_gradient, linear, relu;
  const T *x, *w, *r, *bias, *initial_h, *initial_c, *peephole;
  A* kept;
  T* y;  // null: not wanted
  T *last_h = nullptr, *last_c = nullptr;
  T *state, *reset;
  A *wide_state, *step;
  const T* dy = nullptr;
  T *before, *reset_before, *dz, *dr;
  A *dh, *dc, *d_reset_state, *sums;
  void* workspace;

  template <typename U>
  static U* At(const Launch& l, int64_t bytes) {
    return reinterpret_cast<U*>(static_cast<char*>(l.scratch) + bytes);
  }

  Steps(const StepsPlan& plan, const Launch& l)
      : n(plan.n),
        gates(plan.extents.gates),
        kept_row(plan.extents.kept * plan.n.hidden),
        one_gradient(HasOneGradient(plan.extents)),
        linear(plan.extents.linear),
        relu(plan.extents.relu),
        x(l.In<T>(recurrent::kX)),
        w(l.In<T>(recurrent::kW)),
        r(l.In<T>(recurrent::kR)),
        bias(plan.operands.template In<T>(l, recurrent::kB)),
        initial_h(plan.operands.template In<T>(l, recurrent::kInitialH)),
        initial_c(gates == 4 ? plan.operands.template In<T>(l, recurrent::kInitialC) : nullptr),
        peephole(gates == 4 ? plan.operands.template In<T>(l, recurrent::kPeephole) : nullptr),
        kept(At<A>(l, plan.at.kept)),
        y(At<T>(l, plan.at.y)),
        state(At<T>(l, plan.at.state)),
        reset(At<T>(l, plan.at.reset)),
        wide_state(std::is_same_v<T, A> ? At<A>(l, plan.at.state) : At<A>(l, plan.at.wide_state)),
        step(At<A>(l, plan.at.step)),
        before(At<T>(l, plan.at.before)),
        reset_before(At<T>(l, plan.at.reset_before)),
        dz(At<T>(l, plan.at.dz)),
        dr(one_gradient ? dz : At<T>(l, plan.at.dr)),
        dh(At<A>(l, plan.at.dh)),
        dc(At<A>(l, plan.at.dc)),
        d_reset_state(At<A>(l, plan.at.d_reset_state)),
        sums(At<A>(l, plan.at.sums)),
        workspace(At<char>(l, plan.at.workspace)) {
    n.lengths = plan.operands.template In<int32_t>(l, recurrent::kLengths);
  }

  // The row of step s.
  GRADLOOM_DEVICE int64_t RowOf(int64_t s, const Sequences::Cell& at) const { return n.row(n.Time(at.d, s, at.b), at.b); }
  // The position of step s in arrays ordered by step. If dz and dr are one array, it is the time.
  constexpr int64_t Place(int64_t s) const { return one_gradient ? n.time(0, s, n.steps) : s; }
  GRADLOOM_DEVICE int64_t OrderedRow(int64_t s, const Sequences::Cell& at) const { return at.d * n.rows() + Place(s) * n.batch + at.b; }

  GRADLOOM_DEVICE A* Kept(const Sequences::Cell& at, int64_t row) const { return kept + (at.d * n.rows() + row) * kept_row + at.j; }
  GRADLOOM_DEVICE T* YOf(int64_t s, const Sequences::Cell& at) const { return y + n.YAt(s, at); }
  GRADLOOM_DEVICE T* Dz(const Sequences::Cell& at, int64_t row) const { return dz + (row * n.directions + at.d) * n.width() + at.j; }
  GRADLOOM_DEVICE T* Dr(int64_t s, const Sequences::Cell& at) const { return dr + OrderedRow(s, at) * n.width() + at.j; }
  GRADLOOM_DEVICE A Initial(const T* from, const Sequences::Cell& at) const {
    return from == nullptr ? A(0) : static_cast<A>(from[n.StateAt(at)]);
  }
  GRADLOOM_DEVICE A InputBias(const Sequences::Cell& at, int64_t gate) const {
    return bias == nullptr ? A(0) : static_cast<A>(bias[n.w_bias_at(at.d, gate) + at.j]);
  }
  GRADLOOM_DEVICE A RecurrentBias(const Sequences::Cell& at, int64_t gate) const {
    return bias == nullptr ? A(0) : static_cast<A>(bias[n.r_bias_at(at.d, gate) + at.j]);
  }
  // A gate's part of a step's product, which has `count` gates; `product` is null if the state is 0.
  GRADLOOM_DEVICE A Stepped(const A* product, const Sequences::Cell& at, int64_t gate, int64_t count) const {
    return product == nullptr ? A(0) : product[((at.d * n.batch + at.b) * count + gate) * n.hidden + at.j];
  }
  // The pre-activation of a gate with both biases.
  GRADLOOM_DEVICE A Argument(const A* from, const A* product, const Sequences::Cell& at, int64_t gate, int64_t count) const {
    return from[gate * n.hidden] + Stepped(product, at, gate, count) + InputBias(at, gate) + RecurrentBias(at, gate);
  }
  GRADLOOM_DEVICE A Peephole(const Sequences::Cell& at, int64_t gate) const {
    return peephole == nullptr ? A(0) : static_cast<A>(peephole[n.peephole_at(at.d, gate) + at.j]);
  }
  // LSTM's cell state before step s, for a sequence that has this step.
  GRADLOOM_DEVICE A CellBefore(int64_t s, const Sequences::Cell& at) const {
    return s == 0 ? Initial(initial_c, at) : Kept(at, RowOf(s - 1, at))[gates * n.hidden];
  }
  // GRU's state before step s in the forward pass.
  GRADLOOM_DEVICE A StateBefore(int64_t s, int64_t i, const Sequences::Cell& at) const {
    return s == 0 ? Initial(initial_h, at) : wide_state[i];
  }

  GRADLOOM_DEVICE void Store(T* to, const Sequences::Cell& at, T value) const {
    if (to != nullptr) to[n.StateAt(at)] = value;
  }
  // Handles a step past the end of a sequence.
  GRADLOOM_DEVICE void Skip(int64_t s, const Sequences::Cell& at) const {
    A* const to = Kept(at, RowOf(s, at));
    for (int64_t k = 0; k < kept_row; k += n.hidden) to[k] = 0;
    if (y != nullptr) *YOf(s, at) = static_cast<T>(A(0));
    if (s > 0 || n.Length(at.b) > 0) return;
    Store(last_h, at, static_cast<T>(Initial(initial_h, at)));
    if (gates == 4) Store(last_c, at, static_cast<T>(Initial(initial_c, at)));
  }
  GRADLOOM_DEVICE void Finish(int64_t s, int64_t i, const Sequences::Cell& at, A h1) const {
    const T rounded = static_cast<T>(h1);
    state[i] = rounded;
    if constexpr (!std::is_same_v<T, A>) {
      if (gates == 3) wide_state[i] = h1;
    }
    if (y != nullptr) *YOf(s, at) = rounded;
    if (s + 1 == n.Length(at.b)) Store(last_h, at, rounded);
  }

  GRADLOOM_DEVICE void LstmForward(int64_t s, int64_t i, const A* product) const {
    const Sequences::Cell at = n.CellOf(i);
    if (!n.Active(s, at.b)) return Skip(s, at);
    const int64_t hidden = n.hidden;
    A* const k = Kept(at, RowOf(s, at));
    const A c0 = CellBefore(s, at);
    const A in = Logistic(Argument(k, product, at, 0, 4) + Peephole(at, recurrent::kInputGate) * c0);
    const A forget = Logistic(Argument(k, product, at, 2, 4) + Peephole(at, recurrent::kForgetGate) * c0);
    const A cell = ::tanh(Argument(k, product, at, 3, 4));
    const A c1 = forget * c0 + in * cell;
    const A out = Logistic(Argument(k, product, at, 1, 4) + Peephole(at, recurrent::kOutputGate) * c1);
    k[0] = in;
    k[hidden] = out;
    k[2 * hidden] = forget;
    k[3 * hidden] = cell;
    k[4 * hidden] = c1;
    if (s + 1 == n.Length(at.b)) Store(last_c, at, static_cast<T>(c1));
    Finish(s, i, at, out * ::tanh(c1));
  }

  GRADLOOM_DEVICE void RnnForward(int64_t s, int64_t i, const A* product) const {
    const Sequences::Cell at = n.CellOf(i);
    if (!n.Active(s, at.b)) return Skip(s, at);
    const A z = Argument(Kept(at, RowOf(s, at)), product, at, 0, 1);
    Finish(s, i, at, relu ? (z < 0 ? A(0) : z) : ::tanh(z));
  }

  // GRU without linear_before_reset, first half: the gates, and reset gate * state, the operand of the candidate's product.
  GRADLOOM_DEVICE void GruGates(int64_t s, int64_t i, const A* product) const {
    const Sequences::Cell at = n.CellOf(i);
    if (!n.Active(s, at.b)) {
      reset[i] = static_cast<T>(A(0));
      return;
    }
    A* const k = Kept(at, RowOf(s, at));
    k[0] = Logistic(Argument(k, product, at, 0, 2));
    const A gate = Logistic(Argument(k, product, at, 1, 2));
    k[n.hidden] = gate;
    reset[i] = static_cast<T>(gate * StateBefore(s, i, at));
  }
  // Second half: `product` is the candidate's.
  GRADLOOM_DEVICE void GruCandidate(int64_t s, int64_t i, const A* product) const {
    const Sequences::Cell at = n.CellOf(i);
    if (!n.Active(s, at.b)) return Skip(s, at);
    A* const k = Kept(at, RowOf(s, at));
    const A candidate = ::tanh(k[2 * n.hidden] + Stepped(product, at, 0, 1) + InputBias(at, 2) + RecurrentBias(at, 2));
    k[2 * n.hidden] = candidate;
    Finish(s, i, at, (1 - k[0]) * candidate + k[0] * StateBefore(s, i, at));
  }
  GRADLOOM_DEVICE void LinearGruForward(int64_t s, int64_t i, const A* product) const {
    const Sequences::Cell at = n.CellOf(i);
    if (!n.Active(s, at.b)) return Skip(s, at);
    const int64_t hidden = n.hidden;
    A* const k = Kept(at, RowOf(s, at));
    const A update = Logistic(Argument(k, product, at, 0, 3)), gate = Logistic(Argument(k, product, at, 1, 3));
    const A resettable = Stepped(product, at, 2, 3) + RecurrentBias(at, 2);
    const A candidate = ::tanh(k[2 * hidden] + InputBias(at, 2) + gate * resettable);
    k[0] = update;
    k[hidden] = gate;
    k[2 * hidden] = candidate;
    k[3 * hidden] = resettable;
    Finish(s, i, at, (1 - update) * candidate + update * StateBefore(s, i, at));
  }

  // Copies the state before a step from Y or the initial state; 0 past the ends of sequences.
  GRADLOOM_DEVICE void GatherBefore(int64_t s, int64_t i) const {
    const Sequences::Cell at = n.CellOf(i);
    T value = static_cast<T>(A(0));
    if (n.Active(s, at.b)) {
      if (s > 0)
        value = *YOf(s - 1, at);
      else if (initial_h != nullptr)
        value = initial_h[n.StateAt(at)];
    }
    before[OrderedRow(s, at) * n.hidden + at.j] = value;
  }

  // On entry to a backward cell, dh and dc are the gradients of the states after step s, on exit of those before it; the contribution to dh
  // through R is added later.
  GRADLOOM_DEVICE A Upstream(int64_t s, const Sequences::Cell& at, int64_t i) const {
    return dh[i] + (dy == nullptr ? A(0) : static_cast<A>(dy[n.YAt(s, at)]));
  }
  // Sets the gradients of a gate's pre-activation and of its product with R.
  GRADLOOM_DEVICE void SetGradient(int64_t s, const Sequences::Cell& at, int64_t row, int64_t gate, A value, A of_product) const {
    Dz(at, row)[gate * n.hidden] = static_cast<T>(value);
    if (!one_gradient) Dr(s, at)[gate * n.hidden] = static_cast<T>(of_product);
  }
  GRADLOOM_DEVICE void NoGradients(int64_t s, const Sequences::Cell& at, int64_t row) const {
    for (int64_t gate = 0; gate < gates; ++gate) SetGradient(s, at, row, gate, 0, 0);
  }

  GRADLOOM_DEVICE void LstmBackward(int64_t s, int64_t i) const {
    const Sequences::Cell at = n.CellOf(i);
    const int64_t row = RowOf(s, at), hidden = n.hidden;
    if (!n.Active(s, at.b)) return NoGradients(s, at, row);
    const A* const k = Kept(at, row);
    const A in = k[0], out = k[hidden], forget = k[2 * hidden], cell = k[3 * hidden];
    const A c0 = CellBefore(s, at), squashed = ::tanh(k[4 * hidden]), d_h = Upstream(s, at, i);
    const A d_out = d_h * squashed * (out * (1 - out));
    const A d_cell = dc[i] + d_h * out * (1 - squashed * squashed) + d_out * Peephole(at, recurrent::kOutputGate);
    const A d_in = d_cell * cell * (in * (1 - in)), d_forget = d_cell * c0 * (forget * (1 - forget));
    const A d_candidate = d_cell * in * (1 - cell * cell);
    SetGradient(s, at, row, 0, d_in, d_in);
    SetGradient(s, at, row, 1, d_out, d_out);
    SetGradient(s, at, row, 2, d_forget, d_forget);
    SetGradient(s, at, row, 3, d_candidate, d_candidate);
    dc[i] = d_cell * forget + d_in * Peephole(at, recurrent::kInputGate) + d_forget * Peephole(at, recurrent::kForgetGate);
    dh[i] = 0;
  }

  GRADLOOM_DEVICE void RnnBackward(int64_t s, int64_t i) const {
    const Sequences::Cell at = n.CellOf(i);
    const int64_t row = RowOf(s, at);
    if (!n.Active(s, at.b)) return NoGradients(s, at, row);
    const A h1 = static_cast<A>(*YOf(s, at));
    const A d = Upstream(s, at, i) * (relu ? (h1 > 0 ? A(1) : A(0)) : 1 - h1 * h1);
    SetGradient(s, at, row, 0, d, d);
    dh[i] = 0;
  }

  GRADLOOM_DEVICE void GruBackward(int64_t s, int64_t i) const {
    const Sequences::Cell at = n.CellOf(i);
    const int64_t row = RowOf(s, at), hidden = n.hidden, ordered = OrderedRow(s, at) * hidden + at.j;
    if (!n.Active(s, at.b)) {
      if (!linear) reset_before[ordered] = static_cast<T>(A(0));
      return NoGradients(s, at, row);
    }
    const A* const k = Kept(at, row);
    const A update = k[0], gate = k[hidden], candidate = k[2 * hidden];
    const A d_h = Upstream(s, at, i), h0 = static_cast<A>(before[ordered]);
    const A d_candidate = d_h * (1 - update) * (1 - candidate * candidate);
    const A d_update = d_h * (h0 - candidate) * (update * (1 - update));
    SetGradient(s, at, row, 0, d_update, d_update);
    dh[i] = d_h * update;
    if (linear) {
      const A d_gate = d_candidate * k[3 * hidden] * (gate * (1 - gate));
      SetGradient(s, at, row, 1, d_gate, d_gate);
      SetGradient(s, at, row, 2, d_candidate, d_candidate * gate);
    } else {
      SetGradient(s, at, row, 2, d_candidate, d_candidate);
      reset_before[ordered] = static_cast<T>(gate * h0);
    }
  }
  // The reset gate, once the gradient of reset gate * state is in `through`.
  GRADLOOM_DEVICE void GruResetBackward(int64_t s, int64_t i) const {
    const Sequences::Cell at = n.CellOf(i);
    if (!n.Active(s, at.b)) return;
    const int64_t row = RowOf(s, at);
    const A gate = Kept(at, row)[n.hidden], h0 = static_cast<A>(before[OrderedRow(s, at) * n.hidden + at.j]);
    const A d_gate = d_reset_state[i] * h0 * (gate * (1 - gate));
    SetGradient(s, at, row, 1, d_gate, d_gate);
    dh[i] += d_reset_state[i] * gate;
  }
};

}  // namespace gradloom::cuda
