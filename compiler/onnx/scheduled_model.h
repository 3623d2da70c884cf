// A plan as an ONNX file, for viewers.
#pragma once

#include <string>

#include "runtime/plan/plan.h"

namespace gradloom {

// The bytes of a ModelProto that shows what the programs of an entry do: a node a launch, copy, meeting or transfer, edges by what they
// read and write, types, and in each node's metadata device, stream, kernel, place in the list, where it writes, and the events that it
// waits for and records. Each device has its own, of more than sixteen only one of a kind; what one sends is what the other receives. No
// weights: states, constants and feeds are inputs of the graph. Operators are ONNX's and our own; it is to be looked at and does not run.
std::string ScheduledModel(const Plan& plan, int entry);

}  // namespace gradloom
