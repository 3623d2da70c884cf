// LSTM, GRU and RNN with the usual activations, their training forms and their gradients, as matrix products by cuBLASLt. The remaining
// calls are left to recurrent.cc.
#include "kernels/cuda/rows/recurrent_products.h"

#include <algorithm>
#include <string>

#include "kernels/cuda/rows/recurrent_scratch.h"
#include "kernels/cuda/rows/rows.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls

// Records the alignment of all matrices of a product. `offset` is the bitwise or of the offsets, in elements, at which the first matrices
// may start after aligned addresses.
void Align(BlasProduct& product, int64_t offset = 0) {
  int64_t bytes = kAlignmentBytes | offset * DTypeBytes(product.dtype);
  if (product.batch > 1) {
    const int64_t d_step = product.d_step == 0 ? product.m * product.n : product.d_step;
    bytes |= (product.a_step | product.b_step) * DTypeBytes(product.dtype) | d_step * DTypeBytes(product.result);
  }
  product.alignment = bytes & -bytes;
}

std::string Rejects(const KernelCall& call) {
  if (std::string why = FirstOf({Layouts(call), NotFloating(call)}); !why.empty()) return why;
  if (call.inputs[0].dtype == DType::kFloat64) return "float64";
  const RecurrentExtents n(call);
  if (n.rows() * n.input == 0) return "nothing to compute";
  return UnusualCells(call);
}

int64_t Scratch(const KernelCall& call) { return RecurrentScratchLayout(call).bytes; }

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string_view domain) {
  return {.name = name, .op = op, .domain = domain, .device = DeviceKind::kCuda, .rejects = Rejects, .scratch_bytes = Scratch};
}

constexpr KernelRow kRows[] = {
    Row("cublas.LSTM", "LSTM", ""),
    Row("cublas.gradloom.LstmTraining", "LstmTraining", "gradloom"),
    Row("cublas.gradloom.LstmGrad", "LstmGrad", "gradloom"),
    Row("cublas.GRU", "GRU", ""),
    Row("cublas.gradloom.GruTraining", "GruTraining", "gradloom"),
    Row("cublas.gradloom.GruGrad", "GruGrad", "gradloom"),
    Row("cublas.RNN", "RNN", ""),
    Row("cublas.gradloom.RnnGrad", "RnnGrad", "gradloom"),
};

}  // namespace

RecurrentProducts::RecurrentProducts(const KernelCall& call) {
  const RecurrentExtents n(call);
  const DType type = call.inputs[0].dtype;
  const int64_t rows = n.rows(), width = n.width(), hidden = n.hidden, matrix = width * hidden;
  const int64_t plain = n.plain_gates() * hidden;
  BlasProduct common{.dtype = type, .result = DType::kFloat32, .batch = n.directions};
  common.allow_tf32 = call.attributes.Int("allow_tf32", 0) != 0;
  candidate_at = n.r_at(0, recurrent::kCandidateGate);
  if (!n.gradient || n.recomputes) {
    project = common;
    project.m = rows;
    project.n = width;
    project.k = n.input;
    project.transpose_b = true;
    project.b_step = width * n.input;
    project.d_row = n.kept * hidden;
    project.d_step = rows * project.d_row;
    step = common;
    step.m = n.batch;
    step.n = plain;
    step.k = hidden;
    step.transpose_b = true;
    step.a_step = n.batch * hidden;
    step.b_step = matrix;
    if (n.resets()) {
      candidate = step;
      candidate.n = hidden;
      Align(candidate, candidate_at);
    }
    Align(project);
    Align(step);
  }
  if (!n.gradient) return;
  back = common;
  back.m = n.batch;
  back.n = hidden;
  back.k = plain;
  back.a_row = width;
  back.a_step = rows * width;
  back.b_step = matrix;
  back.addend = BlasProduct::Addend::kMatrix;
  back.beta = 1;
  Align(back, n.batch * width);
  r_gradient = common;
  r_gradient.result = type;
  r_gradient.m = plain;
  r_gradient.n = hidden;
  r_gradient.k = rows;
  r_gradient.transpose_a = true;
  r_gradient.a_row = width;
  r_gradient.a_step = rows * width;
  r_gradient.b_step = rows * hidden;
  r_gradient.d_step = matrix;
  Align(r_gradient);
  if (n.resets()) {
    back_candidate = back;
    back_candidate.k = hidden;
    back_candidate.addend = BlasProduct::Addend::kNone;
    back_candidate.beta = 0;
    Align(back_candidate, n.batch * width | 2 * hidden | candidate_at);
    r_candidate_gradient = r_gradient;
    r_candidate_gradient.m = hidden;
    Align(r_candidate_gradient, 2 * hidden | candidate_at);
  }
  // Sums over both directions.
  x_gradient = common;
  x_gradient.result = type;
  x_gradient.batch = 1;
  x_gradient.m = rows;
  x_gradient.n = n.input;
  x_gradient.k = n.directions * width;
  w_gradient = x_gradient;
  w_gradient.m = n.directions * width;
  w_gradient.k = rows;
  w_gradient.transpose_a = true;
}

std::vector<const BlasProduct*> RecurrentProducts::all() const {
  std::vector<const BlasProduct*> products;
  for (const BlasProduct* product :
       {&project, &step, &candidate, &back, &back_candidate, &x_gradient, &w_gradient, &r_gradient, &r_candidate_gradient}) {
    if (product->m > 0) products.push_back(product);
  }
  return products;
}

RecurrentScratchLayout::RecurrentScratchLayout(const KernelCall& call) {
  const RecurrentExtents n(call);
  const int64_t element = DTypeBytes(call.inputs[0].dtype), wide = 4;
  const int64_t cells = n.directions * n.cells(), all_states = n.directions * n.rows() * n.hidden;
  const auto take = [&](bool needed, int64_t elements, int64_t size) {
    const int64_t at = bytes;
    if (needed) bytes = AlignUp(bytes + elements * size, kAlignmentBytes);
    return at;
  };
  const bool forward = !n.gradient || n.recomputes;
  kept = take(forward && !n.training, n.directions * n.rows() * n.kept * n.hidden, wide);
  y = take(n.recomputes, all_states, element);
  state = take(forward, cells, element);
  wide_state = take(forward && n.gates == 3 && element < wide, cells, wide);
  reset = take(forward && n.resets(), cells, element);
  step = take(forward, cells * n.plain_gates(), wide);
  before = take(n.gradient, all_states, element);
  reset_before = take(n.gradient && n.resets(), all_states, element);
  dz = take(n.gradient, all_states * n.gates, element);
  dr = take(n.gradient && !HasOneGradient(n), all_states * n.gates, element);
  dh = take(n.gradient, cells, wide);
  dc = take(n.gradient && n.gates == 4, cells, wide);
  d_reset_state = take(n.gradient && n.resets(), cells, wide);
  x = take(n.gradient && n.has_lengths, n.rows() * n.input, element);
  sums = take(n.gradient, kRecurrentSumParts * n.directions * n.width(), wide);
  int64_t workspace_bytes = 0;
  const RecurrentProducts products(call);
  for (const BlasProduct* product : products.all()) workspace_bytes = std::max(workspace_bytes, BlasScratchBytes(*product));
  workspace = take(true, workspace_bytes, 1);
}

std::span<const KernelRow> CudaRecurrentBlasRows() { return kRows; }

}  // namespace gradloom
