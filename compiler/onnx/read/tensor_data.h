// Reads the elements of TensorProto and SparseTensorProto. They are checked before memory is allocated. Private to compiler/onnx.
#pragma once

#include <string>

#include "compiler/onnx/import.h"
#include "compiler/onnx/read/external_data.h"
#include "onnx/onnx_pb.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// The tensor, including its external data. `raw`: its raw data, as a tensor of rank 1, if it was removed from the message; null: the
// message is complete. `where` names the tensor in messages. Throws Error(kTensor) if dims, type and data do not agree, kUnsupported for an
// element type that a Graph cannot hold, kLimit for a tensor that exceeds `limits`, and what ExternalData throws.
Tensor ReadTensor(const onnx::TensorProto& proto, const std::string& where, ExternalData& external, const ModelLimits& limits,
                  const Tensor* raw = nullptr);

// The bytes that a tensor's type and dims claim of external data; 0 if it has none, or if they are not valid (ReadTensor says why).
int64_t ClaimedExternalBytes(const onnx::TensorProto& proto);

// The same as ReadTensor for a sparse tensor. The result is dense.
Tensor ReadSparseTensor(const onnx::SparseTensorProto& proto, const std::string& where, ExternalData& external, const ModelLimits& limits,
                        const Tensor* raw_values = nullptr, const Tensor* raw_indices = nullptr);

}  // namespace gradloom
