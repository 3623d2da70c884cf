// Where the parts of a model run, before any of its entries is compiled. Private to this directory.
#pragma once

#include <functional>

#include "compiler/passes/devices/place_devices.h"
#include "compiler/passes/recipe.h"

namespace gradloom {

// Whether one device gathers the samples of all devices. Then the stages are kTrunk and kTail.
bool Gathers(const Recipe& recipe);

// The number of devices that each compute the model, or the trunk of it, for their own samples.
int CopiesOf(const Recipe& recipe, const Stages& stages);

// The stages that the recipe asks for. `cut`: chooses them, if the recipe leaves it to the compiler. Throws Error(kConfig) if they do not
// fit the recipe's devices, and what `cut` throws.
Stages StagesOf(const Recipe& recipe, const std::function<Stages()>& cut);

}  // namespace gradloom
