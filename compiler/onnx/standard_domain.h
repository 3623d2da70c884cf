// The domain of ONNX's own operators, which has two spellings. Private to compiler/onnx.
#pragma once

#include <string_view>

#include "onnx/onnx_pb.h"

namespace gradloom {

inline bool IsStandardDomain(std::string_view domain) { return domain.empty() || domain == "ai.onnx"; }

// Whether the node is ONNX's own operator of this name.
inline bool IsStandard(const onnx::NodeProto& node, std::string_view op) { return node.op_type() == op && IsStandardDomain(node.domain()); }

}  // namespace gradloom
