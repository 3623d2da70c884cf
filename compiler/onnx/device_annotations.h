// ONNX's multi-device annotations (IR version 11): the devices of a model's nodes, and how tensors are divided.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "compiler/onnx/import.h"

namespace gradloom {

// The devices of the parts of a model. `stages` devices hold one copy of the model, and `devices` / `stages` copies share each batch.
// Device c * stages + s has stage s of copy c.
struct DevicePlacement {
  int devices = 1;
  int stages = 1;
  std::map<std::string, int> of_node;     // the stage of a node, by its name in a Graph (its origin)
  std::map<std::string, int> batch_axes;  // the batch axis of the model's inputs and outputs that have one
  std::string device = "cpu";             // the kind of the devices
};

// The devices given in a file.
struct FilePlacement {
  std::optional<DevicePlacement> placement;
  std::string note;  // one line: that some annotations are ignored, or why none can be used; empty: all are used, or there are none
};

// The placement described by the file's first configuration. It can be used if each stage is a whole number of devices, activations are
// divided by samples (axis 0) over all copies, and weights are not divided. Anything else is ignored, with a note. Does not throw.
FilePlacement ReadPlacement(const Model& model);

}  // namespace gradloom
