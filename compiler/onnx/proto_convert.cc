#include "compiler/onnx/proto_convert.h"

#include <type_traits>
#include <utility>

#include "runtime/base/narrow.h"

namespace gradloom {

std::optional<DType> DTypeFromProto(int32_t data_type) {
  switch (data_type) {
    case onnx::TensorProto::UNDEFINED:
    case onnx::TensorProto::COMPLEX64:
    case onnx::TensorProto::COMPLEX128: return std::nullopt;
    default: break;
  }
  if (!onnx::TensorProto::DataType_IsValid(data_type) || data_type >= kDTypes) return std::nullopt;
  return static_cast<DType>(data_type);
}

std::string ProtoTypeName(int32_t data_type) {
  if (const auto dtype = DTypeFromProto(data_type)) return std::string(DTypeName(*dtype));
  if (onnx::TensorProto::DataType_IsValid(data_type)) {
    return onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(data_type));
  }
  return "number " + std::to_string(data_type);
}

void SetTensorType(const ValueType& type, onnx::TypeProto* proto) {
  auto* tensor = proto->mutable_tensor_type();
  tensor->set_elem_type(static_cast<int32_t>(type.dtype));
  auto* shape = tensor->mutable_shape();
  for (int64_t dim : type.shape) shape->add_dim()->set_dim_value(dim);
}

void ClearElements(onnx::TensorProto* proto) {
  // Deletes the string itself, because protobuf's Clear keeps its memory.
  delete proto->release_raw_data();
  google::protobuf::RepeatedField<float>().Swap(proto->mutable_float_data());
  google::protobuf::RepeatedField<int32_t>().Swap(proto->mutable_int32_data());
  google::protobuf::RepeatedField<int64_t>().Swap(proto->mutable_int64_data());
  google::protobuf::RepeatedField<double>().Swap(proto->mutable_double_data());
  google::protobuf::RepeatedField<uint64_t>().Swap(proto->mutable_uint64_data());
  proto->clear_external_data();
  proto->clear_data_location();
}

void SetTensor(const TensorView& tensor, onnx::TensorProto* proto) {
  ClearElements(proto);
  proto->clear_dims();
  proto->set_data_type(static_cast<int32_t>(tensor.dtype));
  for (int64_t dim : tensor.shape) proto->add_dims(dim);
  if (IsNarrow(tensor.dtype)) {
    std::string packed(static_cast<size_t>(PackedBytes(tensor.dtype, tensor.elements())), '\0');
    PackNarrow(tensor.dtype, {static_cast<const uint8_t*>(tensor.data), static_cast<size_t>(tensor.elements())},
               reinterpret_cast<uint8_t*>(packed.data()));
    proto->set_raw_data(std::move(packed));
    return;
  }
  // ONNX's raw data is little-endian, like all supported machines.
  proto->set_raw_data(tensor.data, static_cast<size_t>(tensor.bytes()));
}

const onnx::AttributeProto* AttributeOf(const onnx::NodeProto& node, std::string_view name) {
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

int64_t IntOf(const onnx::NodeProto& node, std::string_view name, int64_t absent) {
  const onnx::AttributeProto* attribute = AttributeOf(node, name);
  return attribute == nullptr ? absent : attribute->i();
}

void SetAttribute(const std::string& name, const Attribute& value, onnx::AttributeProto* proto) {
  using Proto = onnx::AttributeProto;
  proto->set_name(name);
  std::visit(
      [&]<typename T>(const T& v) {
        if constexpr (std::is_same_v<T, int64_t>) {
          proto->set_type(Proto::INT);
          proto->set_i(v);
        } else if constexpr (std::is_same_v<T, double>) {
          proto->set_type(Proto::FLOAT);
          proto->set_f(static_cast<float>(v));
        } else if constexpr (std::is_same_v<T, std::string>) {
          proto->set_type(Proto::STRING);
          proto->set_s(v);
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
          proto->set_type(Proto::INTS);
          for (int64_t i : v) proto->add_ints(i);
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          proto->set_type(Proto::FLOATS);
          for (double f : v) proto->add_floats(static_cast<float>(f));
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          proto->set_type(Proto::STRINGS);
          for (const std::string& s : v) proto->add_strings(s);
        } else {
          proto->set_type(Proto::TENSOR);
          SetTensor(v.view(), proto->mutable_t());
        }
      },
      value);
}

}  // namespace gradloom
