// Compiles every source that is compiled at run time, with the actual compiler: NVRTC needs no GPU.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/catalog/pointwise_tensors.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/pointwise_source.h"
#include "runtime/base/error.h"
#include "runtime/base/run_on_threads.h"

namespace gradloom {
namespace {

TEST(RuntimeSources, CompileForEveryArchitecture) {
  // Every function of pointwise programs, one call each, so that none is left out; those of 16-bit results differ.
  for (int op = 0; op < 2 * kNumPointwiseOps; ++op) {
    const auto function = static_cast<PointwiseOp>(op / 2);
    const OperandType result{op % 2 == 0 ? DType::kFloat32 : DType::kBfloat16, {2, 8}, {}};
    const int operands = PointwiseOperands(function);
    PointwiseProgram program{.num_inputs = 3, .constants = {0.5F}};
    program.outputs = {program.Emit(function, 0, operands > 1 ? 1 : -1, operands > 2 ? 3 : -1)};
    const OperandType wide{DType::kFloat32, {2, 8}, {}}, row{DType::kFloat32, {8}, {}}, truth{DType::kBool, {2, 1}, {}};
    const KernelCall call{
        .op = "Fused", .domain = "gradloom", .attributes = program.ToAttributes(), .inputs = {wide, row, truth}, .outputs = {result}};
    const cuda::PointwiseSource source = cuda::WritePointwiseSource(call, program, true);
    EXPECT_EQ(source.width, 4);
    try {
      EXPECT_FALSE(cuda::CompileForDevice(source.text, "sm_90").empty());
    } catch (const Error& error) {
      ADD_FAILURE() << PointwiseOpName(function) << "\n"
                    << error.Describe() << "\n"
                    << source.text.substr(source.text.find("struct Arguments"));
    }
  }
}

// As many groups of tensors as a launch may have, whose addresses nearly fill the parameters of a kernel.
TEST(RuntimeSources, CompileForGroupsOfTensors) {
  for (const size_t inputs : {size_t{1}, size_t{3}, size_t{8}}) {
    const int tensors = MaxFusedTensors(inputs, 1);
    PointwiseProgram program{.num_inputs = static_cast<int>(inputs), .constants = {0.9F}};
    int sum = program.Emit(PointwiseOp::kMul, 0, static_cast<int>(inputs));
    for (size_t k = 1; k < inputs; ++k) sum = program.Emit(PointwiseOp::kAdd, sum, static_cast<int>(k));
    program.outputs = {sum};
    KernelCall call{.op = "FusedTensors", .domain = "gradloom", .attributes = program.ToAttributes(), .inputs = {}, .outputs = {}};
    call.attributes.set("tensors", int64_t{tensors});
    for (int tensor = 0; tensor < tensors; ++tensor) {
      const OperandType operand{DType::kFloat32, {3 + tensor}, {}};
      for (size_t k = 0; k < inputs; ++k) call.inputs.push_back(k == 1 ? OperandType{DType::kFloat32, {}, {}} : operand);
      call.outputs.push_back(operand);
    }
    ASSERT_EQ(RejectsFusedTensors(call), "");
    for (const bool preserves_state : {false, true}) {
      const std::string text = cuda::WriteTensorsSource(call, preserves_state).text;
      for (const char* isa : {"sm_80", "sm_90"}) EXPECT_FALSE(cuda::CompileForDevice(text, isa).empty());
    }
  }
}

// Libraries::CompileAhead relies on it.
TEST(RuntimeSources, ThreadsCompileTheSameCode) {
  std::vector<std::string> sources;
  for (int64_t elements = 8; elements < 40; elements += 4) {
    PointwiseProgram program{.num_inputs = 2};
    program.outputs = {program.Emit(PointwiseOp::kAdd, 0, 1)};
    const OperandType operand{DType::kFloat32, {elements}, {}};
    const KernelCall call{
        .op = "Fused", .domain = "gradloom", .attributes = program.ToAttributes(), .inputs = {operand, operand}, .outputs = {operand}};
    sources.push_back(cuda::WritePointwiseSource(call, program, false).text);
  }
  std::vector<std::string> codes(sources.size());
  RunOnThreads(static_cast<int64_t>(sources.size()), 4,
               [&](int64_t i) { codes[static_cast<size_t>(i)] = cuda::CompileForDevice(sources[static_cast<size_t>(i)], "sm_90"); });
  for (size_t i = 0; i < sources.size(); ++i) EXPECT_EQ(codes[i], cuda::CompileForDevice(sources[i], "sm_90"));
  EXPECT_NE(codes[0], codes[1]);
}

TEST(RuntimeSources, ShapesDecideTheWidth) {
  PointwiseProgram program{.num_inputs = 2};
  program.outputs = {program.Emit(PointwiseOp::kAdd, 0, 1)};
  const auto width = [&](const Shape& a, const Shape& b, const Shape& out, DType dtype) {
    const KernelCall call{.op = "Fused",
                          .domain = "gradloom",
                          .attributes = program.ToAttributes(),
                          .inputs = {{dtype, a, {}}, {dtype, b, {}}},
                          .outputs = {{dtype, out, {}}}};
    const cuda::PointwiseSource source = cuda::WritePointwiseSource(call, program, false);
    EXPECT_FALSE(cuda::CompileForDevice(source.text, "sm_80").empty());
    return source.width;
  };
  EXPECT_EQ(width({4, 8}, {4, 8}, {4, 8}, DType::kFloat32), 4);
  EXPECT_EQ(width({4, 8}, {}, {4, 8}, DType::kBfloat16), 8);
  EXPECT_EQ(width({4, 8}, {4, 1}, {4, 8}, DType::kFloat16), 8);
  EXPECT_EQ(width({4, 12}, {12}, {4, 12}, DType::kFloat16), 4);
  EXPECT_EQ(width({4, 3, 8}, {4, 1, 8}, {4, 3, 8}, DType::kBfloat16), 8);
  EXPECT_EQ(width({4, 7}, {7}, {4, 7}, DType::kFloat32), 1);
  EXPECT_EQ(width({3, 4, 1}, {3, 4, 6}, {3, 4, 6}, DType::kFloat32), 1);
  EXPECT_EQ(width({}, {}, {}, DType::kFloat32), 1);
}

// Rows of an odd number of elements, which are padded to whole words; the bias has none.
TEST(RuntimeSources, PaddedRowsHaveTheWidthOfWords) {
  PointwiseProgram program{.num_inputs = 3};
  program.outputs = {program.Emit(PointwiseOp::kWhere, 2, program.Emit(PointwiseOp::kAdd, 0, 1), 0),
                     program.Emit(PointwiseOp::kGreater, 0, 1)};
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
    const Layout layout{.order = {}, .blocks = {{1, 16 / DTypeBytes(dtype)}}};
    const OperandType padded{dtype, {4, 7}, layout}, truths{DType::kBool, {4, 7}, layout}, bias{dtype, {7}, {}};
    const KernelCall call{.op = "Fused",
                          .domain = "gradloom",
                          .attributes = program.ToAttributes(),
                          .inputs = {padded, bias, truths},
                          .outputs = {padded, truths}};
    const cuda::PointwiseSource source = cuda::WritePointwiseSource(call, program, true);
    EXPECT_EQ(source.width, 16 / DTypeBytes(dtype));
    for (const char* isa : {"sm_80", "sm_90"}) EXPECT_FALSE(cuda::CompileForDevice(source.text, isa).empty());
  }
}

TEST(RuntimeSources, ReportsCompileErrors) {
  try {
    cuda::CompileForDevice("extern \"C\" __global__ void f( {", "sm_90");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDevice);
    EXPECT_NE(error.where().find("expected"), std::string::npos) << error.Describe();
  }
}

}  // namespace
}  // namespace gradloom
