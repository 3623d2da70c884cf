// ONNX's multi-device annotations (IR version 11): which node of a model is on which device, and how tensors are divided.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "compiler/onnx/import.h"

namespace gradloom {

// Where parts of a model are: `stages` devices hold one copy of it, and `devices` / `stages` copies share each batch. Device c * stages + s
// has stage s of copy c.
struct DevicePlacement {
  int devices = 1;
  int stages = 1;
  std::map<std::string, int> of_node;     // the stage, by the name that a node has in a Graph (its origin)
  std::map<std::string, int> batch_axes;  // of the model's inputs and outputs that have the batch
  std::string device = "cpu";             // the kind
};

// What a file says of devices.
struct FilePlacement {
  std::optional<DevicePlacement> placement;
  std::string note;  // one line: that more is said than is read, or why nothing of it can be; empty: it is read, or there is nothing
};

// The placement that the file's first configuration describes. It can be read where stages are whole numbers of devices, activations are
// divided by samples (axis 0) over all copies, and weights are whole; anything else is left aside, with a note. Does not throw.
FilePlacement ReadPlacement(const Model& model);

}  // namespace gradloom
