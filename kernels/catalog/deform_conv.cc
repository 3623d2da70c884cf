#include "kernels/catalog/deform_conv.h"

#include <vector>

#include "kernels/catalog/operands.h"

namespace gradloom {

const Shape& DeformOutputShape(const KernelCall& call) {
  return call.op == "DeformConvGrad" ? call.inputs[kDeformInputs].shape : call.outputs[0].shape;
}

DeformSizes::DeformSizes(const KernelCall& call) {
  const Shape &x = call.inputs[kDeformX].shape, &w = call.inputs[kDeformW].shape, &y = DeformOutputShape(call);
  images = x[0], channels = x[1], height = x[2], width = x[3];
  filters = w[0], groups = call.attributes.Int("group", 1), offset_groups = call.attributes.Int("offset_group", 1);
  kernel[0] = w[2], kernel[1] = w[3], out[0] = y[2], out[1] = y[3];
}

bool DeformFits(const KernelCall& call) {
  const DeformSizes s(call);
  const auto two = [&](const char* name) { return call.attributes.Ints(name, {1, 1}).size() == 2; };
  return two("strides") && two("dilations") && call.attributes.Ints("pads", {0, 0, 0, 0}).size() == 4 && s.groups > 0 &&
         s.offset_groups > 0 && s.channels % s.offset_groups == 0 && s.filters % s.groups == 0 &&
         call.inputs[kDeformW].shape[1] * s.groups == s.channels &&
         call.inputs[kDeformOffset].shape == Shape{s.images, s.offset_groups * s.taps() * 2, s.out[0], s.out[1]} &&
         (!HasInput(call, kDeformMask) ||
          call.inputs[kDeformMask].shape == Shape{s.images, s.offset_groups * s.taps(), s.out[0], s.out[1]});
}

}  // namespace gradloom
