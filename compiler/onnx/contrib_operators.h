// The operators that onnxruntime adds to ONNX's ("contrib operators"): what its optimizers write into a file in the place of several of
// ONNX's. Each is written out in ONNX's operators when a model is imported. Private to this directory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "onnx/defs/schema.h"

namespace gradloom {

// Their domain. One of them, SimplifiedLayerNormalization, lies in ONNX's own.
inline constexpr std::string_view kContribDomain = "com.microsoft";

// The schema of such an operator, with the builder of its body in ONNX's operators at kOpset; null where we have none. The builder throws
// Error(kUnsupported, kShape) without a place where a node has a form that is not taken.
const onnx::OpSchema* FindContribSchema(std::string_view domain, const std::string& op);

// What can be done about an operator of onnxruntime's domains that is not taken; empty for one of another domain.
std::string HelpOfContrib(std::string_view domain);

}  // namespace gradloom
