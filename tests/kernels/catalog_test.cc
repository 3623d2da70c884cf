#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kernels/catalog/kernel.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/reference/reference.h"

namespace gradloom {
namespace {

OperandType Plain(DType dtype, Shape shape) { return {dtype, std::move(shape), {}}; }

KernelCall CopyCall(Shape from, Shape to) {
  return {.op = "Reshape",
          .domain = "",
          .attributes = {},
          .inputs = {Plain(DType::kFloat32, from), Plain(DType::kInt64, {to.rank()})},
          .outputs = {Plain(DType::kFloat32, to)},
          .threads = 2};
}

TEST(Catalog, NamesAreUniqueAndFound) {
  std::set<std::string_view> names;
  for (DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    for (const KernelRow* row : KernelRows(device)) {
      EXPECT_TRUE(names.insert(row->name).second) << row->name;
      EXPECT_EQ(FindKernel(row->name), row);
      EXPECT_EQ(row->device, device);
    }
  }
  EXPECT_EQ(FindKernel("no such kernel"), nullptr);
}

TEST(Catalog, ReferenceKernelsComeLast) {
  bool seen = false;
  for (const KernelRow* row : KernelRows(DeviceKind::kCpu)) {
    const bool reference = row->name.starts_with("reference.");
    EXPECT_TRUE(reference || !seen) << row->name;
    seen |= reference;
  }
  for (const ReferenceKernel* kernel : AllReferenceKernels()) {
    const std::string name = "reference." + (kernel->domain.empty() ? "" : std::string(kernel->domain) + ".") + std::string(kernel->op);
    EXPECT_NE(FindKernel(name), nullptr) << name;
  }
}

TEST(Catalog, ChoosesByLayoutAndReportsRejections) {
  KernelCall call = CopyCall({2, 6}, {3, 4});
  const KernelRow* row = ChooseKernel(DeviceKind::kCpu, call);
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->name, "cpu.Reshape");
  call.inputs[0].layout = Layout::FromString("10");
  std::string why;
  EXPECT_EQ(ChooseKernel(DeviceKind::kCpu, call, &why), nullptr);
  EXPECT_NE(why.find("cpu.Reshape: layout 10 to plain"), std::string::npos) << why;
  try {
    MakeCpuKernel(*row, call);
    FAIL() << "a rejected call was prepared";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPlan);
  }
}

TEST(CopyKernel, CopiesEveryByte) {
  for (int64_t n : {0, 1, 17, 300001}) {
    const KernelCall call = CopyCall({n, 3}, {3, n});
    const KernelRow* row = ChooseKernel(DeviceKind::kCpu, call);
    ASSERT_NE(row, nullptr);
    Tensor in(DType::kFloat32, {n, 3}), out(DType::kFloat32, {3, n});
    for (size_t i = 0; i < in.as<float>().size(); ++i) in.as<float>()[i] = static_cast<float>(i + 1);
    const void* inputs[] = {in.data(), nullptr};
    void* outputs[] = {out.data()};
    MakeCpuKernel(*row, call)->Run(inputs, outputs, nullptr, nullptr);
    for (size_t i = 0; i < in.as<float>().size(); ++i) ASSERT_EQ(out.as<float>()[i], in.as<float>()[i]);
  }
}

}  // namespace
}  // namespace gradloom
