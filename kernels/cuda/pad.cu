// Pad in its four modes, and its gradient.
#include "kernels/catalog/physical.h"
#include "kernels/cuda/move.cuh"
#include "kernels/cuda/offset_calculator.cuh"
#include "kernels/reference/axis_maps.h"

namespace gradloom::cuda {
namespace {

using scalar::Modulo;
using scalar::PadMode;

// The axes of a tensor and of its padded form.
struct Padding {
  PadMode mode = PadMode::kConstant;
  int rank = 0;
  int64_t before[kMaxAxes] = {}, from[kMaxAxes] = {}, to[kMaxAxes] = {};

  void Append(int64_t pad, int64_t inner, int64_t outer) {
    // Merges axes without padding.
    const bool whole = pad == 0 && inner == outer;
    if (whole && rank > 0 && before[rank - 1] == 0 && from[rank - 1] == to[rank - 1]) {
      from[rank - 1] *= inner;
      to[rank - 1] *= inner;
      return;
    }
    before[rank] = pad;
    from[rank] = inner;
    to[rank] = outer;
    ++rank;
  }

  // The source of element `i` of a padded axis, or -1 for the constant.
  GRADLOOM_DEVICE int64_t Source(int axis, int64_t i) const { return scalar::PadSource(mode, i - before[axis], from[axis]); }

  // The first place of a padded axis to which element `s` was copied, and the next one after place `i`; past the end if there is none.
  GRADLOOM_DEVICE int64_t First(int axis, int64_t s) const {
    const int64_t extent = from[axis], at = before[axis] + s;
    if (mode == PadMode::kConstant) return at < 0 ? to[axis] : at;
    if (mode == PadMode::kEdge && at < 0) return s == extent - 1 ? 0 : to[axis];
    if (mode == PadMode::kEdge) return s == 0 ? 0 : at;
    if (mode == PadMode::kWrap) return Modulo(at, extent);
    if (extent == 1) return 0;
    const int64_t period = 2 * (extent - 1), there = Modulo(at, period), back = Modulo(before[axis] - s, period);
    return there < back ? there : back;
  }
  GRADLOOM_DEVICE int64_t Next(int axis, int64_t s, int64_t i) const {
    const int64_t extent = from[axis];
    if (mode == PadMode::kConstant) return to[axis];
    if (mode == PadMode::kEdge) return Source(axis, i + 1) == s ? i + 1 : to[axis];
    if (mode == PadMode::kWrap) return i + extent;
    if (extent == 1) return i + 1;
    // From the forward to the reflected half of the period, or back.
    const int64_t period = 2 * (extent - 1), at = Modulo(i - before[axis], period);
    if (s == 0 || s == extent - 1) return i + period;
    return i + (at == s ? period - 2 * s : 2 * s);
  }
};

// `inner` is the unpadded operand, `outer` the padded one. Input 1 has the pads.
Padding PaddingOf(const KernelCall& stated, const OperandType& inner, const OperandType& outer, size_t axes_operand,
                  const PhysicalCall& physical) {
  const std::vector<int64_t> pads = stated.ConstantInts(1), axes = stated.ConstantInts(axes_operand);
  const int rank = inner.shape.rank();
  std::vector<int64_t> before(static_cast<size_t>(rank), 0);
  for (size_t i = 0; i < pads.size() / 2; ++i) {
    const int axis = AxisOf(stated, axes.empty() ? static_cast<int64_t>(i) : axes.at(i), rank);
    before[static_cast<size_t>(physical.Axis(axis))] = pads[i];
  }
  Padding padding;
  padding.mode = PadModeOf(stated);
  for (int axis = 0; axis < rank; ++axis) padding.Append(before[static_cast<size_t>(axis)], inner.shape[axis], outer.shape[axis]);
  return padding;
}

template <typename T>
void Pad(int64_t n, const T* in, const T* constant, T* out, const Padding& padding, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        int64_t source = 0, stride = 1, rest = i;
        for (int axis = padding.rank - 1; axis >= 0; --axis) {
          const Quotient q = Divide(rest, padding.to[axis]);
          const int64_t at = padding.Source(axis, q.rest);
          if (at < 0) {
            out[i] = constant == nullptr ? T{0} : constant[0];
            return;
          }
          source += at * stride;
          stride *= padding.from[axis];
          rest = q.quotient;
        }
        out[i] = in[source];
      });
}

// One thread per element of the smaller tensor, which sums over the places to which the element was copied, in order.
template <typename T>
void PadGrad(int64_t n, const T* grad, T* out, const Padding& padding, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        int64_t element[kMaxAxes], place[kMaxAxes], stride[kMaxAxes];
        int64_t rest = i, step = 1, offset = 0;
        bool any = true;
        for (int axis = padding.rank - 1; axis >= 0; --axis) {
          const Quotient q = Divide(rest, padding.from[axis]);
          element[axis] = q.rest;
          rest = q.quotient;
          place[axis] = padding.First(axis, q.rest);
          stride[axis] = step;
          any = any && place[axis] < padding.to[axis];
          offset += place[axis] * step;
          step *= padding.to[axis];
        }
        double total = 0;
        while (any) {
          total += static_cast<double>(grad[offset]);
          int axis = padding.rank - 1;
          for (; axis >= 0; --axis) {
            int64_t next = padding.Next(axis, element[axis], place[axis]);
            const bool wraps = next >= padding.to[axis];
            if (wraps) next = padding.First(axis, element[axis]);
            offset += (next - place[axis]) * stride[axis];
            place[axis] = next;
            if (!wraps) break;
          }
          any = axis >= 0;
        }
        out[i] = static_cast<T>(static_cast<Arithmetic<T>>(total));
      });
}

}  // namespace

std::unique_ptr<Kernel> MakePad(const KernelCall& call, const KernelSite&) {
  const PhysicalCall physical = *PhysicalOf(call);
  const OperandType &in = physical.call.inputs[0], &out = physical.call.outputs[0];
  const Padding padding = PaddingOf(call, in, out, 3, physical);
  const int64_t n = out.shape.elements();
  const bool constant = Has(call.inputs, 2);
  return WithBytes(in.dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { Pad(n, l.In<T>(0), constant ? l.In<T>(2) : nullptr, l.Out<T>(0), padding, l.stream); });
  });
}

std::unique_ptr<Kernel> MakePadGrad(const KernelCall& call, const KernelSite&) {
  const PhysicalCall physical = *PhysicalOf(call);
  const OperandType &grad = physical.call.inputs[0], &out = physical.call.outputs[0];
  const Padding padding = PaddingOf(call, out, grad, 2, physical);
  const int64_t n = out.shape.elements();
  return WithFloating(out.dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { PadGrad(n, l.In<T>(0), l.Out<T>(0), padding, l.stream); });
  });
}

}  // namespace gradloom::cuda
