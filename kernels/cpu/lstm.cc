// LSTM with the usual activations and its gradient, as products over all steps where they need no state and over one
// step where they do. The gradient runs the forward pass again (see kernels/reference/recurrent_lstm.cc).
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "kernels/catalog/pointwise.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/product.h"
#include "kernels/reference/wanted.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

// Inputs of LSTM; those of its gradient go on with the gradients of Y, Y_h and Y_c.
enum Input : size_t { kX, kW, kR, kB, kLengths, kInitialH, kInitialC, kPeephole, kGradY, kGradH, kGradC };

constexpr int64_t kCellsPerThread = 1 << 12;

// Rows of X in their order, which is that of all that is kept for each step: row of time t and sequence b is
// t * time_step + b * batch_step.
struct Sizes {
  int64_t steps, batch, input, hidden, directions;
  bool batch_first, reverse;

  explicit Sizes(const KernelCall& call) {
    const Shape &x = call.inputs[kX].shape, &r = call.inputs[kR].shape;
    batch_first = call.attributes.Int("layout", 0) != 0;
    steps = x[batch_first ? 1 : 0];
    batch = x[batch_first ? 0 : 1];
    input = x[2];
    directions = r[0];
    hidden = r[2];
    reverse = call.attributes.String("direction", "forward") == "reverse";
  }
  int64_t rows() const { return steps * batch; }
  int64_t width() const { return 4 * hidden; }
  int64_t time_step() const { return batch_first ? 1 : batch; }
  int64_t batch_step() const { return batch_first ? steps : 1; }
  int64_t time(int64_t direction, int64_t step) const { return reverse || direction == 1 ? steps - 1 - step : step; }
  int64_t row(int64_t time, int64_t b) const { return time * time_step() + b * batch_step(); }
  int64_t y_at(int64_t time, int64_t direction, int64_t b) const {
    return (batch_first ? (b * steps + time) * directions + direction : (time * directions + direction) * batch + b) * hidden;
  }
  int64_t state_at(int64_t direction, int64_t b) const {
    return (batch_first ? b * directions + direction : direction * batch + b) * hidden;
  }

  // Rows of one time, `width` elements each.
  int64_t row_stride(int64_t width) const { return batch_step() * width; }
};

// All products of a call, with the gradient's where it is one.
struct Products {
  ProductPlan project, step;                             // gates from X; from the state before a step
  std::optional<ProductPlan> state, dx, add_dx, dw, dr;  // the gradient of the state; of X, W and R

  Products(const KernelCall& call, bool gradient) : Products(Sizes(call), call.threads, gradient) {}

 private:
  Products(const Sizes& n, int threads, bool gradient)
      : project({.m = n.rows(), .n = n.width(), .k = n.input, .a_row = n.input, .b_row = 1, .b_col = n.input, .c_row = n.width()}, threads),
        step({.m = n.batch,
              .n = n.width(),
              .k = n.hidden,
              .a_row = n.row_stride(n.hidden),
              .b_row = 1,
              .b_col = n.hidden,
              .c_row = n.row_stride(n.width()),
              .adds = true,
              .packs = true},
             threads) {
    if (!gradient) return;
    state.emplace(ProductShape{.m = n.batch,
                               .n = n.hidden,
                               .k = n.width(),
                               .a_row = n.row_stride(n.width()),
                               .b_row = n.hidden,
                               .c_row = n.hidden,
                               .packs = true},
                  threads);
    ProductShape x{.m = n.rows(), .n = n.input, .k = n.width(), .a_row = n.width(), .b_row = n.input, .c_row = n.input};
    dx.emplace(x, threads);
    x.adds = true;
    add_dx.emplace(x, threads);
    dw.emplace(
        ProductShape{.m = n.width(), .n = n.input, .k = n.rows(), .a_row = 1, .a_col = n.width(), .b_row = n.input, .c_row = n.input},
        threads);
    dr.emplace(
        ProductShape{.m = n.width(), .n = n.hidden, .k = n.rows(), .a_row = 1, .a_col = n.width(), .b_row = n.hidden, .c_row = n.hidden},
        threads);
  }
};

// Where things lie in the scratch, in bytes.
struct Places {
  int64_t gates, h, c, squashed;  // by row of X: gates, the states before a step, tanh of the cell after it
  int64_t last_h, last_c, bias, dh, dc, packed_step, packed_state, library, bytes = 0;

  Places(const Sizes& n, const Products& products, bool gradient) {
    const int64_t kept = gradient ? n.rows() : n.batch;
    gates = Take(n.rows() * n.width());
    h = Take(n.rows() * n.hidden);
    c = Take(kept * n.hidden);
    squashed = Take(kept * n.hidden);
    last_h = Take(n.batch * n.hidden);
    last_c = Take(n.batch * n.hidden);
    bias = Take(n.width());
    dh = Take(gradient ? n.batch * n.hidden : 0);
    dc = Take(gradient ? n.batch * n.hidden : 0);
    packed_step = TakeBytes(products.step.packed_bytes());
    packed_state = TakeBytes(gradient ? products.state->packed_bytes() : 0);
    int64_t most = std::max(products.project.scratch_bytes(), products.step.scratch_bytes());
    if (gradient) {
      for (const auto* plan : {&products.state, &products.dx, &products.add_dx, &products.dw, &products.dr}) {
        most = std::max(most, (*plan)->scratch_bytes());
      }
    }
    library = TakeBytes(most);
  }

 private:
  int64_t Take(int64_t floats) { return TakeBytes(floats * static_cast<int64_t>(sizeof(float))); }
  int64_t TakeBytes(int64_t size) {
    const int64_t at = bytes;
    bytes = AlignUp(bytes + size, kAlignmentBytes);
    return at;
  }
};

// The forward pass, which keeps what the gradient needs.
class Forward {
 public:
  Forward(const KernelCall& call, const Products& products, bool gradient)
      : n(call),
        places(n, products, gradient),
        has_bias_(HasInput(call, kB)),
        has_h_(HasInput(call, kInitialH)),
        has_c_(HasInput(call, kInitialC)),
        keeps_(gradient),
        threads_(ThreadsFor(n.batch * n.width(), kCellsPerThread, call.threads)),
        project_(products.project),
        step_(products.step) {}

  // One direction; with `y` its part of Y.
  void Run(const void* const* inputs, int64_t direction, char* scratch, float* y) {
    const auto at = [&](int64_t place) { return reinterpret_cast<float*>(scratch + place); };
    const auto in = [&](size_t i) { return static_cast<const float*>(inputs[i]); };
    float *gates = at(places.gates), *bias = at(places.bias);
    const int64_t width = n.width(), hidden = n.hidden;
    std::fill_n(bias, width, 0.0f);
    if (has_bias_) {
      const float* both = in(kB) + direction * 2 * width;
      for (int64_t j = 0; j < width; ++j) bias[j] = both[j] + both[width + j];
    }
    project_.Run(in(kX), in(kW) + direction * width * n.input, gates, scratch + places.library);
    step_.Pack(in(kR) + direction * width * hidden, scratch + places.packed_step);
    for (int64_t b = 0; b < n.batch; ++b) {
      const int64_t first = n.time(direction, 0);
      CopyState(has_h_ ? inputs[kInitialH] : nullptr, direction, b, at(places.h) + n.row(first, b) * hidden);
      CopyState(has_c_ ? inputs[kInitialC] : nullptr, direction, b, at(places.c) + CellRow(first, b) * hidden);
    }
    for (int64_t s = 0; s < n.steps; ++s) {
      const int64_t t = n.time(direction, s), next = s + 1 < n.steps ? n.time(direction, s + 1) : -1;
      step_.Run(at(places.h) + n.row(t, 0) * hidden, scratch + places.packed_step, gates + n.row(t, 0) * width, scratch + places.library);
      ParallelFor(n.batch, threads_, [&](int64_t b) {
        float* h1 = next < 0 ? at(places.last_h) + b * hidden : at(places.h) + n.row(next, b) * hidden;
        float* c1 = next < 0 ? at(places.last_c) + b * hidden : at(places.c) + CellRow(next, b) * hidden;
        Cell(gates + n.row(t, b) * width, bias, at(places.c) + CellRow(t, b) * hidden, at(places.squashed) + CellRow(t, b) * hidden, c1,
             h1);
        if (y != nullptr) std::memcpy(y + n.y_at(t, direction, b), h1, static_cast<size_t>(hidden) * sizeof(float));
      });
    }
  }

  // Without the gradient one cell state a sequence is enough.
  int64_t CellRow(int64_t time, int64_t b) const { return keeps_ ? n.row(time, b) : b; }

  void WriteState(const float* state, int64_t direction, void* to) const {
    if (to == nullptr) return;
    for (int64_t b = 0; b < n.batch; ++b) {
      std::memcpy(static_cast<float*>(to) + n.state_at(direction, b), state + b * n.hidden, static_cast<size_t>(n.hidden) * sizeof(float));
    }
  }

  // A sequence's part of a state operand, zeros where there is none.
  void CopyState(const void* from, int64_t direction, int64_t b, float* to) const {
    if (from == nullptr) {
      std::fill_n(to, n.hidden, 0.0f);
    } else {
      std::memcpy(to, static_cast<const float*>(from) + n.state_at(direction, b), static_cast<size_t>(n.hidden) * sizeof(float));
    }
  }

  const Sizes n;
  const Places places;

 private:
  // Gates i, o, f and the candidate, in place of their arguments; then the states. c1 may be c0.
  void Cell(float* gates, const float* bias, const float* c0, float* squashed, float* c1, float* h1) const {
    const int64_t hidden = n.hidden;
    for (int64_t j = 0; j < 4 * hidden; ++j) gates[j] += bias[j];
    const auto apply = [&](PointwiseOp op, const float* from, float* to, int64_t count) {
      loops_.pointwise[static_cast<size_t>(op)]({from, from, from, to, count});
    };
    apply(PointwiseOp::kSigmoid, gates, gates, 3 * hidden);
    const float *i = gates, *o = i + hidden, *f = o + hidden;
    float* candidate = gates + 3 * hidden;
    apply(PointwiseOp::kTanh, candidate, candidate, hidden);
    for (int64_t j = 0; j < hidden; ++j) c1[j] = f[j] * c0[j] + i[j] * candidate[j];
    apply(PointwiseOp::kTanh, c1, squashed, hidden);
    for (int64_t j = 0; j < hidden; ++j) h1[j] = o[j] * squashed[j];
  }

  const Loops& loops_ = BestLoops();
  bool has_bias_, has_h_, has_c_, keeps_;
  int threads_;
  PreparedProduct project_, step_;
};

class Lstm : public Kernel {
 public:
  explicit Lstm(const KernelCall& call) : outputs_(call.outputs.size()), forward_(call, Products(call, false), false) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    char* memory = static_cast<char*>(scratch);
    for (int64_t d = 0; d < forward_.n.directions; ++d) {
      forward_.Run(inputs, d, memory, static_cast<float*>(outputs[0]));
      if (outputs_ > 1) forward_.WriteState(reinterpret_cast<float*>(memory + forward_.places.last_h), d, outputs[1]);
      if (outputs_ > 2) forward_.WriteState(reinterpret_cast<float*>(memory + forward_.places.last_c), d, outputs[2]);
    }
  }

 private:
  size_t outputs_;
  Forward forward_;
};

class LstmGrad : public Kernel {
 public:
  explicit LstmGrad(const KernelCall& call) : LstmGrad(call, Products(call, true)) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    for (int64_t d = 0; d < n_.directions; ++d) Direction(inputs, outputs, static_cast<char*>(scratch), d);
  }

 private:
  LstmGrad(const KernelCall& call, const Products& products)
      : call_(call),
        forward_(call, products, true),
        n_(forward_.n),
        threads_(ThreadsFor(n_.batch * n_.width(), kCellsPerThread, call.threads)),
        state_(*products.state),
        dx_(*products.dx),
        add_dx_(*products.add_dx),
        dw_(*products.dw),
        dr_(*products.dr) {}

  void Direction(const void* const* inputs, void* const* outputs, char* scratch, int64_t d) {
    forward_.Run(inputs, d, scratch, nullptr);
    const Places& places = forward_.places;
    const auto at = [&](int64_t place) { return reinterpret_cast<float*>(scratch + place); };
    const auto in = [&](size_t i) { return static_cast<const float*>(inputs[i]); };
    const auto out = [&](size_t i) { return static_cast<float*>(GradientOf(call_, outputs, static_cast<int64_t>(i))); };
    const int64_t hidden = n_.hidden, width = n_.width();
    float *dz = at(places.gates), *dh = at(places.dh), *dc = at(places.dc);
    for (int64_t b = 0; b < n_.batch; ++b) {
      forward_.CopyState(inputs[kGradH], d, b, dh + b * hidden);
      forward_.CopyState(inputs[kGradC], d, b, dc + b * hidden);
    }
    state_.Pack(in(kR) + d * width * hidden, scratch + places.packed_state);
    for (int64_t s = n_.steps; s-- > 0;) {
      const int64_t t = n_.time(d, s);
      ParallelFor(n_.batch, threads_, [&](int64_t b) {
        const int64_t row = n_.row(t, b);
        const float* dy = inputs[kGradY] == nullptr ? nullptr : in(kGradY) + n_.y_at(t, d, b);
        Cell(dy, dh + b * hidden, dc + b * hidden, at(places.c) + row * hidden, at(places.squashed) + row * hidden, dz + row * width);
      });
      state_.Run(dz + n_.row(t, 0) * width, scratch + places.packed_state, dh, scratch + places.library);
    }
    void* library = scratch + places.library;
    if (float* dx = out(kX)) (d == 0 ? dx_ : add_dx_).Run(dz, in(kW) + d * width * n_.input, dx, library);
    if (float* dw = out(kW)) dw_.Run(dz, in(kX), dw + d * width * n_.input, library);
    if (float* dr = out(kR)) dr_.Run(dz, at(places.h), dr + d * width * hidden, library);
    if (float* db = out(kB)) {
      db += d * 2 * width;
      std::fill_n(db, width, 0.0f);
      loops_.reduce_columns[static_cast<size_t>(Reduction::kSum)](dz, n_.rows(), width, width, db);
      std::memcpy(db + width, db, static_cast<size_t>(width) * sizeof(float));
    }
    forward_.WriteState(dh, d, out(kInitialH));
    forward_.WriteState(dc, d, out(kInitialC));
  }

  // One cell backwards. dh and dc are the gradients of the states after it (dh without Y's part); dc becomes that of
  // the cell before it, the gates become the gradients of their arguments.
  void Cell(const float* dy, const float* dh, float* dc, const float* c0, const float* squashed, float* gates) const {
    const int64_t hidden = n_.hidden;
    float *gi = gates, *go = gi + hidden, *gf = go + hidden, *gc = gf + hidden;
    for (int64_t j = 0; j < hidden; ++j) {
      const float i = gi[j], o = go[j], f = gf[j], g = gc[j], tanh_c = squashed[j];
      const float d_h = dy == nullptr ? dh[j] : dh[j] + dy[j];
      const float d_c = dc[j] + d_h * o * (1 - tanh_c * tanh_c);
      gi[j] = d_c * g * i * (1 - i);
      go[j] = d_h * tanh_c * o * (1 - o);
      gf[j] = d_c * c0[j] * f * (1 - f);
      gc[j] = d_c * i * (1 - g * g);
      dc[j] = d_c * f;
    }
  }

  const Loops& loops_ = BestLoops();
  KernelCall call_;
  Forward forward_;
  const Sizes& n_;
  int threads_;
  PreparedProduct state_, dx_, add_dx_, dw_, dr_;
};

int64_t Scratch(const KernelCall& call) {
  const bool gradient = call.op == "LstmGrad";
  return Places(Sizes(call), Products(call, gradient), gradient).bytes;
}

std::string Rejects(const KernelCall& call) {
  if (HasInput(call, kLengths)) return "sequences of unequal lengths";
  if (HasInput(call, kPeephole)) return "peepholes";
  if (!call.attributes.Strings("activations").empty()) return "activations that are listed";
  if (call.attributes.Float("clip", 0) > 0 || call.attributes.Int("input_forget", 0) != 0) return "clip or input_forget";
  if (std::string why = RejectsAllBut(call, DType::kFloat32); !why.empty()) return why;
  if (call.inputs.size() < 3) return "operands are missing";
  for (size_t i : {kX, kW, kR}) {
    if (!call.inputs[i].present() || call.inputs[i].shape.rank() != 3) return "operands that are no LSTM's";
    if (call.inputs[i].shape.elements() == 0) return "nothing to compute";
  }
  const Sizes n(call);
  const Shape state = n.batch_first ? Shape{n.batch, n.directions, n.hidden} : Shape{n.directions, n.batch, n.hidden};
  const Shape y = n.batch_first ? Shape{n.batch, n.steps, n.directions, n.hidden} : Shape{n.steps, n.directions, n.batch, n.hidden};
  const Shape inputs[] = {call.inputs[kX].shape,
                          {n.directions, n.width(), n.input},
                          {n.directions, n.width(), n.hidden},
                          {n.directions, 2 * n.width()},
                          {},
                          state,
                          state,
                          {},
                          y,
                          state,
                          state};
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.inputs[i].present() && (i >= std::size(inputs) || call.inputs[i].shape != inputs[i])) return "an operand of another shape";
  }
  const bool gradient = call.op == "LstmGrad";
  const std::vector<int64_t> wanted = call.attributes.Ints("wanted");
  if (gradient && (call.inputs.size() != std::size(inputs) || wanted.size() != call.outputs.size())) return "a number of operands";
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (!call.outputs[i].present()) continue;
    if (gradient && (wanted[i] < 0 || wanted[i] >= static_cast<int64_t>(kPeephole))) return "the gradient of an input that it has not";
    if (call.outputs[i].shape != (gradient ? inputs[wanted[i]] : i == 0 ? y : state)) return "a result of another shape";
  }
  return n.directions > 2 ? "more than two directions" : "";
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "onednn.LSTM", .op = "LSTM", .domain = "", .rejects = Rejects, .scratch_bytes = Scratch}, .make = MakeKernel<Lstm>},
    {.row = {.name = "onednn.LstmGrad", .op = "LstmGrad", .domain = "gradloom", .rejects = Rejects, .scratch_bytes = Scratch},
     .make = MakeKernel<LstmGrad>},
};

}  // namespace

std::span<const CpuKernel> CpuLstmKernels() { return kKernels; }

}  // namespace gradloom
