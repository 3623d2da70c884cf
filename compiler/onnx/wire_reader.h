// A file's bytes before protobuf sees them. Private to this directory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/onnx/import.h"
#include "compiler/onnx/model_bytes.h"
#include "onnx/onnx_pb.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// What becomes of tensors' raw data. Taken apart, elements are written to memory once: protobuf's strings, and a file in memory before it
// is parsed, would hold large models three times.
enum class Elements : uint8_t { kTaken, kSkipped };

struct WireModel {
  // A serialized ModelProto: the file's, without raw data of tensors that was taken or skipped.
  std::string message;
  // Rank 1, of the tensors' types. Which belongs to a tensor of the message is TakenElements' to say.
  std::vector<Tensor> elements;
};

// Throws Error(kParse) for bytes that are no ModelProto: other kinds of file (with a hint), broken or cut-off
// fields anywhere in graphs, nodes, attributes and tensors, graphs nested deeper than limits.nesting; Error(kLimit) for more
// nodes than limits.nodes. Takes no memory that grows with what the bytes claim, and does not recurse.
WireModel ReadWire(ModelBytes& bytes, Elements elements, const std::string& where, const ModelLimits& limits);

// The index among WireModel::elements of what a tensor of its parsed message has; -1: it has what stands in the message. Removes what said
// so.
int64_t TakenElements(onnx::TensorProto& tensor);

// For ONNX's text syntax: throws Error(kParse) where it is nested too deeply.
void CheckText(std::string_view text, const std::string& where, const ModelLimits& limits);

}  // namespace gradloom
