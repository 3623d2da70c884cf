// Tensors that files hold beside their weights, told by what is in them or by the names that PyTorch gives.
#pragma once

#include <string>

#include "runtime/base/tensor.h"

namespace gradloom {

// Whether it is called as an attribute of a module is, "encoder.layers.0.scale", and not as a number in the code ("val_3", "/Constant_1").
bool IsModulePath(const std::string& name);

// The same of any attribute, also of the outermost module ("scale") and of a list ("scales.0").
bool IsAttribute(const std::string& name);

// What a name says against training the tensor: a running statistic, which is one also where its normalization is written out, or a
// tensor that torch.export lifted out of the code. Empty for all others.
std::string FixedByName(const std::string& name);

bool AllZero(const Tensor& data);

// What is multiplied or added to leave things out: zeros and ones in a product; in a sum 0 and large negative numbers, or 0 and one number
// of -100 or less (as in window attention).
bool LooksLikeMask(const Tensor& data, bool product);

// A table of positions, [..., even]: each row holds the sines of some angles and their cosines, in halves or in turn, or zeros; or several
// such parts side by side, one for each axis of an image.
bool IsSinusoidTable(const Tensor& data);

// A window of a sum, as a filter: ones everywhere.
bool IsSummingWindow(const Tensor& data);

// 0, 1, 2 and so on, eight or more.
bool IsCounting(const Tensor& data);

// Whether the tensors are the cosines and the sines of the same angles, up to one factor, as rotary positions are written.
bool IsRotation(const Tensor& a, const Tensor& b);

}  // namespace gradloom
