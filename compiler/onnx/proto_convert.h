// Conversion between ONNX's protobuf messages and the types of the graph. Private to compiler/onnx.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "compiler/graph/graph.h"
#include "onnx/onnx_pb.h"
#include "runtime/base/attributes.h"
#include "runtime/base/dtype.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// The dtype of a TensorProto.DataType, or nullopt for one that a Graph cannot hold (complex numbers).
std::optional<DType> DTypeFromProto(int32_t data_type);

// "float32", or for an unsupported type ONNX's name ("COMPLEX64") or the number.
std::string ProtoTypeName(int32_t data_type);

void SetTensorType(const ValueType& type, onnx::TypeProto* proto);

// Sets the type, extents, and the elements as raw_data. Other fields (name, documentation) are not changed.
void SetTensor(const TensorView& tensor, onnx::TensorProto* proto);

// Removes the elements from a message, including references to external data. Keeps the type and extents.
void ClearElements(onnx::TensorProto* proto);

// The attribute of that name; null if the node has none.
const onnx::AttributeProto* AttributeOf(const onnx::NodeProto& node, std::string_view name);
// An integer attribute, or `absent`.
int64_t IntOf(const onnx::NodeProto& node, std::string_view name, int64_t absent);

// Sets name, type and value. Numbers that ONNX stores as float are narrowed from double.
void SetAttribute(const std::string& name, const Attribute& value, onnx::AttributeProto* proto);

}  // namespace gradloom
