// Batch normalization and max pooling of tensors large enough for several blocks and several loads per thread, which the table of operators
// does not cover, in both layouts and all floating-point types: compared with the float64 reference on the same numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/catalog/physical.h"
#include "kernels/cuda/rows/divisor32.h"
#include "kernels/cuda/rows/slices.h"
#include "kernels/reference/reference.h"
#include "runtime/base/half.h"
#include "tests/cuda/run_kernel.h"

namespace gradloom {
namespace {

using cuda::Divisor32;
using cuda::Slices;

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16};

Tensor InType(const Tensor& tensor, DType dtype) {
  Tensor rounded(dtype, tensor.shape());
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double value = tensor.as<double>()[static_cast<size_t>(i)];
    switch (dtype) {
      case DType::kFloat64: static_cast<double*>(rounded.data())[i] = value; break;
      case DType::kFloat16: static_cast<Half*>(rounded.data())[i] = static_cast<float>(value); break;
      case DType::kBfloat16: static_cast<Bfloat16*>(rounded.data())[i] = static_cast<float>(value); break;
      default: static_cast<float*>(rounded.data())[i] = static_cast<float>(value);
    }
  }
  return rounded;
}

// Normal, in multiples that each type represents exactly.
Tensor Random(const Shape& shape, std::mt19937_64& random, double mean = 0.5) {
  std::normal_distribution<double> normal(mean, 1);
  Tensor tensor(DType::kFloat64, shape);
  for (double& value : tensor.as<double>()) value = std::clamp(std::round(normal(random) * 16) / 16, mean - 4, mean + 4);
  return tensor;
}

// Runs a call whose operands of x's rank have the type and order given, and others the type `other`.
struct Setting {
  DType dtype, other;
  bool channels_last;
  const Aliasing* alias = nullptr;
};
std::vector<Tensor> RunIn(KernelCall call, const std::vector<Tensor>& inputs, int rank, const Setting& setting) {
  std::vector<Tensor> operands;
  for (auto* types : {&call.inputs, &call.outputs}) {
    for (OperandType& type : *types) {
      if (!type.present()) continue;
      const bool full = type.shape.rank() == rank;
      type.dtype = full ? setting.dtype : setting.other;
      if (full && setting.channels_last) type.layout = ChannelsLast(rank);
    }
  }
  for (size_t k = 0; k < inputs.size(); ++k) operands.push_back(InType(inputs[k], call.inputs[k].dtype));
  return RunKernel(*ChooseKernel(DeviceKind::kCuda, call), call, operands, setting.alias);
}

double RoundingOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return 1e-13;
    case DType::kFloat16: return 1e-3;
    case DType::kBfloat16: return 8e-3;
    default: return 2e-6;
  }
}

// Within a few roundings of the largest element.
void ExpectNear(const Tensor& got, const Tensor& wanted, const std::string& what) {
  double largest = 1e-3;
  for (double value : wanted.as<double>()) largest = std::max(largest, std::fabs(value));
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    ASSERT_NEAR(ElementAsDouble(got.view(), i), wanted.as<double>()[static_cast<size_t>(i)], RoundingOf(got.dtype()) * largest)
        << what << " element " << i;
  }
}

OperandType Double(const Shape& shape) { return {DType::kFloat64, shape, {}}; }

std::string Describe(const Shape& shape, DType dtype, bool channels_last) {
  return std::string(DTypeName(dtype)) + shape.ToString() + (channels_last ? " channels-last" : "");
}

KernelCall LineCall(const Shape& shape) {
  const OperandType c = Double({shape[1]});
  Shape beside{shape[1]};
  for (int axis = 2; axis < shape.rank(); ++axis) beside.push_back(1);
  const OperandType b = Double(beside);
  return {.op = "BatchNormLine",
          .domain = "gradloom",
          .attributes = {{"epsilon", 1e-5}},
          .inputs = {Double(shape), c, c},
          .outputs = {c, c, c, b, b, b}};
}

// Statistics are float32 or float64 for any type of elements.
DType StatisticsType(DType dtype) { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }

TEST(ChannelsLast, BatchNormalization) {
  struct Case {
    Shape shape;
    int64_t tiles, parts;  // channels-last
  };
  const Case cases[] = {
      {{2, 264, 17, 15}, 2, 3},  // two tiles; rows that no part, and no thread, gets equally many of
      {{3, 24, 41, 37}, 1, 4},   // threads that have no row in the last part
      {{2, 1000, 5, 5}, 4, 1},   // the last tile is smaller; the second is not at the start of a line of the memory
      {{3, 70, 9, 4}, 1, 1},     // channels that are no multiple of the width
      {{2, 261, 13, 11}, 2, 2},  // the same in tiles
      {{2, 3, 160, 120}, 1, 4},  // few channels, in both layouts: planes longer than a part
      {{300, 16}, 1, 1},         // without points
      {{6, 12, 2, 2}, 1, 1},     // few points
      {{5, 4, 4, 4}, 1, 1},      // parts of several images
      {{2, 8, 3, 7}, 1, 1},      // points that are no multiple of the width
  };
  constexpr Aliasing kAliases[] = {{0, 0}, {0, 1}};
  std::mt19937_64 random(7);
  for (const Case& c : cases) {
    const Shape& shape = c.shape;
    const int rank = shape.rank();
    const Slices slices = Slices::OfChannels({DType::kFloat32, shape, ChannelsLast(rank)});
    EXPECT_TRUE(slices.is_rows());
    EXPECT_EQ(slices.tiles(), c.tiles) << shape.ToString();
    EXPECT_EQ(slices.parts(), c.parts) << shape.ToString();
    const OperandType x = Double(shape), v = Double({shape[1]});
    const std::vector<Tensor> inputs{Random(shape, random), Random(v.shape, random), Random(v.shape, random)};
    KernelCall train{
        .op = "BatchNormTrain", .domain = "gradloom", .attributes = {{"epsilon", 1e-5}}, .inputs = {x, v, v}, .outputs = {x, v, v, v}};
    const KernelCall line = LineCall(shape);
    KernelCall grad{.op = "BatchNormTrainGrad", .domain = "gradloom", .attributes = {}, .inputs = {x, x, v, v, v}, .outputs = {x, v, v}};
    const std::vector<Tensor> trained = RunReference(train, inputs), lines = RunReference(line, inputs);
    // Statistics that float32 represents, so that all types see the same ones.
    const auto rounded = [](const Tensor& tensor) {
      Tensor result(DType::kFloat64, tensor.shape());
      for (size_t i = 0; i < result.as<double>().size(); ++i)
        result.as<double>()[i] = static_cast<double>(static_cast<float>(tensor.as<double>()[i]));
      return result;
    };
    const std::vector<Tensor> slopes{Random(shape, random), inputs[0], inputs[1], rounded(trained[1]), rounded(trained[2])};
    const std::vector<Tensor> gradients = RunReference(grad, slopes);
    for (DType dtype : kTypes) {
      for (bool last : {false, true}) {
        const std::string what = Describe(shape, dtype, last);
        const DType other = StatisticsType(dtype);
        const auto compare = [&](const KernelCall& call, const std::vector<Tensor>& in, const std::vector<Tensor>& wanted,
                                 const Aliasing* alias) {
          const std::vector<Tensor> got = RunIn(call, in, rank, {dtype, other, last, alias});
          for (size_t k = 0; k < wanted.size(); ++k) ExpectNear(got[k], wanted[k], what + " " + call.op + " output " + std::to_string(k));
        };
        compare(line, inputs, lines, nullptr);
        compare(train, inputs, trained, nullptr);
        compare(train, inputs, trained, &kAliases[0]);
        compare(grad, slopes, gradients, nullptr);
        for (const Aliasing& alias : kAliases) compare(grad, slopes, gradients, &alias);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Neither a large mean nor a first element far from the others costs the variance its digits.
TEST(ChannelsLast, VarianceOfDistantNumbers) {
  std::mt19937_64 random(9);
  for (const Shape& shape : {Shape{2, 264, 17, 15}, Shape{3, 7, 41, 37}, Shape{4, 16, 48, 48}}) {
    const KernelCall line = LineCall(shape);
    const Tensor ones = Random({shape[1]}, random);
    Tensor distant = Random(shape, random, 4096), spike = Random(shape, random);
    for (int64_t c = 0; c < shape[1]; ++c) spike.as<double>()[static_cast<size_t>(c * Product(shape, 2, shape.rank()))] = 3000;
    for (const Tensor& x : {distant, spike}) {
      const std::vector<Tensor> inputs{x, ones, ones}, wanted = RunReference(line, inputs);
      for (bool last : {false, true}) {
        const std::vector<Tensor> got = RunIn(line, inputs, shape.rank(), {DType::kFloat32, DType::kFloat32, last});
        for (int64_t c = 0; c < shape[1]; ++c) {
          for (size_t k : {0, 1, 2}) {  // the mean, the reciprocal deviation, the variance
            const double w = wanted[k].as<double>()[static_cast<size_t>(c)];
            ASSERT_NEAR(ElementAsDouble(got[k].view(), c), w, 1e-6 * std::fabs(w))
                << Describe(shape, DType::kFloat32, last) << " output " << k << " channel " << c;
          }
        }
      }
    }
  }
}

TEST(ChannelsLast, MaxPooling) {
  using Ints = std::vector<int64_t>;
  struct Case {
    Shape x, y;
    Attributes attributes;
  };
  const auto windows = [](Ints kernel, Ints strides, Ints pads, Ints dilations = {}) {
    Attributes attributes{{"kernel_shape", kernel}, {"strides", strides}, {"pads", pads}};
    if (!dilations.empty()) attributes.set("dilations", dilations);
    return attributes;
  };
  const Case cases[] = {
      {{2, 16, 9, 8}, {2, 16, 5, 4}, windows({3, 3}, {2, 2}, {1, 1, 1, 1})},
      {{3, 24, 7, 7}, {3, 24, 3, 3}, windows({2, 2}, {2, 2}, {0, 0, 0, 0})},
      {{2, 8, 6, 11}, {2, 8, 6, 11}, windows({1, 5}, {1, 1}, {0, 2, 0, 2})},
      {{2, 40, 8, 9}, {2, 40, 4, 5}, windows({3, 2}, {1, 1}, {0, 0, 0, 0}, {2, 4})},
      {{2, 8, 10, 7}, {2, 8, 6, 4}, windows({3, 3}, {2, 2}, {3, 2, 2, 3}, {2, 2})},
      {{2, 8, 7, 10}, {2, 8, 3, 3}, windows({2, 1}, {3, 4}, {1, 0, 1, 0})},
      {{2, 8, 5, 5}, {2, 8, 9, 9}, windows({2, 2}, {1, 1}, {3, 3, 2, 2})},  // windows of padding only
      {{2, 12, 6, 6}, {2, 12, 3, 3}, windows({3, 3}, {2, 2}, {1, 1, 1, 1})},
      {{2, 6, 6, 6}, {2, 6, 3, 3}, windows({3, 3}, {2, 2}, {1, 1, 1, 1})},
      {{2, 8, 12, 12}, {2, 8, 4, 4}, windows({9, 9}, {1, 1}, {0, 0, 0, 0})},  // more than 64 kernel elements
      {{2, 16, 13}, {2, 16, 5}, windows({4}, {3}, {2, 2})},
      {{2, 8, 4, 5, 6}, {2, 8, 3, 2, 3}, windows({2, 3, 2}, {1, 2, 2}, {0, 1, 0, 0, 0, 0})},
  };
  std::mt19937_64 random(11);
  std::uniform_int_distribution<int> eighths(-6, 6), special(0, 39);
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  for (const Case& c : cases) {
    // Few different numbers, so that there are ties; sums of a few of them are exact in all types.
    Tensor x(DType::kFloat64, c.x), dy(DType::kFloat64, c.y);
    for (double& value : x.as<double>()) {
      const int which = special(random);
      value = which == 0 ? kNan : which == 1 ? kInfinity : which <= 9 ? -kInfinity : eighths(random) / 8.0;
    }
    for (double& value : dy.as<double>()) value = eighths(random) / 8.0;
    const KernelCall pool{.op = "MaxPool", .domain = "", .attributes = c.attributes, .inputs = {Double(c.x)}, .outputs = {Double(c.y)}};
    const KernelCall grad{.op = "MaxPoolGrad",
                          .domain = "gradloom",
                          .attributes = c.attributes,
                          .inputs = {Double(c.x), Double(c.y)},
                          .outputs = {Double(c.x)}};
    const Tensor y = RunReference(pool, std::vector<Tensor>{x})[0], dx = RunReference(grad, std::vector<Tensor>{x, dy})[0];
    for (DType dtype : kTypes) {
      for (bool last : {false, true}) {
        const Setting setting{dtype, dtype, last};
        const Tensor got_y = RunIn(pool, {x}, c.x.rank(), setting)[0], got_dx = RunIn(grad, {x, dy}, c.x.rank(), setting)[0];
        for (const auto& [got, wanted] : {std::pair(&got_y, &y), std::pair(&got_dx, &dx)}) {
          for (int64_t i = 0; i < wanted->elements(); ++i) {
            const double g = ElementAsDouble(got->view(), i), w = wanted->as<double>()[static_cast<size_t>(i)];
            ASSERT_TRUE(g == w || (std::isnan(g) && std::isnan(w)))
                << Describe(c.x, dtype, last) << (wanted == &y ? " y" : " dx") << " element " << i << ": " << g << " instead of " << w;
          }
        }
      }
    }
  }
}

TEST(Divisor32, DividesAllNumbers) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  std::mt19937 random(5);
  std::uniform_int_distribution<int64_t> number(0, kMost - 1);
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d < 300; ++d) divisors.push_back(d);
  for (int bit = 9; bit < 31; ++bit) divisors.insert(divisors.end(), {(1ll << bit) - 1, 1ll << bit, (1ll << bit) + 1, 1 + number(random)});
  for (int64_t d : divisors) {
    const Divisor32 divisor(d);
    for (int k = 0; k < 100; ++k) {
      const int64_t multiple = number(random) / d * d;
      for (int64_t n : {int64_t{0}, multiple, std::max<int64_t>(multiple - 1, 0), number(random), kMost}) {
        int32_t left = static_cast<int32_t>(n);
        ASSERT_EQ(divisor.Split(left), n % d) << n << " / " << d;
        ASSERT_EQ(left, n / d) << n << " / " << d;
      }
    }
  }
}

}  // namespace
}  // namespace gradloom
