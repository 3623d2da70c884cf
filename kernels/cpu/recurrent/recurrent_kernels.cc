// The cell-independent parts of the LSTM, GRU and RNN kernels.
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/product/product.h"
#include "kernels/cpu/recurrent/recurrent.h"
#include "kernels/cpu/recurrent/recurrent_plan.h"
#include "kernels/reference/wanted.h"
#include "runtime/base/checked.h"
#include "runtime/base/error.h"

namespace gradloom::recurrent {
namespace {

constexpr int64_t kElementsPerThread = 1 << 14;

void Barrier() {
#pragma omp barrier
}

// Calls f(tile, needs_barrier) for every tile, one thread each. If `needs_barrier`, all threads must call Barrier the same number of times.
template <typename F>
void ForEachTile(const Sizes& n, const Loops& loops, const Partition& parts, F&& f) {
  const WorkTile all{0, n.batch, 0, n.hidden};
  const int threads = parts.rows * parts.units;
  if (!kTeams || threads == 1) return f(all, false);
    // All threads of a team must pass a barrier.
#pragma omp parallel num_threads(parts.units > 1 ? threads : TeamOf(threads))
  {
    const int me = omp_get_thread_num();
    if (omp_get_num_threads() < threads) {
      if (me == 0) f(all, false);
    } else if (me < threads) {
      const int64_t r = me / parts.units, u = me % parts.units, panel = loops.matrix_panel;
      const int64_t panels = (n.hidden + panel - 1) / panel;
      f(WorkTile{n.batch * r / parts.rows, n.batch * (r + 1) / parts.rows, panels * u / parts.units * panel,
                 std::min(n.hidden, panels * (u + 1) / parts.units * panel)},
        parts.units > 1);
    }
  }
}

// The lengths of a run's sequences, or null. Throws Error(kData) if one is outside [0, steps].
const int* LengthsOf(const Sizes& n, const void* const* inputs) {
  if (!n.has_lengths) return nullptr;
  const int* lengths = static_cast<const int*>(inputs[kLengths]);
  for (int64_t b = 0; b < n.batch; ++b) {
    if (lengths[b] >= 0 && lengths[b] <= n.steps) continue;
    throw Error(ErrorCode::kData, std::string(n.forward_op()) + ": sequence " + std::to_string(b) + " has length " +
                                      std::to_string(lengths[b]) + ", there are " + std::to_string(n.steps) + " steps");
  }
  return lengths;
}

// The common base of both passes: the forward pass in one direction.
class Recurrence : public Kernel {
 protected:
  Recurrence(const KernelCall& call, const Cells& cells, const Products& products)
      : call_(call), cells_(cells), n_(call), layout_(n_, products, loops_), parts_(n_, loops_, call.threads) {}

  // The buffers of a direction, with the data that does not change during a run. The caller must set Y and the kept rows.
  DirectionBuffers BuffersOf(const void* const* inputs, char* scratch, int64_t d) const {
    const auto at = [&](int64_t place) { return reinterpret_cast<float*>(scratch + place); };
    DirectionBuffers dir{.n = n_, .loops = loops_, .direction = d, .lengths = LengthsOf(n_, inputs)};
    dir.bias = at(layout_.bias);
    dir.zeros = at(layout_.zeros);
    std::fill_n(at(layout_.zeros), n_.hidden, 0.0f);
    if (n_.inputs > kPeephole && HasInput(call_, kPeephole)) dir.peephole = In(inputs, kPeephole) + n_.peephole_at(d);
    dir.packed = at(layout_.packed);
    dir.packed_w = at(layout_.packed_w);
    dir.x = In(inputs, kX);
    dir.first_h = at(layout_.first_h);
    dir.first_c = at(layout_.first_c);
    CopyState(HasInput(call_, kInitialH) ? inputs[kInitialH] : nullptr, d, dir.first_h);
    if (n_.gates == 4) CopyState(HasInput(call_, kInitialC) ? inputs[kInitialC] : nullptr, d, dir.first_c);
    for (int i : {0, 1}) dir.states[i] = at(layout_.states[i]);
    dir.step = at(layout_.step);
    dir.reset = at(layout_.reset);
    return dir;
  }

  void Forward(const DirectionBuffers& dir, const void* const* inputs, char* scratch) {
    const int64_t hidden = n_.hidden, d = dir.direction;
    PrepareBias(HasInput(call_, kB) ? In(inputs, kB) + n_.w_bias_at(d) : nullptr, reinterpret_cast<float*>(scratch + layout_.bias));
    const float *w = In(inputs, kW) + n_.w_at(d), *r = In(inputs, kR) + n_.r_at(d);
    for (int64_t g = 0; g < n_.gates; ++g) {
      Pack(w + n_.w_at(0, g), n_.input, true, g, reinterpret_cast<float*>(scratch + layout_.packed_w));
      Pack(r + n_.r_at(0, g), hidden, true, g, reinterpret_cast<float*>(scratch + layout_.packed));
    }
    std::copy_n(dir.first_h, n_.cells(), dir.states[0]);
    const int phases = cells_.Phases(n_);
    ForEachTile(n_, loops_, parts_, [&](const WorkTile& tile, bool needs_barrier) {
      for (int64_t s = 0; s < n_.steps; ++s) {
        if (s % dir.chunk() == 0) dir.Project(tile, s);
        for (int phase = 0; phase < phases; ++phase) {
          cells_.Forward(dir, tile, s, phase);
          if (needs_barrier) Barrier();
        }
      }
    });
    ForEachPastTheEnd(dir, [&](int64_t t, int64_t b) {
      std::fill_n(dir.kept_row(t, b), n_.kept * hidden, 0.0f);
      if (dir.y != nullptr) std::fill_n(dir.y_row(t, b), hidden, 0.0f);
    });
  }

  // Packs a matrix with `hidden` columns and k rows for products over k, from gate `first` on. `transposed`: it is stored as its transpose.
  void Pack(const float* b, int64_t k, bool transposed, int64_t first, float* packed) const {
    const int64_t hidden = n_.hidden, panel = loops_.matrix_panel, panels = (hidden + panel - 1) / panel;
    packed += panels * panel * first * (transposed ? k : hidden);
    const int threads = ThreadsFor(k * hidden, kElementsPerThread, call_.threads);
    ParallelRanges(panels, 1, threads, [&](int64_t begin, int64_t end) {
      MatrixArgs args{};
      args.n = std::min(hidden, end * panel) - begin * panel;
      args.k = k;
      args.b_row = transposed ? 1 : hidden;
      args.b_col = transposed ? k : 1;
      args.b = b + begin * panel * args.b_col;
      loops_.pack_matrix(args, packed + begin * panel * k);
    });
  }

  // Calls visit(t, b) for all times past the end of a sequence.
  template <typename F>
  void ForEachPastTheEnd(const DirectionBuffers& dir, F&& visit) const {
    if (dir.lengths == nullptr) return;
    for (int64_t b = 0; b < n_.batch; ++b) {
      for (int64_t t = dir.lengths[b]; t < n_.steps; ++t) visit(t, b);
    }
  }

  // Copies a direction's part of a state operand, or zeros if it is absent; and back.
  void CopyState(const void* from, int64_t direction, float* to) const {
    if (from == nullptr) {
      std::fill_n(to, n_.cells(), 0.0f);
      return;
    }
    for (int64_t b = 0; b < n_.batch; ++b) {
      std::copy_n(static_cast<const float*>(from) + n_.state_at(direction, b), n_.hidden, to + b * n_.hidden);
    }
  }
  void WriteState(const float* state, int64_t direction, void* to) const {
    if (to == nullptr) return;
    for (int64_t b = 0; b < n_.batch; ++b) {
      std::copy_n(state + b * n_.hidden, n_.hidden, static_cast<float*>(to) + n_.state_at(direction, b));
    }
  }

  static const float* In(const void* const* inputs, size_t i) { return static_cast<const float*>(inputs[i]); }

  const Loops& loops_ = BestLoops();
  const KernelCall call_;
  const Cells& cells_;
  const Sizes n_;
  const ScratchLayout layout_;
  const Partition parts_;

 private:
  // The sum of the biases of W and R; a linear GRU needs those of its candidate separately.
  void PrepareBias(const float* both, float* bias) const {
    const int64_t width = n_.width(), hidden = n_.hidden;
    std::fill_n(bias, 4 * hidden, 0.0f);
    if (both == nullptr) return;
    const int64_t summed = n_.linear ? 2 * hidden : width;
    for (int64_t j = 0; j < summed; ++j) bias[j] = both[j] + both[width + j];
    if (!n_.linear) return;
    std::copy_n(both + summed, hidden, bias + summed);
    std::copy_n(both + width + summed, hidden, bias + width);
  }
};

// The outputs are those of the operator, and for a training form the kept values: [directions, rows of X, kept * hidden].
class ForwardKernel : public Recurrence {
 public:
  ForwardKernel(const KernelCall& call, const Cells& cells) : Recurrence(call, cells, Products(Sizes(call), call.threads)) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    char* memory = static_cast<char*>(scratch);
    const auto out = [&](size_t i) { return HasOutput(call_, i) ? static_cast<float*>(outputs[i]) : nullptr; };
    float* kept = out(n_.outputs);
    for (int64_t d = 0; d < n_.directions; ++d) {
      DirectionBuffers dir = BuffersOf(inputs, memory, d);
      dir.kept = kept != nullptr ? kept + d * n_.rows() * n_.kept * n_.hidden : reinterpret_cast<float*>(memory + layout_.kept);
      dir.y = out(0) == nullptr ? nullptr : out(0) + n_.y_at(0, d, 0);
      dir.y_time = n_.y_at(1, d, 0) - n_.y_at(0, d, 0);
      dir.y_batch = n_.y_at(0, d, 1) - n_.y_at(0, d, 0);
      Forward(dir, inputs, memory);
      WriteState(dir.states[n_.steps % 2], d, out(1));
      float* c = n_.outputs > 2 ? out(2) : nullptr;
      for (int64_t b = 0; b < n_.batch && c != nullptr; ++b) {
        const int64_t length = dir.lengths == nullptr ? n_.steps : dir.lengths[b];
        std::copy_n(dir.c_before(length, b), n_.hidden, c + n_.state_at(d, b));
      }
    }
  }
};

class GradientKernel : public Recurrence {
 public:
  GradientKernel(const KernelCall& call, const Cells& cells) : GradientKernel(call, cells, Products(Sizes(call), call.threads)) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    for (int64_t d = 0; d < n_.directions; ++d) Direction(inputs, outputs, static_cast<char*>(scratch), d);
  }

 private:
  GradientKernel(const KernelCall& call, const Cells& cells, const Products& products)
      : Recurrence(call, cells, products),
        dx_(*products.dx),
        add_dx_(*products.add_dx),
        dw_(*products.dw),
        dr_(products.dr),
        dr_candidate_(products.dr_candidate) {}

  // StateProducts, ready to run.
  struct PreparedStates {
    std::optional<PreparedProduct> all, first;

    explicit PreparedStates(const StateProducts& plan) {
      if (plan.all) all.emplace(*plan.all);
      if (plan.first) first.emplace(*plan.first);
    }
  };

  // dr = the gradients of the gates from `slot` on times the states before the steps: `by_row`, or if the states are in Y, the initial
  // state and rows of Y.
  void MultiplyStates(PreparedStates& product, const DirectionBuffers& dir, int64_t slot, const float* by_row, float* dr,
                      void* library) const {
    const float* dz = dir.dz + slot * n_.hidden;
    if (!product.first) return product.all->Run(dz, by_row, dr, library);
    const int64_t dz_row = n_.slots * n_.hidden, rest = n_.rows() - n_.batch;
    const bool backwards = n_.backwards(dir.direction);
    product.first->Run(dz + (backwards ? rest * dz_row : 0), dir.first_h, dr, library);
    if (rest > 0) product.all->Run(dz + (backwards ? 0 : n_.batch * dz_row), dir.y + (backwards ? n_.cells() : 0), dr, library);
  }

  void Direction(const void* const* inputs, void* const* outputs, char* scratch, int64_t d) {
    const auto at = [&](int64_t place) { return reinterpret_cast<float*>(scratch + place); };
    const auto in = [&](size_t i) { return HasInput(call_, i) ? In(inputs, i) : nullptr; };
    const auto out = [&](size_t i) { return static_cast<float*>(GradientOf(call_, outputs, static_cast<int64_t>(i))); };
    DirectionBuffers dir = BuffersOf(inputs, scratch, d);
    if (n_.keeps) {
      // From here on, these are only read.
      dir.kept = const_cast<float*>(in(n_.saved_rows())) + (n_.gates == 1 ? 0 : d * n_.rows() * n_.kept * n_.hidden);
      dir.y = const_cast<float*>(in(n_.saved_y())) + n_.y_at(0, d, 0);
      dir.y_time = n_.y_at(1, d, 0) - n_.y_at(0, d, 0);
      dir.y_batch = n_.y_at(0, d, 1) - n_.y_at(0, d, 0);
    } else {
      dir.kept = at(layout_.kept);
      dir.y = at(layout_.y);
      dir.y_time = n_.time_step() * n_.hidden;
      dir.y_batch = n_.batch_step() * n_.hidden;
      Forward(dir, inputs, scratch);
    }
    dir.dh = at(layout_.dh);
    dir.dc = at(layout_.dc);
    dir.dh_recurrent = at(layout_.dh_recurrent);
    dir.dz = at(layout_.dz);
    dir.h_prev = at(layout_.h_prev);
    dir.reset_h_prev = at(layout_.reset_h_prev);
    dir.gathered = at(layout_.gathered);
    dir.dy = in(n_.grad(0));
    CopyState(in(n_.grad(1)), d, dir.dh);
    if (n_.gates == 4) CopyState(in(n_.grad(2)), d, dir.dc);
    Backward(dir, In(inputs, kR) + n_.r_at(d), scratch);

    void* library = at(layout_.library);
    const float* x = dir.lengths == nullptr ? In(inputs, kX) : MaskedX(dir, In(inputs, kX), at(layout_.x));
    if (float* dx = out(kX)) (d == 0 ? dx_ : add_dx_).Run(dir.dz, In(inputs, kW) + n_.w_at(d), dx, library);
    if (float* dw = out(kW)) dw_.Run(dir.dz, x, dw + n_.w_at(d), library);
    if (float* dr = out(kR)) {
      dr += n_.r_at(d);
      MultiplyStates(dr_, dir, 0, dir.h_prev, dr, library);
      if (n_.gates == 3) {
        MultiplyStates(dr_candidate_, dir, n_.linear ? 3 : 2, n_.linear ? dir.h_prev : dir.reset_h_prev, dr + n_.r_at(0, kCandidateGate),
                       library);
      }
    }
    if (float* db = out(kB)) BiasGradient(dir, db + n_.w_bias_at(d));
    if (n_.inputs > kPeephole) {
      if (float* dp = out(kPeephole)) PeepholeGradient(dir, dp + n_.peephole_at(d));
      WriteState(dir.dc, d, out(kInitialC));
    }
    WriteState(dir.dh, d, out(kInitialH));
  }

  // Leaves the gradients of the initial states in dir.dh and dir.dc.
  void Backward(const DirectionBuffers& dir, const float* r, char* scratch) const {
    const int64_t hidden = n_.hidden;
    for (int64_t g = 0; g < n_.gates; g += cells_.GradientBlocks(n_, g)) {
      Pack(r + n_.r_at(0, g), cells_.GradientBlocks(n_, g) * hidden, false, g, reinterpret_cast<float*>(scratch + layout_.packed));
    }
    std::fill_n(dir.dh_recurrent, n_.cells(), 0.0f);
    ForEachPastTheEnd(dir, [&](int64_t t, int64_t b) {
      std::fill_n(dir.dz_row(t, b), n_.slots * hidden, 0.0f);
      std::fill_n(dir.h_prev + n_.row(t, b) * hidden, hidden, 0.0f);  // always present if there are lengths
      if (n_.gates == 3 && !n_.linear) std::fill_n(dir.reset_h_prev + n_.row(t, b) * hidden, hidden, 0.0f);
    });
    const int phases = cells_.Phases(n_);
    ForEachTile(n_, loops_, parts_, [&](const WorkTile& tile, bool needs_barrier) {
      for (int64_t s = n_.steps; s-- > 0;) {
        for (int phase = 0; phase < phases; ++phase) {
          cells_.Backward(dir, tile, s, phase);
          if (needs_barrier) Barrier();
        }
        for (int64_t b = tile.b0; b < tile.b1 && !n_.states_in_y(); ++b) {
          const int64_t t = dir.time(s, b);
          if (t >= 0) std::copy(dir.h_before(s, b) + tile.j0, dir.h_before(s, b) + tile.j1, dir.h_prev + n_.row(t, b) * hidden + tile.j0);
        }
      }
      cells_.RecurrentGradient(dir, tile, 0);
      for (int64_t b = tile.b0; b < tile.b1; ++b) {
        for (int64_t i = b * hidden + tile.j0; i < b * hidden + tile.j1; ++i) dir.dh[i] += dir.dh_recurrent[i];
      }
    });
  }

  // X with zeros past the ends of sequences, where it may hold anything.
  const float* MaskedX(const DirectionBuffers& dir, const float* x, float* to) const {
    std::copy_n(x, n_.rows() * n_.input, to);
    ForEachPastTheEnd(dir, [&](int64_t t, int64_t b) { std::fill_n(to + n_.x_at(t, b), n_.input, 0.0f); });
    return to;
  }

  void BiasGradient(const DirectionBuffers& dir, float* db) const {
    const int64_t width = n_.width(), hidden = n_.hidden, slots = n_.slots * hidden;
    const int threads = ThreadsFor(n_.rows() * slots, kElementsPerThread, call_.threads);
    const auto sum = [&](int64_t slot, int64_t columns, float* to) {
      ParallelRanges(columns, 16, threads, [&](int64_t begin, int64_t end) {
        std::fill(to + begin, to + end, 0.0f);
        loops_.reduce_columns[static_cast<size_t>(Reduction::kSum)](dir.dz + slot * hidden + begin, n_.rows(), slots, end - begin,
                                                                    to + begin);
      });
    };
    sum(0, width, db);
    std::copy_n(db, width, db + width);
    if (n_.linear) sum(3, hidden, db + n_.r_bias_at(0, kCandidateGate));
  }

  // Sums of the gates' gradients times the cell state that each gate sees: before the step for i and f, after the step for o.
  void PeepholeGradient(const DirectionBuffers& dir, float* dp) const {
    const int64_t hidden = n_.hidden;
    std::fill_n(dp, kPeepholes * hidden, 0.0f);
    for (int64_t s = 0; s < n_.steps; ++s) {
      for (int64_t b = 0; b < n_.batch; ++b) {
        const int64_t t = dir.time(s, b);
        if (t < 0) continue;
        const float *dz = dir.dz_row(t, b), *c0 = dir.c_before(s, b), *c1 = dir.kept_row(t, b) + n_.gates * hidden;
        for (int64_t gate = 0; gate < kPeepholes; ++gate) {
          const float* c = gate == kOutputGate ? c1 : c0;
          for (int64_t i = gate * hidden, j = 0; j < hidden; ++i, ++j) dp[i] += dz[i] * c[j];
        }
      }
    }
  }

  PreparedProduct dx_, add_dx_, dw_;
  PreparedStates dr_, dr_candidate_;
};

}  // namespace

std::unique_ptr<Kernel> MakeForward(const KernelCall& call, const Cells& cells) { return std::make_unique<ForwardKernel>(call, cells); }

std::unique_ptr<Kernel> MakeGradient(const KernelCall& call, const Cells& cells) { return std::make_unique<GradientKernel>(call, cells); }

int64_t ScratchBytes(const KernelCall& call) {
  const Sizes n(call);
  return ScratchLayout(n, Products(n, call.threads), BestLoops()).bytes;
}

}  // namespace gradloom::recurrent
