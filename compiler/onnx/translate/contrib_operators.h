// The operators that onnxruntime adds to ONNX's ("contrib operators"). Its optimizers write them into a file in place of several standard
// operators. The import expands each into standard operators, and so a few of TensorFlow's that tf2onnx does not convert, and
// one that ONNX had for Caffe2. Private to this directory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "onnx/defs/schema.h"

namespace gradloom {

// The domain of these operators. SimplifiedLayerNormalization and those of TensorFlow and Caffe2 are in ONNX's own domain.
inline constexpr std::string_view kContribDomain = "com.microsoft";

// The schema of such an operator, with the builder of its body in ONNX's operators at kOpset; null for an operator that is not supported.
// The builder throws Error(kUnsupported, kShape), without a place, for an unsupported form of a node.
const onnx::OpSchema* FindContribSchema(std::string_view domain, const std::string& op);

// What the user can do about an unsupported operator of onnxruntime's domains; empty for an operator of another domain.
std::string HelpOfContrib(std::string_view domain);

}  // namespace gradloom
