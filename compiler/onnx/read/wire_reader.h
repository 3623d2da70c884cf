// Reads and checks the bytes of a file before protobuf parses them. Private to compiler/onnx.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/onnx/import.h"
#include "compiler/onnx/read/model_bytes.h"
#include "onnx/onnx_pb.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// What is done with the raw data of tensors. kMoved: elements are read separately, and so stored in memory only once. In protobuf strings,
// and with the file in memory before it is parsed, large models would be in memory three times.
enum class Elements : uint8_t { kMoved, kSkipped };

struct WireModel {
  // The serialized ModelProto of the file, without the raw data of tensors that was taken or skipped.
  std::string message;
  // Tensors of rank 1 with the tensors' types. MovedElements returns which of them belongs to a tensor of the message.
  std::vector<Tensor> elements;
};

// Throws Error(kParse) for bytes that are not a ModelProto: other kinds of files (with a hint), broken or truncated fields anywhere in
// graphs, nodes, attributes and tensors, and graphs nested deeper than limits.nesting. Throws Error(kLimit) for more nodes than
// limits.nodes. The memory used does not grow with sizes that the bytes only claim, and there is no recursion.
WireModel ReadWire(ModelBytes& bytes, Elements elements, const std::string& where, const ModelLimits& limits);

// The index in WireModel::elements of the data of a tensor in its parsed message; -1: the data is in the message itself. Removes the marker
// with this index from the message.
int64_t MovedElements(onnx::TensorProto& tensor);

// Marks a tensor whose elements are separate, so that MovedElements returns this index.
void MarkMoved(int64_t index, onnx::TensorProto& tensor);

// The same index, without removing the marker; and the removal alone.
int64_t MarkedElements(const onnx::TensorProto& tensor);
void RemoveMark(onnx::TensorProto& tensor);

// For ONNX's text syntax: throws Error(kParse) if it is nested too deeply.
void CheckText(std::string_view text, const std::string& where, const ModelLimits& limits);

}  // namespace gradloom
