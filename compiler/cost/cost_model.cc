#include "compiler/cost/cost_model.h"

#include <algorithm>

namespace gradloom {
namespace {

double Elements(const OperandType& operand) { return operand.present() ? static_cast<double>(operand.shape.elements()) : 0; }

// y = x * w: each element of y takes a product and a sum for each weight of its output channel.
double ConvolutionFlops(const OperandType& weights, const OperandType& y) {
  const double outputs = static_cast<double>(std::max<int64_t>(weights.shape[0], 1));
  return 2 * Elements(y) * Elements(weights) / outputs;
}

// Of a, the axis that is summed over: the last, or with transA the first.
double ProductFlops(const KernelCall& call) {
  const Shape& a = call.inputs[0].shape;
  if (a.rank() == 0) return 0;
  const bool transposed = call.op == "Gemm" && call.attributes.Int("transA", 0) != 0;
  return 2 * Elements(call.outputs[0]) * static_cast<double>(a[transposed ? 0 : a.rank() - 1]);
}

double Flops(const KernelCall& call) {
  if (call.op == "Conv" || call.op == "ConvGradInput" || call.op == "ConvTranspose") {
    // The forward output: in the gradient of the input, and transposed, it is the first operand.
    return ConvolutionFlops(call.inputs[1], call.op == "Conv" ? call.outputs[0] : call.inputs[0]);
  }
  if (call.op == "ConvGradWeight") return ConvolutionFlops(call.outputs[0], call.inputs[1]);
  if (call.op == "Gemm" || call.op == "MatMul") return ProductFlops(call);
  if (call.op == "LSTM" || call.op == "LstmGrad" || call.op == "GRU" || call.op == "GruGrad" || call.op == "RNN" || call.op == "RnnGrad") {
    const Shape& x = call.inputs[0].shape;
    double weights = 0;
    for (size_t i = 1; i < call.inputs.size() && i < 3; ++i) weights += Elements(call.inputs[i]);
    return x.rank() < 2 ? 0 : 2 * weights * static_cast<double>(x[0] * x[1]) * (call.op.ends_with("Grad") ? 2 : 1);
  }
  double elements = 0;
  for (const OperandType& output : call.outputs) elements += Elements(output);
  return 4 * elements;
}

}  // namespace

Work WorkOf(const KernelCall& call) {
  Work work{.flops = Flops(call)};
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) work.bytes += static_cast<double>(operand.bytes());
  }
  return work;
}

DeviceCosts DefaultCosts(DeviceKind device) {
  if (device == DeviceKind::kCpu) {
    return {.flops_per_second = 40e9, .bytes_per_second = 10e9, .bandwidth_threads = 4, .launch_seconds = 0.5e-6, .event_seconds = 5e-6};
  }
  return {.flops_per_second = 30e12, .bytes_per_second = 2e12, .bandwidth_threads = 1, .launch_seconds = 3e-6, .event_seconds = 2e-6};
}

double SecondsOf(const KernelCall& call, const DeviceCosts& device) {
  const Work work = WorkOf(call);
  const int threads = std::max(call.threads, 1);
  return device.launch_seconds + std::max(work.flops / (device.flops_per_second * threads),
                                          work.bytes / (device.bytes_per_second * std::min(threads, device.bandwidth_threads)));
}

}  // namespace gradloom
