// Elements of TensorProto and SparseTensorProto, checked before memory is taken. Private to this directory.
#pragma once

#include <string>

#include "compiler/onnx/external_data.h"
#include "compiler/onnx/import.h"
#include "onnx/onnx_pb.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// The tensor, its external data read. `raw`: what it has as raw data, of rank 1, in place of a field of the message; null: the message is
// whole. `where` names it in messages. Throws Error(kTensor) where dims, type and data do not agree, kUnsupported for an element type that
// no Graph holds, kLimit for one past `limits`, and what ExternalData throws.
Tensor ReadTensor(const onnx::TensorProto& proto, const std::string& where, ExternalData& external, const ModelLimits& limits,
                  const Tensor* raw = nullptr);

// The same of a sparse tensor, written out in full.
Tensor ReadSparseTensor(const onnx::SparseTensorProto& proto, const std::string& where, ExternalData& external, const ModelLimits& limits,
                        const Tensor* raw_values = nullptr, const Tensor* raw_indices = nullptr);

}  // namespace gradloom
