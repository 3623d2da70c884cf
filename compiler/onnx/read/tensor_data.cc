#include "compiler/onnx/read/tensor_data.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/onnx/proto_convert.h"
#include "runtime/base/checked.h"
#include "runtime/base/dispatch.h"
#include "runtime/base/narrow.h"

namespace gradloom {
namespace {

using onnx::TensorProto;

[[noreturn]] void Fail(const std::string& message, const std::string& where) { throw Error(ErrorCode::kTensor, message, where); }

Shape ReadDims(const google::protobuf::RepeatedField<int64_t>& dims, const std::string& where) {
  if (dims.size() > kMaxRank)
    Fail("a tensor has rank " + std::to_string(dims.size()) + "; the limit is " + std::to_string(kMaxRank), where);
  Shape shape;
  for (int64_t dim : dims) {
    if (dim < 0) Fail("a tensor has the negative extent " + std::to_string(dim), where);
    shape.push_back(dim);
  }
  const auto elements = shape.checked_elements();
  if (!elements) Fail("the extents " + shape.ToString() + " are too large for any memory", where);
  return shape;
}

// Must be called before memory is allocated.
void CheckSize(const Shape& shape, int64_t bytes, const std::string& where, const ModelLimits& limits) {
  if (bytes <= limits.value_bytes) return;
  throw Error(ErrorCode::kLimit,
              "a tensor of shape " + shape.ToString() + " takes " + std::to_string(bytes) + " bytes; the limit is " +
                  std::to_string(limits.value_bytes) + " per value",
              where);
}

// The number of elements in each data field of the message.
struct Fields {
  int64_t raw = 0;  // in bytes
  int64_t floats = 0, int32s = 0, int64s = 0, doubles = 0, uint64s = 0, strings = 0;
  std::string used_names() const {
    std::string text;
    for (const auto& [name, count] :
         {std::pair("raw_data", raw), std::pair("float_data", floats), std::pair("int32_data", int32s), std::pair("int64_data", int64s),
          std::pair("double_data", doubles), std::pair("uint64_data", uint64s), std::pair("string_data", strings)}) {
      if (count > 0) text += (text.empty() ? "" : ", ") + std::string(name);
    }
    return text;
  }
  int used() const { return (raw > 0) + (floats > 0) + (int32s > 0) + (int64s > 0) + (doubles > 0) + (uint64s > 0) + (strings > 0); }
};

Fields FieldsOf(const TensorProto& proto) {
  return {static_cast<int64_t>(proto.raw_data().size()),
          proto.float_data_size(),
          proto.int32_data_size(),
          proto.int64_data_size(),
          proto.double_data_size(),
          proto.uint64_data_size(),
          proto.string_data_size()};
}

DType ReadDType(const TensorProto& proto, const std::string& where) {
  const int32_t type = proto.data_type();
  if (type == TensorProto::UNDEFINED || !TensorProto::DataType_IsValid(type))
    Fail("a tensor has the invalid element type " + std::to_string(type), where);
  const auto dtype = DTypeFromProto(type);
  if (!dtype || *dtype == DType::kString) {
    throw Error(ErrorCode::kUnsupported, "a tensor has elements of type " + ProtoTypeName(type) + ", which is not supported", where);
  }
  return *dtype;
}

template <typename T, typename From>
void Store(const google::protobuf::RepeatedField<From>& from, Tensor& to) {
  T* out = to.as<T>().data();
  for (int i = 0; i < from.size(); ++i) out[i] = static_cast<T>(from[i]);
}

// int32_data holds the bits of 16-bit floating-point numbers.
void StoreBits16(const google::protobuf::RepeatedField<int32_t>& from, Tensor& to) {
  auto* out = static_cast<uint16_t*>(to.data());
  for (int i = 0; i < from.size(); ++i) out[i] = static_cast<uint16_t>(from[i]);
}

// For narrow types, each entry of int32_data holds one byte of raw data; a float6 has an entry of its own.
std::vector<uint8_t> PackedField(const TensorProto& proto) { return {proto.int32_data().begin(), proto.int32_data().end()}; }

bool IsPackedInField(DType dtype) { return NarrowBits(dtype) != 6; }

// Returns the number of entries of its field that a tensor needs.
int64_t FieldEntries(DType dtype, int64_t elements) {
  return IsNarrow(dtype) && IsPackedInField(dtype) ? PackedBytes(dtype, elements) : elements;
}

// Returns the number of bytes in raw data and in external files; nullopt if it exceeds memory.
std::optional<int64_t> FileBytes(DType dtype, int64_t elements) {
  return IsNarrow(dtype) ? PackedBytes(dtype, elements) : CheckedMul(elements, DTypeBytes(dtype));
}

void Unpack(const uint8_t* packed, Tensor& tensor) {
  UnpackNarrow(tensor.dtype(), packed, {static_cast<uint8_t*>(tensor.data()), static_cast<size_t>(tensor.elements())});
}

// Returns the number of elements in the field that ONNX assigns to the type.
int64_t FieldCount(DType dtype, const Fields& fields) {
  switch (dtype) {
    case DType::kFloat32: return fields.floats;
    case DType::kFloat64: return fields.doubles;
    case DType::kInt64: return fields.int64s;
    case DType::kUint32:
    case DType::kUint64: return fields.uint64s;
    default: return fields.int32s;
  }
}

void StoreField(const TensorProto& proto, Tensor& tensor) {
  if (IsNarrow(tensor.dtype())) {
    const std::vector<uint8_t> bytes = PackedField(proto);
    if (IsPackedInField(tensor.dtype())) return Unpack(bytes.data(), tensor);
    auto* out = static_cast<uint8_t*>(tensor.data());
    for (size_t i = 0; i < bytes.size(); ++i) out[i] = bytes[i] & 0x3F;
    return;
  }
  switch (tensor.dtype()) {
    case DType::kFloat32: return Store<float>(proto.float_data(), tensor);
    case DType::kFloat64: return Store<double>(proto.double_data(), tensor);
    case DType::kInt64: return Store<int64_t>(proto.int64_data(), tensor);
    case DType::kUint32: return Store<uint32_t>(proto.uint64_data(), tensor);
    case DType::kUint64: return Store<uint64_t>(proto.uint64_data(), tensor);
    case DType::kInt32: return Store<int32_t>(proto.int32_data(), tensor);
    case DType::kInt16: return Store<int16_t>(proto.int32_data(), tensor);
    case DType::kInt8: return Store<int8_t>(proto.int32_data(), tensor);
    case DType::kUint16: return Store<uint16_t>(proto.int32_data(), tensor);
    case DType::kUint8: return Store<uint8_t>(proto.int32_data(), tensor);
    case DType::kBool: return Store<bool>(proto.int32_data(), tensor);
    default: return StoreBits16(proto.int32_data(), tensor);
  }
}

// After import every bool is 0 or 1, while files may hold any byte.
void NormalizeBools(Tensor& tensor) {
  if (tensor.dtype() != DType::kBool) return;
  auto* bytes = static_cast<unsigned char*>(tensor.data());
  for (int64_t i = 0; i < tensor.elements(); ++i) bytes[i] = bytes[i] != 0 ? 1 : 0;
}

}  // namespace

int64_t ClaimedExternalBytes(const TensorProto& proto) {
  if (proto.data_location() != TensorProto::EXTERNAL) return 0;
  const auto dtype = DTypeFromProto(proto.data_type());
  const auto elements = Shape(std::vector<int64_t>(proto.dims().begin(), proto.dims().end())).checked_elements();
  if (!dtype || *dtype == DType::kString || proto.dims_size() > kMaxRank || !elements) return 0;
  return FileBytes(*dtype, *elements).value_or(0);
}

Tensor ReadTensor(const TensorProto& proto, const std::string& where, ExternalData& external, const ModelLimits& limits,
                  const Tensor* raw) {
  if (proto.has_segment()) {
    Fail("a tensor has the segment " + std::to_string(proto.segment().begin()) + " to " + std::to_string(proto.segment().end()) +
             "; segmented tensors are no longer part of ONNX",
         where);
  }
  Fields fields = FieldsOf(proto);
  if (raw != nullptr) {
    if (fields.raw > 0) Fail("a tensor has raw data twice", where);
    fields.raw = raw->bytes();
  }
  if (proto.data_type() == TensorProto::STRING && fields.raw > 0) Fail("strings must not be stored in raw_data", where);
  if (fields.used() > 1) Fail("a tensor holds its elements in several fields: " + fields.used_names(), where);
  const Shape shape = ReadDims(proto.dims(), where);
  const DType dtype = ReadDType(proto, where);
  const auto bytes = FileBytes(dtype, shape.elements());
  if (!bytes) Fail("the extents " + shape.ToString() + " are too large for any memory", where);
  if (proto.has_data_location() && proto.data_location() == TensorProto::EXTERNAL) {
    if (fields.used() > 0) Fail("a tensor has both external and inline data", where);
    external.Check(proto, where, *bytes);
    CheckSize(shape, *bytes, where, limits);
    Tensor tensor(dtype, shape);
    if (IsNarrow(dtype)) {
      std::vector<uint8_t> packed(static_cast<size_t>(*bytes));
      external.Read(proto, where, packed.data(), *bytes);
      Unpack(packed.data(), tensor);
      return tensor;
    }
    external.Read(proto, where, tensor.data(), *bytes);
    NormalizeBools(tensor);
    return tensor;
  }
  const int64_t entries = FieldEntries(dtype, shape.elements()), in_field = FieldCount(dtype, fields);
  if (fields.used() == 1 && fields.raw == 0 && in_field == 0) {
    Fail("elements of type " + std::string(DTypeName(dtype)) + " are in a field for another type: " + fields.used_names(), where);
  }
  if (fields.raw > 0 ? fields.raw != *bytes : in_field != entries) {
    Fail("a tensor of shape " + shape.ToString() + " and type " + std::string(DTypeName(dtype)) + " takes " +
             (fields.raw > 0 ? std::to_string(*bytes) + " bytes, but has " + std::to_string(fields.raw)
                             : std::to_string(entries) + " elements, but has " + std::to_string(in_field)),
         where);
  }
  if (raw != nullptr && raw->dtype() == dtype) return raw->Reshaped(shape);
  Tensor tensor(dtype, shape);
  // If protobuf merged two messages, the final type can differ from the one before the data.
  const void* const bytes_in_file = raw != nullptr ? raw->data() : proto.raw_data().data();
  if (fields.raw > 0 && IsNarrow(dtype)) {
    Unpack(static_cast<const uint8_t*>(bytes_in_file), tensor);
  } else if (fields.raw > 0) {
    std::memcpy(tensor.data(), bytes_in_file, static_cast<size_t>(fields.raw));
  } else {
    StoreField(proto, tensor);
  }
  NormalizeBools(tensor);
  return tensor;
}

Tensor ReadSparseTensor(const onnx::SparseTensorProto& proto, const std::string& where, ExternalData& external, const ModelLimits& limits,
                        const Tensor* raw_values, const Tensor* raw_indices) {
  const Tensor values = ReadTensor(proto.values(), where + " (its values)", external, limits, raw_values);
  const Tensor indices = ReadTensor(proto.indices(), where + " (its indices)", external, limits, raw_indices);
  const Shape shape = ReadDims(proto.dims(), where);
  if (values.shape().rank() != 1)
    Fail("the values of a sparse tensor must have rank 1, got " + std::to_string(values.shape().rank()), where);
  if (indices.dtype() != DType::kInt64) Fail("the indices of a sparse tensor must be int64", where);
  const int64_t count = values.elements();
  const bool linear = indices.shape() == Shape{count};
  if (!linear && indices.shape() != Shape{count, shape.rank()}) {
    Fail("a sparse tensor of " + std::to_string(count) + " values has indices of shape " + indices.shape().ToString(), where);
  }
  const int64_t bytes_each = DTypeBytes(values.dtype());
  const auto bytes = CheckedMul(shape.elements(), bytes_each);
  // A few bytes can declare a huge tensor, so its dense form must obey the limit for folded constants.
  if (!bytes || *bytes > limits.fold_total_bytes) {
    throw Error(ErrorCode::kLimit,
                "a sparse tensor of shape " + shape.ToString() + " takes more than " + std::to_string(limits.fold_total_bytes) +
                    " bytes as a dense tensor",
                where);
  }
  Tensor dense(values.dtype(), shape);
  const auto strides = shape.strides();
  const auto at = indices.as<int64_t>();
  int64_t previous = -1;
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0;
    if (linear) {
      offset = at[static_cast<size_t>(i)];
      if (offset < 0 || offset >= shape.elements())
        Fail("index " + std::to_string(offset) + " is out of range for a sparse tensor of shape " + shape.ToString(), where);
    } else {
      for (int axis = 0; axis < shape.rank(); ++axis) {
        const int64_t index = at[static_cast<size_t>(i * shape.rank() + axis)];
        if (index < 0 || index >= shape[axis])
          Fail("index " + std::to_string(index) + " is out of range for a sparse tensor of shape " + shape.ToString(), where);
        offset += index * strides[static_cast<size_t>(axis)];
      }
    }
    if (offset <= previous) {
      Fail("the indices of a sparse tensor must be in ascending order: element " + std::to_string(offset) + " comes after " +
               std::to_string(previous),
           where);
    }
    previous = offset;
    std::memcpy(static_cast<char*>(dense.data()) + offset * bytes_each, static_cast<const char*>(values.data()) + i * bytes_each,
                static_cast<size_t>(bytes_each));
  }
  return dense;
}

}  // namespace gradloom
