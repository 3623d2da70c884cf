// Recognizes tensors in files that are not weights, by their content or by the names that PyTorch gives them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/tensor.h"

namespace gradloom {

// Whether the name looks like an attribute of a module ("encoder.layers.0.scale") or like a variable of TensorFlow
// ("net/scale/ReadVariableOp:0"), not like a number in the code ("val_3", "/Constant_1", "arith.constant2").
bool IsModulePath(const std::string& name);

// The same for any attribute, also of the outermost module ("scale") and of a list ("scales.0").
bool IsAttribute(const std::string& name);

// The reason not to train a tensor of this name: a running statistic, which it is also if its normalization is written out, or a number in
// the code by the name that torch.export or the converters of TensorFlow, Paddle and scikit-learn give it. Empty for all others.
std::string FixedByName(const std::string& name);

// Whether a name is the one that PyTorch's older exporter gives the output of a Constant, or of another node without inputs from the data:
// "/layer/Constant_3_output_0". Tools (onnxsim, onnxoptimizer, onnxruntime) make initializers of such and leave them the name.
bool IsCalledConstant(const std::string& name);

bool AllZero(const Tensor& data);

// Whether it looks like a mask: zeros and ones in a product; in a sum 0 and large negative numbers, 0 and one number of -100 or less (as in
// window attention), or any numbers and some that hide elements: infinite ones, or one of -10000 or less that is repeated and far from the
// others (as if a tensor holds the distances of ALiBi, too).
bool LooksLikeMask(const Tensor& data, bool product);

// A table of positions, [..., even]: each row holds the sines of some angles and their cosines, in halves or alternating, or zeros; or
// several such parts side by side, one for each axis of an image.
bool IsSinusoidTable(const Tensor& data);

// A filter that sums a window: ones everywhere.
bool IsSummingWindow(const Tensor& data);

// 0, 1, 2 and so on, eight or more.
bool IsCounting(const Tensor& data);

// Whether the tensors are the cosines and the sines of the same angles, up to one factor, as rotary positions are written.
bool IsRotation(const Tensor& a, const Tensor& b);

// Finds the other half of a rotation among many tensors without comparing all pairs of them. The tensors must outlive it.
class RotationTables {
 public:
  void Add(const Tensor& data);
  // Whether a tensor that was added, other than this very object, makes a rotation with it.
  bool HasOtherHalf(const Tensor& data) const;

 private:
  // Tensors of one type, by how much the square of the last element exceeds that of the first.
  struct Group {
    double most = 0;  // the largest square of a first element
    std::multimap<double, const Tensor*> by_change;
  };
  static double Square(const Tensor& data, int64_t element);
  static double ChangeOf(const Tensor& data);  // NaN if it cannot be half of a rotation

  std::map<std::pair<DType, std::vector<int64_t>>, Group> groups_;
};

}  // namespace gradloom
