// Updates of random tensors on the CUDA device, compared with the reference kernel, and many in one launch with single ones.
// GRADLOOM_SEED=N draws different calls.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/catalog/update.h"
#include "tests/cuda/random_calls.h"

namespace gradloom {
namespace {

using namespace random_calls;  // NOLINT: all of it

// Tensors of lengths that vectors and tiles do not divide, gradients and copies in 16 bits, and states that are partly zero.
TEST(CudaRandomCalls, Updates) {
  ForEachSeed(40, [](Random& r) {
    const std::pair<const char*, int> optimizers[] = {{"Sgd", 0},      {"Sgd", 1},    {"Adam", 2},         {"Adam", 3},    {"NAdam", 2},
                                                      {"RAdam", 2},    {"Lion", 1},   {"RmsProp", 1},      {"RmsProp", 3}, {"Adagrad", 1},
                                                      {"Adadelta", 2}, {"Adamax", 2}, {"MovingAverage", 0}};
    const auto& [optimizer, states] = optimizers[r.Int(0, 12)];
    const DType dtype = r.Int(0, 3) == 0 ? DType::kFloat64 : DType::kFloat32, half = r.Coin() ? DType::kFloat16 : DType::kBfloat16;
    const Shape shape{r.Coin() ? r.Int(1, 20) : r.Int(2000, 9000)};
    std::vector<Tensor> operands = {r.Reals(shape, -1, 1, dtype),
                                    r.Reals(shape, -1, 1, dtype == DType::kFloat32 && r.Coin() ? half : dtype),
                                    r.Reals({}, 0.01, 0.02, dtype),
                                    Tensor::Scalar<int64_t>(r.Int(1, 2000)),
                                    r.Coin() ? r.Reals({}, 0.5, 1, dtype) : Tensor(),
                                    r.Int(0, 3) == 0 ? Tensor::Scalar<bool>(r.Coin()) : Tensor()};
    const double least = r.Coin() ? 0.1 : 0;
    for (int k = 0; k < states; ++k) operands.push_back(r.Reals(shape, least, least == 0 ? 0 : 1, dtype));
    Attributes attributes{{"weight_decay", r.Coin() ? 0.1 : 0.0}};
    const std::string name = optimizer;
    if ((name == "Sgd" && states == 1) || (name == "RmsProp" && states == 3)) attributes.set("momentum", 0.9);
    if (name == "RmsProp" && states == 3) attributes.set("centered", int64_t{1});
    if (name == "Adam" && states == 3) attributes.set("amsgrad", int64_t{1});
    std::vector<OperandType> outputs(static_cast<size_t>(1 + states), Out(dtype, shape));
    const bool copied = dtype == DType::kFloat32 && r.Coin();
    if (copied) {
      attributes.set("copy_type", static_cast<int64_t>(half));
      outputs.push_back(Out(half, shape));
    }
    Compare(Case(optimizer, "gradloom", operands, outputs, attributes), copied ? 0x1p-7 : dtype == DType::kFloat64 ? 1e-12 : 1e-5);
  });
}

// One launch and many launches give the same bits.
void ExpectBitsOfSingleUpdates(const Case& all) {
  const KernelRow* const row = ChooseKernel(DeviceKind::kCuda, all.call);
  ASSERT_NE(row, nullptr);
  const std::vector<Tensor> got = RunKernel(*row, all.call, all.inputs);
  const DType copy = CopyTypeOf(all.call.attributes);
  for (int tensor = 0; tensor < TensorsOf(all.call); ++tensor) {
    const KernelCall update = UpdateOf(all.call, tensor);
    std::vector<Tensor> inputs;
    for (int input : UpdateInputs(all.call, tensor)) inputs.push_back(input < 0 ? Tensor() : all.inputs[static_cast<size_t>(input)]);
    const std::vector<Tensor> single = RunKernel(*ChooseKernel(DeviceKind::kCuda, update), update, inputs);
    const std::vector<int> places = UpdateOutputs(all.call, tensor);
    for (size_t k = 0; k < places.size(); ++k) {
      ASSERT_EQ(std::memcmp(got[static_cast<size_t>(places[k])].data(), single[k].data(), static_cast<size_t>(single[k].bytes())), 0)
          << "tensor " << tensor << ", output " << k;
    }
    if (copy == DType::kUndefined) continue;
    const Tensor rounded = Converted(single[0].view(), copy);
    ASSERT_EQ(CopiedOutput(all.call, places.back()), places[0]);
    ASSERT_EQ(std::memcmp(single.back().data(), rounded.data(), static_cast<size_t>(rounded.bytes())), 0) << "tensor " << tensor;
  }
}

// The middle one has more tiles than a launch has blocks.
TEST(CudaRandomCalls, MultiTensorUpdatesOfManyTiles) {
  ForEachSeed(1, [](Random& r) {
    std::vector<Tensor> operands = {Tensor::Scalar<float>(0.01F), Tensor::Scalar<int64_t>(1), Tensor(), Tensor()};
    std::vector<OperandType> outputs;
    for (int64_t elements : {r.Int(1, 5000), (int64_t{1} << 22) + r.Int(1, 9999), r.Int(1, 99)}) {
      for (int k = 0; k < 2; ++k) operands.push_back(r.Reals({elements}, -1, 1, DType::kFloat32));
      outputs.push_back(Out(DType::kFloat32, {elements}));
    }
    ExpectBitsOfSingleUpdates(
        Case("MultiTensorUpdate", "gradloom", operands, outputs, {{"update", std::string("Sgd")}, {"tensors", int64_t{3}}}));
  });
}

TEST(CudaRandomCalls, MultiTensorUpdates) {
  ForEachSeed(30, [](Random& r) {
    const std::pair<const char*, std::vector<int>> optimizers[] = {
        {"Sgd", {0, 1}},        {"Adam", {2, 3}}, {"NAdam", {2}},    {"RAdam", {2}},  {"Lion", {1}},
        {"RmsProp", {1, 2, 3}}, {"Adagrad", {1}}, {"Adadelta", {2}}, {"Adamax", {2}}, {"MovingAverage", {0}}};
    const auto& [optimizer, numbers] = optimizers[r.Int(0, 9)];
    const int states = numbers[static_cast<size_t>(r.Int(0, static_cast<int64_t>(numbers.size()) - 1))];
    const DType dtype = r.Int(0, 3) == 0 ? DType::kFloat64 : DType::kFloat32;
    std::vector<Tensor> operands = {Tensor::Scalar<float>(0.01F), Tensor::Scalar<int64_t>(r.Int(1, 9)),
                                    r.Coin() ? r.Reals({}, 0.5, 1, dtype) : Tensor(), r.Coin() ? Tensor::Scalar<bool>(r.Coin()) : Tensor()};
    Attributes attributes{{"weight_decay", r.Coin() ? 0.1 : 0.0}, {"lr_scale", 0.5}};
    if (states > 0 && std::string(optimizer) != "Adam") attributes.set("momentum", 0.9);
    attributes.set("update", std::string(optimizer));
    std::vector<OperandType> outputs, copies;
    const int64_t tensors = r.Int(1, 32);
    attributes.set("tensors", tensors);
    const DType half = r.Coin() ? DType::kFloat16 : DType::kBfloat16;
    const bool copied = r.Coin();
    if (copied) attributes.set("copy_type", static_cast<int64_t>(half));
    for (int64_t tensor = 0; tensor < tensors; ++tensor) {
      const Shape shape = r.Coin() ? Shape{r.Int(1, 5000)} : Shape{r.Int(1, 9), r.Int(1, 9)};
      const DType gradient = dtype == DType::kFloat32 && r.Coin() ? half : dtype;
      for (int k = 0; k < 2 + states; ++k) operands.push_back(r.Reals(shape, k == 0 ? -1 : 0.1, 1, k == 1 ? gradient : dtype));
      for (int k = 0; k < 1 + states; ++k) outputs.push_back(Out(dtype, shape));
      if (copied) copies.push_back(Out(half, shape));
    }
    outputs.insert(outputs.end(), copies.begin(), copies.end());
    SCOPED_TRACE(std::string(optimizer) + " with " + std::to_string(states) + " states");
    ExpectBitsOfSingleUpdates(Case("MultiTensorUpdate", "gradloom", operands, outputs, attributes));
  });
}

}  // namespace
}  // namespace gradloom
