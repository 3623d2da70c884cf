// The gradient of attention gives the same results whether it repeats the forward pass or is given Y and the log-sum-exps of the scores, by
// every kernel, from the forward pass of every kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/catalog/attention.h"
#include "kernels/catalog/kernel.h"
#include "kernels/cuda/rows/attention.h"
#include "kernels/reference/reference.h"
#ifndef ON_GPU
#include "tests/cuda/emulated_dnn.h"
#endif
#include "tests/cuda/random_calls.h"
#include "tests/cuda/run_kernel.h"
#include "tests/kernels/packed_attention.h"

namespace gradloom {
namespace {

using packed_attention::Call;
using packed_attention::Pair;

constexpr size_t kOperands = 7, kGradY = 7;  // of attention; the index of the gradient of Y

DType LogSumsType(DType dtype) { return DTypeBytes(dtype) == 2 ? DType::kFloat32 : dtype; }

// The training form of the forward pass of a gradient.
Call TrainingOf(const Call& gradient) {
  Call training;
  const KernelCall& call = gradient.call;
  training.call = {.op = "AttentionTraining", .domain = "gradloom", .attributes = call.attributes, .inputs = {}, .outputs = {}};
  training.call.attributes.erase("wanted");
  training.call.inputs.assign(call.inputs.begin(), call.inputs.begin() + kOperands);
  training.inputs.assign(gradient.inputs.begin(), gradient.inputs.begin() + kOperands);
  const AttentionForm form = AttentionFormOf(call);
  training.call.outputs = {
      call.inputs[kGradY], {}, {}, {}, {LogSumsType(call.inputs[0].dtype), {form.batch, form.q.heads, form.q.length}, {}}};
  return training;
}

// The same without log-sum-exps.
KernelCall PlainForm(KernelCall training) {
  training.op = "Attention";
  training.domain = training.attributes.has("packed") ? "gradloom" : "";
  training.outputs.resize(1);
  return training;
}

// A gradient that is given the results of the training form.
Call Given(Call gradient, const std::vector<Tensor>& forward) {
  for (const Tensor& kept : {forward[0], forward[attention::kLogSums]}) {
    gradient.call.inputs.push_back({kept.dtype(), kept.shape(), {}});
    gradient.inputs.push_back(kept);
  }
  return gradient;
}

std::string FamilyOf(const KernelRow& row) { return packed_attention::FamilyOf(row); }

std::vector<const KernelRow*> RowsOf(const KernelCall& call) {
  std::vector<const KernelRow*> rows;
  for (const KernelRow* row : KernelRows(DeviceKind::kCuda)) {
    if (row->op == call.op && row->domain == call.domain && Rejection(*row, call).empty()) rows.push_back(row);
  }
  return rows;
}

bool SameBits(const Tensor& a, const Tensor& b) { return std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0; }

#ifdef ON_GPU
// cuDNN takes long to prepare a call, and rounds more often than its emulation. It may choose another kernel for a forward pass that keeps
// nothing.
constexpr int kRounds = 8, kLeast = 1;
constexpr bool kLibraryBits = false;
constexpr double kOfFloat16 = 0.01, kOfBfloat16 = 0.06, kOfLibraryLogSums = 1e-3;
#else
constexpr int kRounds = 30, kLeast = 4;
constexpr bool kLibraryBits = true;
constexpr double kOfFloat16 = 4e-3, kOfBfloat16 = 3e-2, kOfLibraryLogSums = 1e-5;
#endif

// Y is rounded, and probabilities are computed from one number per query instead of two.
void ExpectNear(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted, DType dtype, const std::string& what) {
  const double allowed = dtype == DType::kFloat64   ? 1e-13
                         : dtype == DType::kFloat32 ? 1e-5
                         : dtype == DType::kFloat16 ? kOfFloat16
                                                    : kOfBfloat16;
  for (size_t k = 0; k < wanted.size(); ++k) {
    double largest = 1;
    for (int64_t i = 0; i < wanted[k].elements(); ++i) largest = std::max(largest, std::fabs(ElementAsDouble(wanted[k].view(), i)));
    for (int64_t i = 0; i < wanted[k].elements(); ++i) {
      ASSERT_NEAR(ElementAsDouble(got[k].view(), i), ElementAsDouble(wanted[k].view(), i), allowed * largest)
          << what << " output " << k << " element " << i;
    }
  }
}

// Queries that see no key have an infinite log-sum-exp by Gradloom's kernels, and about the lowest number by cuDNN.
void ExpectLogSums(const Tensor& got, const Tensor& wanted, const KernelRow& row) {
  const double allowed = wanted.dtype() == DType::kFloat64 ? 1e-13 : row.name.starts_with("cudnn.") ? kOfLibraryLogSums : 1e-5;
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    const double w = ElementAsDouble(wanted.view(), i), g = ElementAsDouble(got.view(), i);
    if (std::isfinite(w)) {
      ASSERT_NEAR(g, w, allowed * std::max(1.0, std::fabs(w))) << row.name << " query " << i;
    } else if (row.name.starts_with("cuda.")) {
      ASSERT_EQ(g, w) << row.name << " query " << i;
    } else {
      ASSERT_LT(g, -6e4) << row.name << " query " << i;
    }
  }
}

// The operands of the training form on which all types agree.
Call Widened(Call training) {
  for (size_t i = 0; i < kOperands; ++i) {
    if (!training.inputs[i].defined() || training.inputs[i].dtype() == DType::kBool || DTypeBytes(training.inputs[i].dtype()) != 2)
      continue;
    training.inputs[i] = Converted(training.inputs[i].view(), DType::kFloat32);
    training.call.inputs[i].dtype = DType::kFloat32;
  }
  if (DTypeBytes(training.call.outputs[0].dtype) == 2) training.call.outputs[0].dtype = DType::kFloat32;
  return training;
}

bool HasBlindQuery(const Tensor& log_sums) {
  for (int64_t i = 0; i < log_sums.elements(); ++i) {
    if (std::isinf(ElementAsDouble(log_sums.view(), i))) return true;
  }
  return false;
}

// The row that repeats the forward pass as `forward` computes it: by cuDNN a query that sees no key gets some mean of the values, by
// Gradloom's kernels zeros, and a gradient that is given the results follows them. `row` itself if its family is that of `forward`, or has
// no other row for the call.
const KernelRow& SameFamily(const KernelRow& row, const KernelRow& forward, const KernelCall& gradient) {
  for (const KernelRow* other : RowsOf(gradient)) {
    if (FamilyOf(row) != FamilyOf(forward) && FamilyOf(*other) == FamilyOf(forward)) return *other;
  }
  return row;
}

// By row of the gradient, the number of compared calls.
using Tally = std::map<std::string, int>;

void CompareKept(const Call& gradient, Tally& tally) {
  const DType dtype = gradient.call.inputs[0].dtype;
  const Call training = TrainingOf(gradient), wide = Widened(training);
  const Tensor log_sums = RunReference(wide.call, wide.inputs)[attention::kLogSums];
  const bool blind = HasBlindQuery(log_sums);
  const KernelCall plain = PlainForm(training.call);
  for (const KernelRow* forward : RowsOf(training.call)) {
    const std::vector<Tensor> kept = RunKernel(*forward, training.call, training.inputs);
    ExpectLogSums(kept[attention::kLogSums], log_sums, *forward);
    for (const KernelRow* row : RowsOf(plain)) {
      if (FamilyOf(*row) != FamilyOf(*forward)) continue;
      const Tensor y = RunKernel(*row, plain, training.inputs)[0];
      if (kLibraryBits || !row->name.starts_with("cudnn.")) {
        EXPECT_TRUE(SameBits(y, kept[0])) << row->name;
      } else {
        ExpectNear({y}, {kept[0]}, dtype, std::string(row->name));
      }
    }
    const Call given = Given(gradient, kept);
    for (const KernelRow* row : RowsOf(given.call)) {
      const std::string what = std::string(row->name) + " after " + std::string(forward->name);
      ASSERT_EQ(Rejection(*row, gradient.call), "") << what;
      ++tally[what];
      const KernelRow& repeating = blind && forward->name.starts_with("cuda.") ? SameFamily(*row, *forward, gradient.call) : *row;
      const std::vector<Tensor> got = RunKernel(*row, given.call, given.inputs);
      const std::vector<Tensor> wanted = RunKernel(repeating, gradient.call, gradient.inputs);
      ExpectNear(got, wanted, dtype, what);
      if (!kLibraryBits || !row->name.starts_with("cudnn.") || !forward->name.starts_with("cudnn.")) continue;
      for (size_t k = 0; k < wanted.size(); ++k) EXPECT_TRUE(SameBits(got[k], wanted[k])) << what << " output " << k;
    }
  }
}

TEST(KeptLogSums, GiveTheSameGradients) {
  Tally tally;
  random_calls::ForEachSeed(kRounds, [&](random_calls::Random& draw) {
    std::mt19937_64 random(static_cast<uint64_t>(draw.Int(0, int64_t{1} << 60)));
    for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16, DType::kFloat64}) {
      const Pair pair(random, dtype, true);
      if (pair.separate.call.op != "AttentionGrad") continue;
      CompareKept(pair.separate, tally);
      CompareKept(pair.packed, tally);
    }
  });
  for (const char* row : {"cudnn.gradloom.AttentionGrad after cudnn.gradloom.AttentionTraining",
                          "cuda.gradloom.AttentionGrad after cuda.gradloom.AttentionTraining",
                          "cuda.gradloom.AttentionGrad after cudnn.gradloom.AttentionTraining",
                          "cudnn.gradloom.AttentionGrad after cuda.gradloom.AttentionTraining"}) {
    EXPECT_GE(tally[row], kLeast) << row;
  }
  EXPECT_EQ(tally.size(), 4U);
}

// The gradient of attention over rows of this shape, [batch, heads, positions, elements].
Call GradientOf(std::mt19937_64& random, DType dtype, const Shape& q, const Shape& k, const Shape& mask) {
  const OperandType query{dtype, q, {}}, key{dtype, k, {}};
  Call gradient;
  gradient.call = {.op = "AttentionGrad",
                   .domain = "gradloom",
                   .attributes = {{"wanted", std::vector<int64_t>{0, 1, 2}}, {"is_causal", int64_t{1}}},
                   .inputs = {query, key, key, {}, {}, {}, {}, query, {}, {}},
                   .outputs = {query, key, key}};
  if (mask.rank() > 0) gradient.call.inputs[3] = {dtype, mask, {}};
  for (const OperandType& type : gradient.call.inputs) {
    std::vector<double> values(static_cast<size_t>(type.present() ? type.shape.elements() : 0));
    for (double& value : values) value = std::uniform_real_distribution<double>(-1, 1)(random);
    gradient.inputs.push_back(type.present() ? Converted(Tensor::From(values, type.shape).view(), dtype) : Tensor());
  }
  return gradient;
}

// Each gradient follows the forward pass whose results it is given: cuDNN's after one of Gradloom's, too, which runs where cuDNN has no
// algorithm.
TEST(KeptLogSums, OfAQueryThatSeesNoKey) {
  std::mt19937_64 random(SeedFromEnvironment().value_or(5));
  Call gradient = GradientOf(random, DType::kBfloat16, {1, 2, 4, 8}, {1, 2, 4, 8}, {4, 4});
  std::vector<double> mask(16, 0.0);
  std::fill_n(mask.begin() + 8, 4, -std::numeric_limits<double>::infinity());
  gradient.inputs[3] = Converted(Tensor::From(mask, {4, 4}).view(), DType::kBfloat16);
  Tally tally;
  CompareKept(gradient, tally);
  EXPECT_EQ(tally.size(), 4U);
}

// cuDNN's gradient takes some samples, or heads of one, at a time. The plain kernels would take minutes.
TEST(KeptLogSums, GiveTheSameGradientsInParts) {
  std::mt19937_64 random(SeedFromEnvironment().value_or(3));
  const KernelRow &forward = *FindKernel("cudnn.gradloom.AttentionTraining"), &row = *FindKernel("cudnn.gradloom.AttentionGrad");
  for (const Call& gradient : {GradientOf(random, DType::kBfloat16, {128, 160, 2, 8}, {128, 160, 3, 8}, {128, 1, 1, 3}),
                               GradientOf(random, DType::kFloat16, {1, 20480, 2, 8}, {1, 10240, 3, 8}, {20480, 1, 3})}) {
    const Call training = TrainingOf(gradient);
    const Call given = Given(gradient, RunKernel(forward, training.call, training.inputs));
    const DnnAttention all = *DnnAttentionOf(given.call), part = *DnnGradientPart(all);
    EXPECT_LT(part.q.dims[0] * part.q.dims[1], all.q.dims[0] * all.q.dims[1]);
    const std::vector<Tensor> got = RunKernel(row, given.call, given.inputs), wanted = RunKernel(row, gradient.call, gradient.inputs);
    ExpectNear(got, wanted, gradient.call.inputs[0].dtype, "parts");
    for (size_t k = 0; k < wanted.size() && kLibraryBits; ++k) EXPECT_TRUE(SameBits(got[k], wanted[k])) << "output " << k;
  }
}

#ifndef ON_GPU
// Gradloom's kernels take all calls that cuDNN's rows take, and need no more scratch memory.
TEST(KeptLogSums, FallBackToOwnKernels) {
  std::mt19937_64 random(4);
  const Call gradient = GradientOf(random, DType::kBfloat16, {2, 4, 5, 8}, {2, 2, 5, 8}, {2, 1, 1, 5}), training = TrainingOf(gradient);
  const KernelRow &forward = *FindKernel("cudnn.gradloom.AttentionTraining"), &row = *FindKernel("cudnn.gradloom.AttentionGrad");
  const std::vector<Tensor> kept = RunKernel(forward, training.call, training.inputs);
  const Call given = Given(gradient, kept);
  const std::vector<Tensor> wanted = RunKernel(row, given.call, given.inputs);
  TheLibraries().TakeNotes();
  emulated::SetDnnHasAlgorithms(false);
  const std::vector<Tensor> own = RunKernel(forward, training.call, training.inputs), got = RunKernel(row, given.call, given.inputs);
  emulated::SetDnnHasAlgorithms(true);
  EXPECT_EQ(TheLibraries().TakeNotes().size(), 2U);
  ExpectNear({own[0], own[attention::kLogSums]}, {kept[0], kept[attention::kLogSums]}, DType::kBfloat16, "the forward pass");
  ExpectNear(got, wanted, DType::kBfloat16, "the gradient");
}
#endif

}  // namespace
}  // namespace gradloom
