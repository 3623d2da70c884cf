// The launches from which the times of attention, products and batch normalization are predicted are those that the kernels make.
#include "kernels/catalog/kernel_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/catalog/physical.h"
#include "tests/cuda/attention_calls.h"
#include "tests/cuda/emulated_runtime.h"
#include "tests/cuda/run_kernel.h"

namespace gradloom {
namespace {

using namespace attention_calls;  // NOLINT: all of it

// The launches and fills since the first `before` calls.
int64_t LaunchesSince(size_t before) {
  const auto& calls = emulated::Calls();
  return std::count_if(calls.begin() + static_cast<std::ptrdiff_t>(before), calls.end(),
                       [](const emulated::Call& call) { return call.what == "launch" || call.what == "fill"; });
}

TEST(KernelWork, CountsTheLaunchesOfAttentionOverProducts) {
  std::vector<Case> cases = Cases();
  cases.push_back({"two parts", 4, 1, 1, 1 << 13, 1, 1, 1});
  cases.push_back({"parts of heads side by side", 4, 2, 2, 1 << 12, 1, 3, 4, true});
  for (const Case& c : cases) {
    for (const std::vector<int64_t>& wanted : std::vector<std::vector<int64_t>>{{}, {0, 1, 2}, {1}, {2, 0}}) {
      for (DType dtype : {DType::kFloat32, DType::kBfloat16}) {
        SCOPED_TRACE(c.note + (wanted.empty() ? "" : ", gradient") + " in " + std::string(DTypeName(dtype)));
        const KernelCall call = InType(CallOf(c, wanted), dtype);
        std::vector<Tensor> operands;
        for (const Tensor& input : RandomInputs(CallOf(c, wanted), 1)) operands.push_back(Rounded(input, dtype));
        const KernelRow& row = *FindKernel(RowOf(call));
        const size_t before = emulated::Calls().size();
        RunKernel(row, call, operands);
        double launches = 0;
        for (const KernelWork& work : WorkOf(row, call, {})) launches += work.launches;
        EXPECT_EQ(launches, static_cast<double>(LaunchesSince(before)));
      }
    }
  }
}

// The product, a pass that reads its result and GELU's operand and writes the gradient, and the sums of the columns.
TEST(KernelWork, CountsThePassesAfterAProduct) {
  const auto type = [](Shape shape) { return OperandType{DType::kBfloat16, std::move(shape), {}}; };
  for (const bool sums : {true, false}) {
    const KernelCall call{.op = "GemmGeluGrad",
                          .domain = "gradloom",
                          .attributes = {},
                          .inputs = {type({40, 8}), type({8, 16}), type({40, 16})},
                          .outputs = {type({40, 16}), sums ? type({16}) : OperandType{}}};
    std::vector<Tensor> operands;
    for (const OperandType& input : call.inputs) operands.push_back(Converted(Tensor(DType::kFloat32, input.shape).view(), input.dtype));
    const KernelRow& row = *FindKernel("cublas.gradloom.GemmGeluGrad");
    const size_t before = emulated::Calls().size();
    RunKernel(row, call, operands);
    double launches = 0, bytes = 0;
    for (const KernelWork& work : WorkOf(row, call, {})) launches += work.launches, bytes += work.bytes;
    EXPECT_EQ(launches, static_cast<double>(LaunchesSince(before)));
    // Three runs of rows.
    EXPECT_EQ(bytes, 2 * (40 * 8 + 8 * 16 + 4 * (40 * 16)) + (sums ? 2 * 4 * (3 * 16) + 2 * 16 : 0));
  }
}

// A batch normalization of 6 channels, in both layouts: the launches of every form, and the passes over memory of the larger ones.
TEST(KernelWork, CountsThePassesOfBatchNormalization) {
  const Shape shape{5, 6, 7, 4};
  const OperandType none, full{DType::kBfloat16, shape, {}}, c{DType::kFloat32, {6}, {}}, line{DType::kFloat32, {6, 1, 1}, {}},
      sums{DType::kFloat64, {2, 6}, {}};
  struct Form {
    std::string op;
    std::vector<OperandType> inputs, outputs;
    int64_t passes;  // over tensors of the shape
    std::string domain = "gradloom";
    Attributes attributes = {};
  };
  const Form forms[] = {
      {"BatchNormLine", {full, c, c}, {c, c, c, line, line, line}, 1},
      {"BatchNormTrain", {full, c, c}, {full, c, c, c}, 3},
      {"BatchNormTrainGrad", {full, full, c, c, c}, {full, c, c}, 5},
      {"BatchNormTrainGrad", {full, full, c, c, c}, {none, c, c}, 2},
      {"MaskedBatchNormGrad", {full, none, none, full, c, c, c, line, line}, {full, c, c, none}, 5},
      {"MaskedBatchNormGrad", {full, full, full, full, c, c, c}, {full, c, c, full}, 8},
      {"MaskedBatchNormGrad", {full, none, full, full, c, c, c}, {none, c, c, full}, 4},
      {"BatchNormSums", {full}, {sums}, 1},
      {"BatchNormStatistics", {sums, c}, {c, c, c}, 0},
      {"BatchNormApply", {full, c, c, sums}, {full}, 2},
      {"BatchNormGradSums", {full, full, c}, {sums}, 2},
      {"BatchNormGradApply", {full, full, c, c, c, sums}, {full}, 3},
      {"BatchNormGradParameters", {sums, c}, {c, c}, 0},
      {"BatchNormalization", {full, c, c, c, c}, {full}, 2, ""},
      {"BatchNormalization", {full, c, c, c, c}, {full, c, c}, 3, "", {{"training_mode", kOne}}},
  };
  for (const Form& form : forms) {
    for (const Layout& layout : {Layout{}, ChannelsLast(4)}) {
      SCOPED_TRACE(form.op + " " + layout.ToString());
      KernelCall call{.op = form.op, .domain = form.domain, .attributes = form.attributes, .inputs = form.inputs, .outputs = form.outputs};
      for (auto* operands : {&call.inputs, &call.outputs}) {
        for (OperandType& operand : *operands) operand.layout = operand.shape == shape ? layout : Layout{};
      }
      std::vector<Tensor> operands;
      for (const OperandType& input : call.inputs)
        operands.push_back(input.present() ? Converted(Tensor(DType::kFloat32, input.shape).view(), input.dtype) : Tensor());
      const KernelRow& row = *ChooseKernel(DeviceKind::kCuda, call);
      const size_t before = emulated::Calls().size();
      RunKernel(row, call, operands);
      double launches = 0, bytes = 0;
      for (const KernelWork& work : WorkOf(row, call, {})) launches += work.launches, bytes += work.bytes;
      EXPECT_EQ(launches, static_cast<double>(LaunchesSince(before)));
      // What belongs to a channel is far less than a pass.
      const double pass = static_cast<double>(full.bytes());
      EXPECT_GE(bytes, static_cast<double>(form.passes) * pass);
      EXPECT_LT(bytes, (static_cast<double>(form.passes) + 0.9) * pass);
    }
  }
}

// Two samples of two heads, causal, in two blocks of 256 queries, in float32.
TEST(KernelWork, CountsTheScoresThatAreWrittenAndRead) {
  const Case c{"", 2, 2, 2, 512, 512, 64, 64, false, {{"is_causal", kOne}}};
  const auto bytes = [&](const std::vector<int64_t>& wanted) {
    double sum = 0;
    const KernelCall call = CallOf(c, wanted);
    for (const KernelWork& work : WorkOf(*FindKernel(RowOf(call)), call, {})) sum += work.bytes;
    return sum;
  };
  // In elements: the scores of both blocks; vectors of 256 queries; those of the keys that a block reads, 256 and 512.
  const double scores = 4 * 256 * (256 + 512), queries = 4 * 256 * 64, keys = 4 * (256 + 512) * 64;
  // Scores: written by their product, read and written by the softmax, read by the product with V.
  EXPECT_EQ(bytes({}), 4 * (4 * scores + 2 * (2 * queries) + 2 * keys));
  // The scores and the gradients of the weights are written, both are read and written, and three products read one of them each. Q and dY
  // are read twice, and the gradient of Q is written. Blocks read K twice and V once, and add to both gradients, which began as zeros.
  EXPECT_EQ(bytes({0, 1, 2}), 4 * ((2 + 4 + 3) * scores + 5 * (2 * queries) + 3 * keys + 2 * (2 * keys) + 2 * (4 * 512 * 64)));
}

// GPT-2's attention, 16 samples of 12 heads, in two parts whose scores have gradients of 192 MiB. Each repeats the forward pass, unless the
// call is given what that computed.
TEST(KernelWork, CountsTheGradientsOfScoresThatCudnnStores) {
  const Case c{"", 16, 12, 12, 1024, 1024, 64, 64, false, {{"is_causal", kOne}}};
  const KernelCall call = InType(CallOf(c, {0, 1, 2}), DType::kBfloat16);
  const KernelRow& row = *FindKernel("cudnn.gradloom.AttentionGrad");
  ASSERT_EQ(Rejection(row, call), "");
  const double operand = 2.0 * 16 * 12 * 1024 * 64, scores = 2.0 * 16 * 12 * 1024 * 1024;
  const std::vector<KernelWork> work = WorkOf(row, call, {1, 5, 7 * operand});
  ASSERT_EQ(work.size(), 2U);
  EXPECT_EQ(work[0].launches, 2);
  EXPECT_EQ(work[0].flops, 2);
  EXPECT_EQ(work[0].bytes, 4 * operand);
  EXPECT_EQ(work[1].launches, 2);
  EXPECT_EQ(work[1].flops, 5);
  EXPECT_EQ(work[1].bytes, 8 * operand + 2 * scores);
  KernelCall kept = call;
  kept.inputs.push_back(kept.inputs[7]);
  kept.inputs.push_back({DType::kFloat32, {16, 12, 1024}, {}});
  ASSERT_EQ(Rejection(row, kept), "");
  EXPECT_LT(row.scratch_bytes(kept), row.scratch_bytes(call));
  const std::vector<KernelWork> less = WorkOf(row, kept, {1, 5, 8 * operand});
  ASSERT_EQ(less.size(), 1U);
  EXPECT_EQ(less[0].launches, 2);
  EXPECT_EQ(less[0].flops, 5);
  EXPECT_EQ(less[0].bytes, 8 * operand + 2 * scores);
}

}  // namespace
}  // namespace gradloom
