// Which dimension of a model's inputs is the batch, by how the file declares them. Private to this directory.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "compiler/onnx/import.h"
#include "onnx/onnx_pb.h"

namespace gradloom {

// A dimension by its place: "x[0]".
std::string PlaceOf(const std::string& input, int axis);

// A dimension as the file declares it, by its place where it has no name.
std::string SymbolOf(const onnx::TensorShapeProto::Dimension& dim, const std::string& input, int axis);

// Whether the options say of a dimension that the file has as a number that it is no batch.
bool StaysAsDeclared(const onnx::ValueInfoProto& info, int axis, const ImportOptions& options);

// Whether an exporter made up the name of a dimension, or there is none: unk__12 (tf2onnx), x_dynamic_axes_1, s77 (PyTorch),
// DynamicDimension.3 (Paddle). It then says nothing of which dimensions are equal.
bool IsMadeUp(const onnx::TensorShapeProto::Dimension& dim, const std::string& input);

struct BatchAxis {
  std::string symbol;    // of the symbolic dimension that is the batch; empty: a declared one
  int64_t declared = 0;  // 0: none
};

// The inputs that are fed, and the symbols that outputs have along their first axis, and along any.
struct FedInputs {
  std::vector<const onnx::ValueInfoProto*> infos;
  std::set<std::string> first_of_outputs, of_outputs;
};

// Axis 0 is the batch by convention: the symbol that most inputs have there, but where time comes first and the next axis is the one that
// is called so; without symbols the extent of the first input that has the axis.
BatchAxis FindBatch(const FedInputs& fed, const ImportOptions& options);

// The axis of an input that has the batch, where files have it as a number; -1: none.
int DeclaredBatchAxis(const onnx::ValueInfoProto& info, int64_t declared, const ImportOptions& options);

}  // namespace gradloom
