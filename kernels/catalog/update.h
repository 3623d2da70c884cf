// The attributes and calls of optimizer operators. The order of their operands: runtime/base/update_form.h.
#pragma once

#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/scalar/optimizers.h"
#include "runtime/base/update_form.h"

namespace gradloom {

// The type of the copies that an update or a MultiTensorUpdate writes; kUndefined: it writes none.
DType CopyTypeOf(const Attributes& attributes);
// The number of states of an update of one parameter.
size_t StatesOf(const KernelCall& call);
// The output, a next parameter, of which output `output` of an update or a MultiTensorUpdate is the copy; -1 if it is no copy.
int CopiedOutput(const KernelCall& call, int output);

// The number of parameters of a MultiTensorUpdate; -1 if its number of operands does not match.
int TensorsOf(const KernelCall& call);
// The update of a single parameter.
KernelCall UpdateOf(const KernelCall& call, int tensor);
// The indices of that update's operands among the call's: inputs (-1: absent) and outputs.
std::vector<int> UpdateInputs(const KernelCall& call, int tensor);
std::vector<int> UpdateOutputs(const KernelCall& call, int tensor);

// Returns why an update cannot be computed element by element, or "". Parameter, gradient, states and their next values must have the same
// type and layout, and a copy the same layout; the gradient of a float32 parameter may have 16 bits. Layouts with padding, which must stay
// zero, are rejected if the update of zeros by a zero gradient is not zero.
std::string RejectsUnequalOperands(const KernelCall& call);

// The learning-rate factor of the node's parameter group.
inline double LrScale(const Attributes& attributes) { return attributes.Float("lr_scale", 1); }

// The options of gradloom.Sgd, Adam, NAdam, RAdam, Lion, RmsProp, Adagrad, Adadelta, Adamax, LambDirection and MovingAverage.
scalar::SgdOptions SgdOptionsOf(const Attributes& attributes);
scalar::AdamOptions AdamOptionsOf(const Attributes& attributes);
scalar::NAdamOptions NAdamOptionsOf(const Attributes& attributes);
scalar::RAdamOptions RAdamOptionsOf(const Attributes& attributes);
scalar::LionOptions LionOptionsOf(const Attributes& attributes);
scalar::RmsPropOptions RmsPropOptionsOf(const Attributes& attributes);
scalar::AdagradOptions AdagradOptionsOf(const Attributes& attributes);
scalar::AdadeltaOptions AdadeltaOptionsOf(const Attributes& attributes);
scalar::AdamaxOptions AdamaxOptionsOf(const Attributes& attributes);
scalar::MovingAverageOptions MovingAverageOptionsOf(const Attributes& attributes);

}  // namespace gradloom
