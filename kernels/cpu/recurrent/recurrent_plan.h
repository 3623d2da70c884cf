// Decisions about a recurrent call before it runs: its products over all steps, its scratch memory, and the partition among threads.
#pragma once

#include <algorithm>
#include <optional>

#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/product/product.h"
#include "kernels/cpu/recurrent/recurrent.h"
#include "runtime/base/checked.h"

namespace gradloom::recurrent {

// Multiply-adds of a call that justify another thread, and of a step that justify synchronization.
inline constexpr int64_t kWorkPerThread = 1 << 17;
inline constexpr int64_t kStepWorkPerThread = 1 << 18;
inline constexpr int64_t kSequencesPerThread = 8;

// Floats of W or R, packed gate by gate, for products over k columns, or of R transposed.
inline int64_t PackedFloats(const Sizes& n, const Loops& loops, int64_t k) { return AlignUp(n.hidden, loops.matrix_panel) * k * n.gates; }

// All products here have a fixed order of additions, so that gradients have the same bits with every number of threads.

// dz^T h over all steps, where h are the states before them. It is one product; if the states are in Y, it is one for the first step, which
// starts from the initial state, and one for the rest.
struct StateProducts {
  std::optional<ProductPlan> all, first;

  // `w` is the product over all rows.
  void Set(const Sizes& n, ProductShape w, bool in_y, int threads) {
    if (in_y) {
      w.k = n.batch;
      first.emplace(w, threads, true);
      w.k = n.rows() - n.batch;
      w.adds = true;
    }
    if (w.k > 0) all.emplace(w, threads, true);
  }
};

// The products of a gradient over all steps.
struct Products {
  std::optional<ProductPlan> dx, add_dx, dw;
  StateProducts dr, dr_candidate;

  Products(const Sizes& n, int threads) {
    if (!n.gradient) return;
    const int64_t dz_row = n.slots * n.hidden;
    ProductShape x{.m = n.rows(), .n = n.input, .k = n.width(), .a_row = dz_row, .b_row = n.input, .c_row = n.input};
    dx.emplace(x, threads, true);
    x.adds = true;
    add_dx.emplace(x, threads, true);
    ProductShape w{.m = n.width(), .n = n.input, .k = n.rows(), .a_row = 1, .a_col = dz_row, .b_row = n.input, .c_row = n.input};
    dw.emplace(w, threads, true);
    w.n = w.b_row = w.c_row = n.hidden;
    w.m = n.gates == 3 ? 2 * n.hidden : n.width();
    dr.Set(n, w, n.states_in_y(), threads);
    if (n.gates != 3) return;
    // GRU's candidate multiplies R with another operand than the gates do.
    w.m = n.hidden;
    dr_candidate.Set(n, w, n.states_in_y() && n.linear, threads);
  }
  int64_t scratch_bytes() const {
    int64_t most = 0;
    for (const auto* plan : {&dx, &add_dx, &dw, &dr.all, &dr.first, &dr_candidate.all, &dr_candidate.first}) {
      if (*plan) most = std::max(most, (*plan)->scratch_bytes());
    }
    return most;
  }
};

// The division of the scratch memory, in bytes from its start.
struct ScratchLayout {
  int64_t bias, zeros, packed, packed_w, library, first_h, first_c, states[2], step, reset, kept, y;
  int64_t dh, dc, dh_recurrent, dz, h_prev, reset_h_prev, gathered, x;
  int64_t bytes = 0;

  ScratchLayout(const Sizes& n, const Products& products, const Loops& loops) {
    const int64_t rows = n.rows() * n.hidden, cells = n.cells();
    const auto when = [](bool wanted, int64_t floats) { return wanted ? floats : 0; };
    bias = Reserve(4 * n.hidden);
    zeros = Reserve(n.hidden);
    packed = Reserve(PackedFloats(n, loops, n.hidden));
    first_h = Reserve(cells);
    first_c = Reserve(when(n.gates == 4, cells));
    const bool forward = !n.gradient || !n.keeps;
    packed_w = Reserve(when(forward, PackedFloats(n, loops, n.input)));
    for (int64_t& state : states) state = Reserve(when(forward, cells));
    step = Reserve(when(forward, n.gates * cells));
    reset = Reserve(when(forward && n.gates == 3, cells));
    kept = Reserve(when(!n.keeps, n.kept * rows));
    y = Reserve(when(n.gradient && !n.keeps, rows));
    dh = Reserve(when(n.gradient, cells));
    dc = Reserve(when(n.gradient && n.gates == 4, cells));
    dh_recurrent = Reserve(when(n.gradient, cells));
    dz = Reserve(when(n.gradient, n.slots * rows));
    h_prev = Reserve(when(n.gradient && !n.states_in_y(), rows));
    reset_h_prev = Reserve(when(n.gradient && n.gates == 3 && !n.linear, rows));
    gathered = Reserve(when(n.gradient && n.has_lengths, n.slots * cells));
    x = Reserve(when(n.gradient && n.has_lengths, n.rows() * n.input));
    library = ReserveBytes(products.scratch_bytes());
  }

 private:
  int64_t Reserve(int64_t floats) { return ReserveBytes(floats * static_cast<int64_t>(sizeof(float))); }
  int64_t ReserveBytes(int64_t size) {
    const int64_t at = bytes;
    bytes = AlignUp(bytes + size, kAlignmentBytes);
    return at;
  }
};

// The number of threads that share the sequences of a step, and the number that share its hidden units.
struct Partition {
  int rows = 1, units = 1;

  Partition(const Sizes& n, const Loops& loops, int threads) {
    const int64_t step_work = n.cells() * n.width();
    threads = ThreadsFor(n.steps * step_work, kWorkPerThread, threads);
    double best = 0;
    for (int r = static_cast<int>(std::min<int64_t>(threads, n.batch)); r >= 1; --r) {
      // The gathering for a product covers all hidden units, so they cannot be shared.
      const int64_t most = n.has_lengths ? 1 : std::min(step_work / r / kStepWorkPerThread, n.hidden / loops.matrix_panel);
      const int u = static_cast<int>(std::clamp<int64_t>(most, 1, threads / r));
      // Products with few rows run at a lower speed.
      const double filled = static_cast<double>(std::min(n.batch / r, kSequencesPerThread)) / kSequencesPerThread;
      const double speed = r * u * (0.5 + 0.5 * filled);
      if (speed <= best) continue;
      best = speed;
      rows = r;
      units = u;
    }
  }
};

}  // namespace gradloom::recurrent
