// The parts common to LSTM, GRU and RNN. All intermediate values are ordered by the steps of the sequences, so that the cells need not
// handle layouts, reversal or unequal lengths; both directions process a step together. See kernels/reference/recurrent.h.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "kernels/cuda/operands.cuh"
#include "kernels/cuda/rows/recurrent_scratch.h"
#include "kernels/cuda/tiled_product.cuh"
#include "kernels/reference/recurrent.h"

namespace gradloom::cuda {

// The layout of a call, and the lengths of its sequences.
struct Sequences : RecurrentLayout {
  const int32_t* lengths = nullptr;  // null: all have `steps` steps

  constexpr int64_t all_cells() const { return directions * cells(); }
  // For the states before and after all steps: elements from one direction to the next.
  constexpr int64_t state_stride() const { return (rows() + batch) * hidden; }

  // Hidden unit j of sequence b in direction d.
  struct Cell {
    int64_t d, b, j;
  };
  GRADLOOM_DEVICE Cell CellOf(int64_t i) const {
    const Quotient unit = Divide(i, hidden), sequence = Divide(unit.quotient, batch);
    return {sequence.quotient, sequence.rest, unit.rest};
  }
  // The time and the sequence of a row of X.
  struct RowPlace {
    int64_t t, b;
  };
  GRADLOOM_DEVICE RowPlace PlaceOf(int64_t row) const {
    const Quotient line = Divide(row, batch_first ? steps : batch);
    return batch_first ? RowPlace{line.rest, line.quotient} : RowPlace{line.quotient, line.rest};
  }

  GRADLOOM_DEVICE int64_t Length(int64_t b) const {
    if (lengths == nullptr) return steps;
    const int64_t length = lengths[b];
    return length < 0 ? 0 : length > steps ? steps : length;
  }
  GRADLOOM_DEVICE bool Active(int64_t s, int64_t b) const { return s < Length(b); }
  // The time of step s; its own inverse. Steps past the end of a sequence keep their number.
  GRADLOOM_DEVICE int64_t Time(int64_t d, int64_t s, int64_t b) const {
    const int64_t length = Length(b);
    return s < length ? time(d, s, length) : s;
  }
  // The element of Y that step s makes.
  GRADLOOM_DEVICE int64_t YAt(int64_t s, const Cell& at) const { return y_at(Time(at.d, s, at.b), at.d, at.b) + at.j; }
  // The element of a state.
  GRADLOOM_DEVICE int64_t StateAt(const Cell& at) const { return state_at(at.d, at.b) + at.j; }
};

// With sequences of full length.
inline Sequences SequencesOf(const RecurrentLayout& layout) { return {layout}; }

// The activations of both directions.
struct ActivationTable {
  Activation of[2][3];
};

// Everything that does not change between runs.
struct RecurrentPlan {
  OperandCounts operands;
  Sequences n;
  RecurrentScratch at;
  ActivationTable f;
  double clip;
  KernelSite site;

  RecurrentPlan(const KernelCall& call, const std::vector<std::string>& activations, const KernelSite& where)
      : operands(call), n(SequencesOf(RecurrentExtents(call))), at(call), clip(call.attributes.Float("clip", 0)), site(where) {
    for (int64_t d = 0; d < n.directions; ++d) {
      const std::vector<Activation> all = ActivationsOf(call, d, activations);
      std::copy(all.begin(), all.end(), f.of[d]);
    }
  }
};

// The operands of a run that LSTM, GRU and RNN have in common.
template <typename T>
struct Recurrence {
  using A = Arithmetic<T>;

  Sequences n;
  ActivationTable f;
  A clip;  // 0: no clip
  const T *x, *w, *r, *bias;
  A *z, *h;  // see RecurrentScratch
  A* dh;
  T* y = nullptr;         // forward
  const T* dy = nullptr;  // backward

  Recurrence(const RecurrentPlan& plan, const Launch& l)
      : n(plan.n),
        f(plan.f),
        clip(static_cast<A>(plan.clip)),
        x(l.In<T>(recurrent::kX)),
        w(l.In<T>(recurrent::kW)),
        r(l.In<T>(recurrent::kR)),
        bias(plan.operands.In<T>(l, recurrent::kB)) {
    n.lengths = plan.operands.In<int32_t>(l, recurrent::kLengths);
    A* const scratch = static_cast<A*>(l.scratch);
    z = scratch + plan.at.z;
    h = scratch + plan.at.h;
    dh = scratch + plan.at.dh;
  }

  GRADLOOM_DEVICE int64_t RowOf(int64_t s, const Sequences::Cell& at) const { return at.d * n.rows() + s * n.batch + at.b; }
  // The state before step s; the state after it is batch * hidden elements further.
  GRADLOOM_DEVICE int64_t StateOf(int64_t s, const Sequences::Cell& at) const {
    return at.d * n.state_stride() + (s * n.batch + at.b) * n.hidden + at.j;
  }
  GRADLOOM_DEVICE T* YOf(int64_t s, const Sequences::Cell& at) const { return y + n.YAt(s, at); }
  // The gradient of the state after a step within the sequence.
  GRADLOOM_DEVICE A Upstream(int64_t s, const Sequences::Cell& at, int64_t i) const {
    return dh[i] + (dy == nullptr ? A(0) : static_cast<A>(dy[n.YAt(s, at)]));
  }

  GRADLOOM_DEVICE A Clipped(A value) const { return clip <= 0 ? value : value < -clip ? -clip : value > clip ? clip : value; }
  // `gradient`, or 0 if the clip changed the pre-activation `value`.
  GRADLOOM_DEVICE A ClippedGradient(A value, A gradient) const { return clip <= 0 || ::fabs(value) < clip ? gradient : A(0); }
};

// Reports sequence lengths that are out of range.
inline void CheckLengths(const Sequences& n, const KernelSite& site, cudaStream_t stream) {
  if (n.lengths == nullptr) return;
  DataFault* const fault = site.fault;
  const int id = site.id;
  ForEachElement(
      n.batch, stream, GRADLOOM_ON_DEVICE(int64_t b) {
        if (n.lengths[b] < 0 || n.lengths[b] > n.steps) Report(fault, id, kLengthOutOfRange, n.lengths[b], n.steps);
      });
}

// Loads a state operand, or zeros if it is absent, as [batch, hidden] per direction, with `stride` elements from one direction to the next.
template <typename T>
void LoadState(const Sequences& n, const T* from, int64_t stride, Arithmetic<T>* to, cudaStream_t stream) {
  ForEachElement(
      n.all_cells(), stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Sequences::Cell at = n.CellOf(i);
        to[at.d * stride + at.b * n.hidden + at.j] = from == nullptr ? Arithmetic<T>(0) : static_cast<Arithmetic<T>>(from[n.StateAt(at)]);
      });
}

template <typename T>
void StoreState(const Sequences& n, const Arithmetic<T>* from, int64_t stride, T* to, cudaStream_t stream) {
  if (to == nullptr) return;
  ForEachElement(
      n.all_cells(), stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Sequences::Cell at = n.CellOf(i);
        to[n.StateAt(at)] = static_cast<T>(from[at.d * stride + at.b * n.hidden + at.j]);
      });
}

// Stores the state after all steps.
template <typename T>
void StoreLastState(const Recurrence<T>& c, const Arithmetic<T>* states, T* to, cudaStream_t stream) {
  StoreState(c.n, states + c.n.rows() * c.n.hidden, c.n.state_stride(), to, stream);
}

// X by the steps of a direction; zeros past the ends of sequences.
template <typename T>
struct StepsOfX {
  Sequences n;
  const T* x;

  GRADLOOM_DEVICE Arithmetic<T> operator()(int64_t d, int64_t row, int64_t j) const {
    const Quotient step = Divide(row, n.batch);
    if (!n.Active(step.quotient, step.rest)) return 0;
    return static_cast<Arithmetic<T>>(x[n.x_at(n.Time(d, step.quotient, step.rest), step.rest) + j]);
  }
};

// The rows of step s in all directions, with `width` elements each.
template <typename A>
Matrix<A, A> StepOf(const Sequences& n, const A* from, int64_t s, int64_t width) {
  return {from + s * n.batch * width, n.rows() * width, width, 1};
}

// The states before steps s, s + 1, ...
template <typename T>
Matrix<Arithmetic<T>, Arithmetic<T>> StatesFrom(const Recurrence<T>& c, int64_t s) {
  return {c.h + s * c.n.batch * c.n.hidden, c.n.state_stride(), c.n.hidden, 1};
}

// The rows of all steps, with `width` elements each, transposed.
template <typename A>
Matrix<A, A> Transposed(const Sequences& n, const A* from, int64_t width) {
  return {from, n.rows() * width, 1, width};
}

// z = X W^T plus the biases; the recurrent bias only in the first `recurrent` columns.
template <typename T>
void Project(const Recurrence<T>& c, int64_t recurrent, cudaStream_t stream) {
  using A = Arithmetic<T>;
  const Sequences n = c.n;
  A* const z = c.z;
  const T* const bias = c.bias;
  const Matrix<A, T> w{c.w, n.width() * n.input, 1, n.input};
  TiledProduct<A, 4, Contiguous::kDepth, Contiguous::kDepth>(
      {n.directions, n.rows(), n.width(), n.input}, stream, StepsOfX<T>{n, c.x}, w,
      GRADLOOM_ON_DEVICE(int64_t d, int64_t row, int64_t j, A value) {
        if (bias != nullptr) {
          value += static_cast<A>(bias[n.w_bias_at(d) + j]);
          if (j < recurrent) value += static_cast<A>(bias[n.r_bias_at(d) + j]);
        }
        z[(d * n.rows() + row) * n.width() + j] = value;
      });
}

// The pre-activations of step s += a R^T, for rows [first, first + count) of R.
template <typename T>
void AddRecurrent(const Recurrence<T>& c, int64_t s, const Matrix<Arithmetic<T>, Arithmetic<T>>& a, int64_t first, int64_t count,
                  cudaStream_t stream) {
  using A = Arithmetic<T>;
  const Sequences n = c.n;
  A* const z = c.z + s * n.batch * n.width() + first;
  const Matrix<A, T> r{c.r + first * n.hidden, n.width() * n.hidden, 1, n.hidden};
  TiledProduct<A, 2, Contiguous::kDepth, Contiguous::kDepth>(
      {n.directions, n.batch, count, n.hidden}, stream, a, r,
      GRADLOOM_ON_DEVICE(int64_t d, int64_t b, int64_t j, A value) { z[(d * n.rows() + b) * n.width() + j] += value; });
}

// to [directions, batch, hidden] += dz R, for rows [first, first + count) of R.
template <typename T, typename Load>
void AddRecurrentGradient(const Recurrence<T>& c, const Load& dz, int64_t first, int64_t count, Arithmetic<T>* to, cudaStream_t stream) {
  using A = Arithmetic<T>;
  const Sequences n = c.n;
  const Matrix<A, T> r{c.r + first * n.hidden, n.width() * n.hidden, n.hidden, 1};
  TiledProduct<A, 2, Contiguous::kDepth, Contiguous::kRow>(
      {n.directions, n.batch, n.hidden, count}, stream, dz, r,
      GRADLOOM_ON_DEVICE(int64_t d, int64_t b, int64_t j, A value) { to[(d * n.batch + b) * n.hidden + j] += value; });
}

// Rows [first, first + count) of the gradient of R: dz^T, [count, steps * batch], times the states [steps * batch, hidden] that these rows
// of R were multiplied by.
template <typename T, typename Load>
void RecurrentWeightGradient(const Recurrence<T>& c, const Load& dz, const Matrix<Arithmetic<T>, Arithmetic<T>>& states, int64_t first,
                             int64_t count, T* dr, cudaStream_t stream) {
  using A = Arithmetic<T>;
  if (dr == nullptr) return;
  const Sequences n = c.n;
  TiledProduct<A, 4, Contiguous::kRow, Contiguous::kRow>(
      {n.directions, count, n.hidden, n.rows()}, stream, dz, states,
      GRADLOOM_ON_DEVICE(int64_t d, int64_t i, int64_t j, A value) { dr[n.r_at(d) + (first + i) * n.hidden + j] = static_cast<T>(value); });
}

// The gradient of the pre-activations by time, the directions side by side.
template <typename A>
struct TimesOfGradient {
  Sequences n;
  const A* dz;

  GRADLOOM_DEVICE A operator()(int64_t, int64_t row, int64_t column) const {
    const Quotient time = Divide(row, n.batch), gate = Divide(column, n.width());
    const int64_t b = time.rest, d = gate.quotient;
    if (!n.Active(time.quotient, b)) return 0;
    return dz[(d * n.rows() + n.Time(d, time.quotient, b) * n.batch + b) * n.width() + gate.rest];
  }
};

// Computes the gradients of X and W from those of the pre-activations, which are in c.z.
template <typename T>
void InputGradients(const Recurrence<T>& c, T* dx, T* dw, cudaStream_t stream) {
  using A = Arithmetic<T>;
  const Sequences n = c.n;
  if (dx != nullptr) {
    const Matrix<A, T> w{c.w, 0, n.input, 1};
    TiledProduct<A, 4, Contiguous::kDepth, Contiguous::kRow>(
        {1, n.rows(), n.input, n.directions * n.width()}, stream, TimesOfGradient<A>{n, c.z}, w,
        GRADLOOM_ON_DEVICE(int64_t, int64_t row, int64_t j, A value) {
          const Quotient time = Divide(row, n.batch);
          dx[n.x_at(time.quotient, time.rest) + j] = static_cast<T>(value);
        });
  }
  if (dw != nullptr) {
    TiledProduct<A, 4, Contiguous::kRow, Contiguous::kRow>(
        {n.directions, n.width(), n.input, n.rows()}, stream, Transposed(n, c.z, n.width()), StepsOfX<T>{n, c.x},
        GRADLOOM_ON_DEVICE(int64_t d, int64_t i, int64_t j, A value) { dw[n.w_at(d) + i * n.input + j] = static_cast<T>(value); });
  }
}

// Calls store(direction, column, sum) with the sum over all rows of load(direction, row, column), first within parts of the rows, then over
// the parts. `sums` has kRecurrentSumParts * directions * columns elements.
template <typename A, typename Load, typename Store>
void SumRows(const Sequences& n, int64_t columns, const Load& load, A* sums, cudaStream_t stream, const Store& store) {
  const int64_t part_rows = (n.rows() + kRecurrentSumParts - 1) / kRecurrentSumParts, all = n.directions * columns;
  ForEachElement(
      kRecurrentSumParts * all, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient part = Divide(i, all), direction = Divide(part.rest, columns);
        const int64_t first = part.quotient * part_rows, last = first + part_rows < n.rows() ? first + part_rows : n.rows();
        A sum = 0;
        for (int64_t row = first; row < last; ++row) sum += load(direction.quotient, row, direction.rest);
        sums[i] = sum;
      });
  ForEachElement(
      all, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        A sum = 0;
        for (int64_t part = 0; part < kRecurrentSumParts; ++part) sum += sums[part * all + i];
        const Quotient direction = Divide(i, columns);
        store(direction.quotient, direction.rest, sum);
      });
}

// Sums term(direction, row, column), the gradient of LSTM's peepholes [directions, 3 * hidden], into dp, unless dp is null.
template <typename T, typename Term>
void PeepholeGradient(const Sequences& n, const Term& term, Arithmetic<T>* sums, T* dp, cudaStream_t stream) {
  if (dp == nullptr) return;
  const int64_t columns = recurrent::kPeepholes * n.hidden;
  SumRows(
      n, columns, term, sums, stream,
      GRADLOOM_ON_DEVICE(int64_t d, int64_t j, Arithmetic<T> sum) { dp[n.peephole_at(d) + j] = static_cast<T>(sum); });
}

// GRU and RNN, defined in recurrent_gru.cu.
std::unique_ptr<Kernel> MakeGru(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeGruGrad(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeRnn(const KernelCall& call, const KernelSite& site);
std::unique_ptr<Kernel> MakeRnnGrad(const KernelCall& call, const KernelSite& site);

}  // namespace gradloom::cuda
