// The messages of ONNX that can contain graphs or tensors, and therefore each other. Private to compiler/onnx.
#pragma once

#include <cstdint>

namespace gradloom {

enum class MessageKind : uint8_t { kModel, kGraph, kNode, kAttribute, kFunction, kTraining, kTensor, kSparseTensor, kOther };

// The kind of a field of a message by its number in onnx.proto.
inline MessageKind ChildKind(MessageKind kind, uint64_t field) {
  using Kind = MessageKind;
  switch (kind) {
    case Kind::kModel: return field == 7 ? Kind::kGraph : field == 25 ? Kind::kFunction : field == 20 ? Kind::kTraining : Kind::kOther;
    case Kind::kGraph: return field == 1 ? Kind::kNode : field == 5 ? Kind::kTensor : field == 15 ? Kind::kSparseTensor : Kind::kOther;
    case Kind::kNode: return field == 5 ? Kind::kAttribute : Kind::kOther;
    case Kind::kAttribute:
      if (field == 6 || field == 11) return Kind::kGraph;
      if (field == 5 || field == 10) return Kind::kTensor;
      return field == 22 || field == 23 ? Kind::kSparseTensor : Kind::kOther;
    case Kind::kFunction: return field == 7 ? Kind::kNode : field == 11 ? Kind::kAttribute : Kind::kOther;
    case Kind::kTraining: return field == 1 || field == 2 ? Kind::kGraph : Kind::kOther;
    case Kind::kSparseTensor: return field == 1 || field == 2 ? Kind::kTensor : Kind::kOther;
    case Kind::kTensor:
    case Kind::kOther: break;
  }
  return Kind::kOther;
}

// The field of a TensorProto with its elements.
inline constexpr uint64_t kRawDataField = 9;

// A field of a TensorProto that is our own, with the largest number that protobuf allows: the index of elements that are kept elsewhere.
inline constexpr uint64_t kMovedField = (uint64_t{1} << 29) - 1;

}  // namespace gradloom
