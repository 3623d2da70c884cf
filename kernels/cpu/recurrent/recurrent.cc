#include "kernels/cpu/recurrent/recurrent.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/operands.h"
#include "runtime/base/checked.h"

namespace gradloom::recurrent {
void DirectionBuffers::Project(const WorkTile& tile, int64_t s) const {
  const int64_t panel = loops.matrix_panel, hidden = n.hidden, gate = AlignUp(hidden, panel) * n.input;
  const int64_t end = std::min(n.steps, s + chunk());
  const int64_t first = n.backwards(direction) ? n.steps - end : s;
  // Columns in the outer loop: a panel of W stays in the L1 cache for all rows.
  for (int64_t g = 0; g < n.gates; ++g) {
    for (int64_t j = tile.j0; j < tile.j1; j += panel) {
      MatrixArgs args{.m = tile.b1 - tile.b0,
                      .n = std::min(panel, tile.j1 - j),
                      .k = n.input,
                      .a_row = n.batch_step() * n.input,
                      .a_col = 1,
                      .c_row = n.batch_step() * n.kept * hidden,
                      .alpha = 1};
      for (int64_t t = first; t < first + end - s; ++t) {
        args.a = x + n.x_at(t, tile.b0);
        args.c = kept_row(t, tile.b0) + g * hidden + j;
        loops.multiply_packed(args, packed_w + g * gate + j * n.input);
      }
    }
  }
}

void DirectionBuffers::MultiplyState(const WorkTile& tile, const float* state, int64_t first, int64_t blocks) const {
  const int64_t units = tile.j1 - tile.j0, hidden = n.hidden, gate = AlignUp(hidden, loops.matrix_panel) * hidden;
  for (int64_t g = 0; g < blocks; ++g) {
    const MatrixArgs args{.m = tile.b1 - tile.b0,
                          .n = units,
                          .k = hidden,
                          .a = state + tile.b0 * hidden,
                          .a_row = hidden,
                          .a_col = 1,
                          .c = step_tile(tile) + g * units,
                          .c_row = blocks * units,
                          .alpha = 1};
    loops.multiply_packed(args, packed + (first + g) * gate + tile.j0 * hidden);
  }
}

void DirectionBuffers::MultiplyGradient(const WorkTile& tile, int64_t s, int64_t slot, int64_t first, int64_t blocks, bool adds) const {
  const int64_t hidden = n.hidden, row = n.slots * hidden, padded = AlignUp(hidden, loops.matrix_panel);
  const bool backwards = n.backwards(direction);
  const float* a = dz_row(n.time(direction, s, n.steps), tile.b0) + slot * hidden;
  int64_t a_row = n.batch_step() * row;
  if (lengths != nullptr && backwards) {
    // With lengths, the rows of one step are at different times.
    for (int64_t b = tile.b0; b < tile.b1; ++b) {
      const int64_t t = time(s, b);
      float* to = gathered + b * row;
      t < 0 ? std::fill_n(to, blocks * hidden, 0.0f) : std::copy_n(dz_row(t, b) + slot * hidden, blocks * hidden, to);
    }
    a = gathered + tile.b0 * row;
    a_row = row;
  }
  const MatrixArgs args{.m = tile.b1 - tile.b0,
                        .n = tile.j1 - tile.j0,
                        .k = blocks * hidden,
                        .a = a,
                        .a_row = a_row,
                        .a_col = 1,
                        .c = dh_recurrent + tile.b0 * hidden + tile.j0,
                        .c_row = hidden,
                        .alpha = 1,
                        .adds = adds};
  loops.multiply_packed(args, packed + first * hidden * padded + tile.j0 * blocks * hidden);
}

std::string Rejects(const KernelCall& call) {
  if (std::string why = UnusualCells(call); !why.empty()) return why;
  if (std::string why = RejectsLayouts(call); !why.empty()) return why;
  if (call.inputs.size() < 3) return "operands are missing";
  for (size_t i : {kX, kW, kR}) {
    if (!call.inputs[i].present() || call.inputs[i].shape.rank() != 3) return "operands of another rank";
    if (call.inputs[i].shape.elements() == 0) return "nothing to compute";
  }
  const Sizes n(call);
  if (n.directions > 2) return "more than two directions";
  const Shape state = n.batch_first ? Shape{n.batch, n.directions, n.hidden} : Shape{n.directions, n.batch, n.hidden};
  const Shape y = n.batch_first ? Shape{n.batch, n.steps, n.directions, n.hidden} : Shape{n.steps, n.directions, n.batch, n.hidden};
  const Shape kept{n.directions, call.inputs[kX].shape[0], call.inputs[kX].shape[1], n.kept * n.hidden};
  std::vector<Shape> inputs{call.inputs[kX].shape,
                            {n.directions, n.width(), n.input},
                            {n.directions, n.width(), n.hidden},
                            {n.directions, 2 * n.width()},
                            {n.batch},
                            state};
  if (n.inputs > kPeephole) {
    inputs.push_back(state);
    inputs.push_back({n.directions, kPeepholes * n.hidden});
  }
  std::vector<Shape> outputs{y};
  outputs.resize(n.outputs, state);
  if (n.gradient) {
    inputs.insert(inputs.end(), outputs.begin(), outputs.end());
    inputs.push_back(y);
  }
  if (n.gates > 1) (n.gradient ? inputs : outputs).push_back(kept);
  if (call.inputs.size() > inputs.size()) return "too many operands";
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!call.inputs[i].present()) continue;
    if (call.inputs[i].dtype != (i == kLengths ? DType::kInt32 : DType::kFloat32)) return std::string(DTypeName(call.inputs[i].dtype));
    if (call.inputs[i].shape != inputs[i]) return "an operand of another shape";
  }
  const std::vector<int64_t> wanted = call.attributes.Ints("wanted");
  if (n.gradient ? wanted.size() != call.outputs.size() || call.inputs.size() < n.saved_y() : call.outputs.size() > outputs.size()) {
    return "an unexpected number of operands";
  }
  if (n.training != HasOutput(call, n.outputs) && !n.gradient) return "what is kept for the gradient";
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (!call.outputs[i].present()) continue;
    if (call.outputs[i].dtype != DType::kFloat32) return std::string(DTypeName(call.outputs[i].dtype));
    const bool has = !n.gradient || (wanted[i] >= 0 && wanted[i] < static_cast<int64_t>(n.inputs) && wanted[i] != kLengths &&
                                     HasInput(call, static_cast<size_t>(wanted[i])));
    if (!has) return "the gradient of an input that it has not";
    if (call.outputs[i].shape != (n.gradient ? inputs[static_cast<size_t>(wanted[i])] : outputs[i])) return "a result of another shape";
  }
  return "";
}

}  // namespace gradloom::recurrent
