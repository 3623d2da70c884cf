// A plan as an ONNX file, for viewers.
#pragma once

#include <string>

#include "runtime/plan/plan.h"

namespace gradloom {

// The bytes of a ModelProto that shows the programs of an entry. It has one node for each launch, copy, collective operation or transfer,
// edges for reads and writes, and types. The metadata of each node has its device, stream, kernel, position in the list, the addresses that
// it writes, and the events that it waits for and records. Each device has its own nodes; with more than sixteen devices, only one of each
// kind is shown. The result of a send is the operand of its receive. There are no weights: states, constants and feeds are inputs of the
// graph. The operators are those of ONNX and Gradloom. The model is for viewing and cannot be executed.
std::string ScheduledModel(const Plan& plan, int entry);

}  // namespace gradloom
