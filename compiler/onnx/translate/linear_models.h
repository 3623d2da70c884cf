// The linear models of scikit-learn (ai.onnx.ml), which keep their coefficients in attributes. Private to compiler/onnx.
#pragma once

#include <string_view>

#include "onnx/onnx_pb.h"

namespace gradloom {

// Whether it is such an operator.
bool IsLinearModel(std::string_view domain, std::string_view op);

// Replaces each LinearRegressor and LinearClassifier of the main graph by a product with an initializer NAME/coefficients of shape
// [features, rows], a sum with NAME/intercepts [rows], and its transformation and class labels in ONNX's operators, so that the
// coefficients can be trained and are exported as weights. NAME is the node's name or, without one, that of its first output. A vector is
// one sample for a classifier, as for ONNX's type inference; a regression of a vector has a vector of targets, as ONNX's reference. Forms
// with other transformations than NONE, LOGISTIC and SOFTMAX, or whose attributes contradict each other, are left as they are, and so are
// those for which implementations differ: a transformed regression of one target, and one row of coefficients for two classes without
// LOGISTIC.
void WriteOutLinearModels(onnx::ModelProto& model);

}  // namespace gradloom
