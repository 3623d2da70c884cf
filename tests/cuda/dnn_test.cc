// How cuDNN is called, and what runs instead if cuDNN has no algorithm.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/catalog/physical.h"
#include "kernels/cuda/lt_product.h"
#include "kernels/cuda/rows/attention.h"
#include "kernels/cuda/rows/convolution.h"
#include "kernels/cuda/rows/padded_rows.h"
#include "kernels/reference/reference.h"
#include "tests/cuda/emulated_dnn.h"
#include "tests/cuda/emulated_runtime.h"
#include "tests/cuda/run_kernel.h"

namespace gradloom {
namespace {

using Ints = std::vector<int64_t>;

KernelCall Conv(Shape x, Shape w, Shape y, Attributes attributes = {}, DType dtype = DType::kFloat32) {
  return {.op = "Conv",
          .domain = "",
          .attributes = std::move(attributes),
          .inputs = {{dtype, std::move(x), {}}, {dtype, std::move(w), {}}},
          .outputs = {{dtype, std::move(y), {}}}};
}

std::string Why(const KernelCall& call) { return Rejection(*FindKernel("cudnn." + call.op), call); }

TEST(DnnConvolution, OneDimensionRunsAsTwo) {
  const auto c = DnnConvolutionOf(
      Conv({2, 6, 20}, {4, 3, 3}, {2, 4, 9}, {{"group", int64_t{2}}, {"strides", Ints{2}}, {"dilations", Ints{2}}, {"pads", Ints{1, 1}}}));
  ASSERT_TRUE(c.has_value());
  EXPECT_EQ(c->x.dims, (Ints{2, 6, 1, 20}));
  EXPECT_EQ(c->x.strides, (Ints{120, 20, 20, 1}));
  EXPECT_EQ(c->w.dims, (Ints{4, 3, 1, 3}));
  EXPECT_EQ(c->strides, (Ints{1, 2}));
  EXPECT_EQ(c->dilations, (Ints{1, 2}));
  EXPECT_EQ(c->pads, (Ints{0, 1}));
  EXPECT_FALSE(c->allow_tf32);
}

TEST(DnnConvolution, AsymmetricPadsWithoutEffect) {
  // With a stride of 2 the padding after the last window is never read.
  EXPECT_EQ(Why(Conv({1, 1, 8, 8}, {1, 1, 3, 3}, {1, 1, 4, 4}, {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 0, 0}}})), "");
  EXPECT_EQ(Why(Conv({1, 1, 8, 8}, {1, 1, 3, 3}, {1, 1, 4, 4}, {{"strides", Ints{2, 2}}, {"pads", Ints{0, 0, 1, 1}}})),
            "pads that differ at both sides");
  EXPECT_EQ(Why(Conv({1, 1, 8, 8}, {1, 1, 2, 2}, {1, 1, 8, 8}, {{"auto_pad", std::string("SAME_UPPER")}})),
            "pads that differ at both sides");
}

TEST(DnnConvolution, RejectsUnsupportedCalls) {
  EXPECT_EQ(Why(Conv({1, 1, 8, 8}, {1, 1, 3, 3}, {1, 1, 6, 6}, {}, DType::kFloat64)), "float64");
  EXPECT_EQ(Why(Conv({0, 1, 8, 8}, {1, 1, 3, 3}, {0, 1, 6, 6})), "nothing to compute");
  EXPECT_EQ(Why(Conv({1, 4, 8, 8}, {1, 1, 3, 3}, {1, 1, 6, 6})), "shapes that do not fit");
  KernelCall mixed = Conv({1, 4, 8, 8}, {2, 4, 3, 3}, {1, 2, 6, 6});
  mixed.inputs[0].layout = ChannelsLast(4);
  EXPECT_EQ(Why(mixed), "operands in several layouts");
}

// 16-bit operands, including weights, are channels-last; float32 operands stay plain.
TEST(DnnConvolution, Layouts) {
  KernelCall call = Conv({2, 4, 8, 6}, {8, 4, 3, 3}, {2, 8, 6, 4});
  const KernelRow& row = *FindKernel("cudnn.Conv");
  EXPECT_FALSE(row.prefers(call));
  call = Conv({2, 4, 8, 6}, {8, 4, 3, 3}, {2, 8, 6, 4}, {}, DType::kBfloat16);
  ASSERT_TRUE(row.prefers(call));
  EXPECT_EQ(Rejection(row, call), "");
  EXPECT_EQ(Rejection(*FindKernel("cuda.Conv"), call), "");
  const auto c = DnnConvolutionOf(call);
  EXPECT_EQ(c->x.strides, (Ints{192, 1, 24, 4}));
  EXPECT_EQ(c->w.strides, (Ints{36, 1, 12, 4}));
  EXPECT_EQ(c->y.strides, (Ints{192, 1, 32, 8}));
}

// Which directions and shapes have x and w with padded channels.
TEST(DnnConvolution, PadsFewChannels) {
  const auto pads = [](const Shape& x, const Shape& w, const Shape& y, Attributes attributes = {}) {
    KernelCall call = Conv(x, w, y, std::move(attributes), DType::kBfloat16);
    EXPECT_TRUE(FindKernel("cudnn.Conv")->prefers(call));
    EXPECT_EQ(Why(call), "");
    EXPECT_EQ(call.outputs[0].layout, ChannelsLast(4));
    EXPECT_EQ(call.inputs[0].layout, call.inputs[1].layout);
    return call.inputs[0].layout == PaddedChannels(DType::kBfloat16, 4);
  };
  const Attributes same{{"pads", Ints{3, 3, 3, 3}}, {"strides", Ints{2, 2}}};
  EXPECT_TRUE(pads({256, 3, 224, 224}, {64, 3, 7, 7}, {256, 64, 112, 112}, same)) << "ResNet";
  EXPECT_TRUE(pads({64, 3, 224, 224}, {768, 3, 16, 16}, {64, 768, 14, 14}, {{"strides", Ints{16, 16}}})) << "ViT";
  EXPECT_TRUE(pads({1, 3, 32, 32}, {16, 3, 3, 3}, {1, 16, 30, 30})) << "a small batch";
  EXPECT_FALSE(pads({4096, 3, 64, 64}, {16, 3, 1, 1}, {4096, 16, 64, 64})) << "little work per point";
  EXPECT_FALSE(pads({256, 1, 224, 224}, {64, 1, 7, 7}, {256, 64, 112, 112}, same)) << "one channel";
  EXPECT_FALSE(pads({256, 12, 224, 224}, {64, 12, 7, 7}, {256, 64, 112, 112}, same)) << "more than a word";
  EXPECT_FALSE(pads({256, 6, 112, 112}, {64, 3, 7, 7}, {256, 64, 56, 56},
                    {{"pads", Ints{3, 3, 3, 3}}, {"strides", Ints{2, 2}}, {"group", int64_t{2}}}))
      << "groups";

  // Both gradients of ResNet's, and what cuDNN gets.
  KernelCall call = Conv({256, 3, 224, 224}, {64, 3, 7, 7}, {256, 64, 112, 112}, same, DType::kBfloat16);
  const OperandType x = call.inputs[0], w = call.inputs[1], y = call.outputs[0];
  const Layout padded = PaddedChannels(DType::kBfloat16, 4);
  call.op = "ConvGradWeight", call.domain = "gradloom", call.inputs = {x, y}, call.outputs = {w};
  EXPECT_TRUE(FindKernel("cudnn.gradloom.ConvGradWeight")->prefers(call));
  EXPECT_EQ(call.inputs[0].layout, padded);
  EXPECT_EQ(call.inputs[1].layout, ChannelsLast(4));
  EXPECT_EQ(call.outputs[0].layout, padded);
  EXPECT_EQ(DnnConvolutionOf(call)->w.dims, (Ints{64, 8, 7, 7}));
  EXPECT_EQ(DnnConvolutionOf(call)->w.strides, (Ints{392, 1, 56, 8}));
  call.op = "ConvGradInput", call.inputs = {y, w}, call.outputs = {x};
  EXPECT_TRUE(FindKernel("cudnn.gradloom.ConvGradInput")->prefers(call));
  EXPECT_EQ(call.outputs[0].layout, padded);
  EXPECT_EQ(DnnConvolutionOf(call)->x.dims, (Ints{256, 8, 224, 224}));

  // Padding of a group, of one operand only, and under a bias.
  call = Conv({2, 6, 8, 8}, {4, 3, 1, 1}, {2, 4, 8, 8}, {{"group", int64_t{2}}}, DType::kBfloat16);
  call.inputs[0].layout = call.inputs[1].layout = padded;
  call.outputs[0].layout = ChannelsLast(4);
  EXPECT_EQ(Why(call), "operands in several layouts");
  call = Conv({2, 6, 8, 8}, {4, 6, 1, 1}, {2, 4, 8, 8}, {}, DType::kBfloat16);
  call.inputs[0].layout = padded;
  call.inputs[1].layout = call.outputs[0].layout = ChannelsLast(4);
  EXPECT_EQ(Why(call), "operands in several layouts");
  call = Conv({2, 4, 8, 8}, {4, 6, 1, 1}, {2, 6, 8, 8}, {}, DType::kBfloat16);
  call.op = "ConvTranspose";
  call.inputs.push_back({DType::kBfloat16, {6}, {}});
  call.inputs[0].layout = ChannelsLast(4);
  call.inputs[1].layout = call.outputs[0].layout = padded;
  EXPECT_EQ(Why(call), "a bias of padded channels");
}

TEST(DnnAttention, RejectsUnsupportedCalls) {
  const OperandType q{DType::kFloat16, {2, 4, 16, 32}, {}};
  KernelCall call{.op = "Attention", .domain = "", .attributes = {}, .inputs = {q, q, q}, .outputs = {q}};
  EXPECT_EQ(Why(call), "");
  KernelCall wide = call;
  wide.attributes.set("softcap", 2.0);
  EXPECT_EQ(Why(wide), "attribute softcap");
  wide = call;
  wide.inputs.push_back({DType::kFloat32, {16, 16}, {}});
  EXPECT_EQ(Why(wide), "a mask of float32");
  wide.inputs.back().dtype = DType::kBool;
  EXPECT_EQ(Why(wide), "");
  wide.inputs.back() = {DType::kFloat16, {2, 1, 1, 12}, {}};
  EXPECT_EQ(Why(wide), "a mask of other keys");
  wide = call;
  for (OperandType& in : wide.inputs) in.dtype = DType::kFloat32;
  EXPECT_EQ(Why(wide), "float32");
  wide = call;
  for (OperandType& in : wide.inputs) in.shape = {2, 4, 16, 36};
  EXPECT_EQ(Why(wide), "vectors of other than 8, 16 .. 128 elements");
}

// A mask broadcasts along extents of 1. Along the heads cuDNN supports either one or all.
TEST(DnnAttention, BroadcastsMasks) {
  const OperandType q{DType::kFloat16, {2, 4, 16, 32}, {}};
  const auto mask = [&](const Shape& shape) {
    return DnnAttentionOf(
               {.op = "Attention", .domain = "", .attributes = {}, .inputs = {q, q, q, {DType::kFloat16, shape, {}}}, .outputs = {q}})
        .value()
        .mask;
  };
  EXPECT_EQ(mask({2, 1, 1, 16}).dims, (Ints{2, 1, 16, 16}));
  EXPECT_EQ(mask({2, 1, 1, 16}).strides, (Ints{16, 256, 0, 1}));
  EXPECT_EQ(mask({16, 16}).strides, (Ints{0, 256, 16, 1}));
  EXPECT_EQ(mask({4, 1, 16}).dims, (Ints{2, 4, 16, 16}));
  EXPECT_EQ(mask({4, 1, 16}).strides, (Ints{0, 16, 0, 1}));
  EXPECT_EQ(mask({2, 4, 16, 16}).strides, (Ints{1024, 256, 16, 1}));
}

// cuDNN takes tensors at multiples of 16 bytes, so the masks of a part must begin at one.
TEST(DnnAttention, PartsOfAGradientHaveAlignedMasks) {
  const auto part = [](int64_t samples, int64_t heads, int64_t length, const Shape& mask) {
    const OperandType q{DType::kBfloat16, {samples, heads, length, 8}, {}}, none;
    KernelCall call{.op = "AttentionGrad",
                    .domain = "gradloom",
                    .attributes = {{"wanted", Ints{0, 1, 2}}},
                    .inputs = {q, q, q, {DType::kBfloat16, mask, {}}, none, none, none, q},
                    .outputs = {q, q, q}};
    std::string why;
    const auto all = DnnAttentionOf(call, &why);
    return all ? std::pair(DnnGradientPart(*all)->q.dims[0], DnnGradientPart(*all)->q.dims[1]) : std::pair<int64_t, int64_t>(0, 0);
  };
  using Part = std::pair<int64_t, int64_t>;  // samples and heads
  // 4097 * 4097 is odd, so only eight heads' masks have a multiple of 16 bytes.
  EXPECT_EQ(part(1, 12, 4097, {4097, 4097}), (Part{1, 6})) << "the mask of all heads begins where it begins";
  EXPECT_EQ(part(1, 12, 4097, {1, 12, 4097, 4097}), (Part{0, 0})) << "no divisor of 12 is a multiple of 8";
  EXPECT_EQ(part(1, 16, 4096, {1, 16, 4096, 4096}), (Part{1, 8}));
  EXPECT_EQ(part(24, 8, 1025, {24, 1, 1025, 1025}), (Part{8, 8})) << "the scores of twelve samples would fit as well";
}

// A gradient that may sum in any order stores no gradients of scores.
TEST(DnnAttention, AnyOrderNeedsNoParts) {
  const OperandType q{DType::kBfloat16, {16, 12, 1024, 64}, {}}, none;
  KernelCall call{.op = "AttentionGrad",
                  .domain = "gradloom",
                  .attributes = {{"wanted", Ints{0, 1, 2}}, {"is_causal", int64_t{1}}},
                  .inputs = {q, q, q, none, none, none, none, q},
                  .outputs = {q, q, q}};
  const auto samples = [&] { return DnnGradientPart(*DnnAttentionOf(call))->q.dims[0]; };
  const auto scratch = [&] { return DnnAttentionScratchOf(call, *DnnAttentionOf(call)).library_bytes; };
  EXPECT_EQ(samples(), 8);
  const int64_t fixed = scratch();
  call.attributes.set("deterministic", int64_t{0});
  EXPECT_EQ(samples(), 16);
  EXPECT_LT(scratch(), fixed);
}

// So must the log-sum-exps of a part, of which each query has one of 4 bytes, if the gradient is given them.
TEST(DnnAttention, PartsOfAGradientHaveAlignedLogSums) {
  const auto part = [](int64_t samples, int64_t heads, int64_t kv_heads, int64_t length, bool kept) {
    const OperandType q{DType::kBfloat16, {samples, heads, length, 8}, {}}, k{DType::kBfloat16, {samples, kv_heads, length, 8}, {}}, none;
    KernelCall call{.op = "AttentionGrad",
                    .domain = "gradloom",
                    .attributes = {{"wanted", Ints{0, 1, 2}}},
                    .inputs = {q, k, k, none, none, none, none, q, none, none},
                    .outputs = {q, k, k}};
    if (kept) call.inputs.insert(call.inputs.end(), {q, {DType::kFloat32, {samples, heads, length}, {}}});
    const auto all = DnnAttentionOf(call);
    return all ? std::pair(DnnGradientPart(*all)->q.dims[0], DnnGradientPart(*all)->k.dims[1]) : std::pair<int64_t, int64_t>(0, 0);
  };
  using Part = std::pair<int64_t, int64_t>;  // samples and heads of k
  EXPECT_EQ(part(12, 1, 1, 4097, false), (Part{6, 1}));
  EXPECT_EQ(part(12, 1, 1, 4097, true), (Part{4, 1}));
  EXPECT_EQ(part(1, 12, 12, 4097, true), (Part{1, 4}));
  EXPECT_EQ(part(1, 12, 6, 4097, true), (Part{1, 2})) << "two heads share keys";
  EXPECT_EQ(part(9, 1, 1, 4097, false), (Part{3, 1}));
  EXPECT_EQ(part(9, 1, 1, 4097, true), (Part{0, 0})) << "no divisor of 9 but 1 and 9 is a multiple of 4";
  EXPECT_EQ(part(9, 1, 1, 4096, true), (Part{3, 1}));
}

// The results are the same if cuBLASLt has no algorithm for a product.
TEST(Blas, FallsBackToOwnKernels) {
  const KernelCall call{.op = "MatMul",
                        .domain = "",
                        .attributes = {},
                        .inputs = {{DType::kFloat32, {2, 3, 5}, {}}, {DType::kFloat32, {5, 4}, {}}},
                        .outputs = {{DType::kFloat32, {2, 3, 4}, {}}}};
  std::vector<Tensor> inputs;
  for (const OperandType& in : call.inputs) {
    inputs.emplace_back(in.dtype, in.shape);
    for (size_t i = 0; i < inputs.back().as<float>().size(); ++i) inputs.back().as<float>()[i] = static_cast<float>(i * 5 % 11) / 8;
  }
  emulated::SetBlasHasAlgorithms(false);
  const Tensor got = RunKernel(*FindKernel("cublas.MatMul"), call, inputs)[0];
  emulated::SetBlasHasAlgorithms(true);
  const Tensor wanted = RunReference(call, inputs)[0];
  for (int64_t i = 0; i < wanted.elements(); ++i) EXPECT_EQ(ElementAsDouble(got.view(), i), ElementAsDouble(wanted.view(), i)) << i;
  EXPECT_NE(TheLibraries().notes().back().find("cuda.MatMul runs"), std::string::npos);
}

// Also with a matrix that is added, and rows that are padded.
TEST(Blas, FallsBackToOwnKernelsWithAnAddend) {
  KernelCall call{.op = "Gemm", .domain = "", .attributes = {{"beta", 0.5}}, .inputs = {}, .outputs = {{DType::kBfloat16, {3, 8}, {}}}};
  std::vector<Tensor> inputs;
  for (const Shape& shape : {Shape{3, 5}, Shape{5, 8}, Shape{3, 8}}) {
    Tensor values(DType::kFloat32, shape);
    for (size_t i = 0; i < values.as<float>().size(); ++i) values.as<float>()[i] = static_cast<float>(i * 5 % 11) / 8;
    inputs.push_back(Converted(values.view(), DType::kBfloat16));
    call.inputs.push_back({DType::kBfloat16, shape, {}});
  }
  const Tensor wanted = RunReference(call, inputs)[0];
  call.inputs[0].layout = PaddedRows(DType::kBfloat16, 2);
  emulated::SetBlasHasAlgorithms(false);
  const Tensor got = RunKernel(*FindKernel("cublas.Gemm"), call, inputs)[0];
  emulated::SetBlasHasAlgorithms(true);
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    const double w = ElementAsDouble(wanted.view(), i);
    EXPECT_NEAR(ElementAsDouble(got.view(), i), w, 8e-3 * w) << i;
  }
}

// A product followed by passes over its result, if cuBLASLt has no algorithm with the epilogue; and if it has none at all.
TEST(Blas, FallsBackToOwnEpilogues) {
  const auto type = [](Shape shape) { return OperandType{DType::kFloat32, std::move(shape), {}}; };
  const std::string domain = "gradloom";
  const KernelCall calls[] = {
      {"GemmRelu", domain, {}, {type({3, 5}), type({5, 8}), type({8})}, {type({3, 8})}},
      {"GemmGelu", domain, {}, {type({3, 5}), type({5, 8}), type({8})}, {type({3, 8}), type({3, 8})}},
      {"GemmGeluGrad", domain, {}, {type({3, 5}), type({5, 8}), type({3, 8})}, {type({3, 8}), type({8})}},
      {"GemmBiasGrad", domain, {{"transA", int64_t{1}}, {"summed", int64_t{0}}}, {type({5, 3}), type({5, 8})}, {type({3, 8}), type({3})}},
      {"GemmBiasGrad", domain, {{"summed", int64_t{1}}}, {type({3, 5}), type({5, 8})}, {type({3, 8}), type({8})}},
      {"GemmBiasGrad", domain, {{"transB", int64_t{1}}, {"summed", int64_t{1}}}, {type({3, 5}), type({8, 5})}, {type({3, 8}), type({8})}},
  };
  for (const KernelCall& call : calls) {
    std::vector<Tensor> inputs;
    for (const OperandType& in : call.inputs) {
      inputs.emplace_back(in.dtype, in.shape);
      for (size_t i = 0; i < inputs.back().as<float>().size(); ++i)
        inputs.back().as<float>()[i] = static_cast<float>(i * 5 % 11) / 8 - 0.6F;
    }
    const std::vector<Tensor> wanted = RunReference(call, inputs);
    for (bool products : {true, false}) {
      const size_t before = TheLibraries().notes().size();
      emulated::SetBlasHasEpilogues(false);
      emulated::SetBlasHasAlgorithms(products);
      const std::vector<Tensor> got = RunKernel(*FindKernel("cublas.gradloom." + call.op), call, inputs);
      emulated::SetBlasHasEpilogues(true);
      emulated::SetBlasHasAlgorithms(true);
      // GELU's derivative is a pass of its own in any case.
      const size_t epilogues = call.op == "GemmGeluGrad" ? 0 : 1;
      EXPECT_EQ(TheLibraries().notes().size(), before + epilogues + (products ? 0 : 1)) << call.op;
      for (size_t k = 0; k < wanted.size(); ++k) {
        for (int64_t i = 0; i < wanted[k].elements(); ++i)
          EXPECT_NEAR(ElementAsDouble(got[k].view(), i), ElementAsDouble(wanted[k].view(), i), 2e-6)
              << call.op << " output " << k << " " << i;
      }
    }
  }
}

// Algorithms are requested for the alignment that a product declares, and run on addresses with that alignment.
TEST(Blas, AddressesHaveTheDeclaredAlignment) {
  DeviceBytes a(64), b(64), d(64), scratch(1 << 20);
  a.Write(std::vector<float>{9, 1, 2, 3, 4}.data(), 20);
  b.Write(std::vector<float>{1, 0, 0, 1}.data(), 16);
  const void* const inputs[] = {static_cast<float*>(a.data()) + 1, b.data(), nullptr};
  void* const outputs[] = {d.data()};
  BlasProduct product{.m = 2, .n = 2, .k = 2};
  cuda::LtProduct wrong(product, TheLibraries());
  EXPECT_THROW(wrong.Run(inputs, outputs, scratch.data(), nullptr), Error);
  product.alignment = 4;
  cuda::LtProduct(product, TheLibraries()).Run(inputs, outputs, scratch.data(), nullptr);
  GRADLOOM_CUDA(cudaDeviceSynchronize());
  float made[4];
  d.Read(made, sizeof made);
  EXPECT_EQ(std::vector<float>(made, made + 4), (std::vector<float>{1, 2, 3, 4}));
}

// The fastest algorithm is measured once, cached, and shared with other processes.
TEST(Blas, MeasuresAlgorithmsOnce) {
  using cuda::Algorithms;
  const std::filesystem::path cache = std::filesystem::path(testing::TempDir()) / "measured_algorithms";
  std::filesystem::remove_all(cache);
  setenv("GRADLOOM_CACHE", cache.c_str(), 1);
  const KernelCall call{.op = "MatMul",
                        .domain = "",
                        .attributes = {},
                        .inputs = {{DType::kBfloat16, {2, 3, 5}, {}}, {DType::kBfloat16, {5, 4}, {}}},
                        .outputs = {{DType::kBfloat16, {2, 3, 4}, {}}}};
  // The choices of a new process. Also counts how often it queried the library.
  const auto choices = [&](Algorithms::Mode mode, const std::string& given, std::string& said) {
    emulated::SetBlasAlgorithms(4, 3);
    cuda::Libraries libraries(0);
    libraries.algorithms().SetEnvironment("a device");
    said = libraries.algorithms().Set(mode, given);
    cuda::MakeCudaKernel(*FindKernel("cublas.MatMul"), call, {0, nullptr, &libraries});
    return libraries.algorithms().text();
  };
  std::string said;
  const std::string first = choices(Algorithms::Mode::kMeasured, "", said);
  EXPECT_EQ(said, "");
  EXPECT_EQ(emulated::BlasQueries(), 1);
  EXPECT_NE(first.find("a device\tcublasLt bfloat16 bfloat16 6 4 5 1"), std::string::npos) << first;
  // The third algorithm, or the fourth if the machine was busy, but not the slow ones.
  EXPECT_TRUE(first.find("\t3 ") != std::string::npos || first.find("\t4 ") != std::string::npos) << first;
  EXPECT_EQ(choices(Algorithms::Mode::kMeasured, "", said), first);
  EXPECT_EQ(emulated::BlasQueries(), 0);
  EXPECT_EQ(said, "");
  // Another process has an empty cache, or a different one.
  setenv("GRADLOOM_CACHE", (cache / "none").c_str(), 1);
  EXPECT_EQ(choices(Algorithms::Mode::kGiven, first, said), first);
  EXPECT_EQ(emulated::BlasQueries(), 0);
  // A problem without a given choice uses the first algorithm, and is not measured.
  EXPECT_EQ(choices(Algorithms::Mode::kGiven, "another device" + first.substr(first.find('\t')), said), "");
  EXPECT_EQ(emulated::BlasQueries(), 1);
  EXPECT_FALSE(std::filesystem::exists(cache / "none"));
  setenv("GRADLOOM_CACHE", cache.c_str(), 1);
  const std::filesystem::path kept = std::filesystem::directory_iterator(cache / "algorithms")->path();
  std::filesystem::resize_file(kept, std::filesystem::file_size(kept) - 3);
  choices(Algorithms::Mode::kMeasured, "", said);
  EXPECT_EQ(emulated::BlasQueries(), 1);
  EXPECT_NE(said.find("are damaged"), std::string::npos) << said;
  // An algorithm that the library no longer has.
  choices(Algorithms::Mode::kGiven, first.substr(0, first.rfind('\t')) + "\t9 0 0 0 0 0 0 0\n", said);
  EXPECT_EQ(emulated::BlasQueries(), 1);
  emulated::SetBlasAlgorithms(1, 1);
  unsetenv("GRADLOOM_CACHE");
}

// A plan has memory for our kernel where cuDNN turns out to have none: few filters with large windows need more than the library may use.
TEST(Dnn, OwnKernelsHaveTheirScratchMemory) {
  for (const auto& [x, w, pad] :
       {std::tuple{Shape{8, 1, 16, 16}, Shape{4, 1, 25, 25}, 24}, {Shape{32, 8, 8, 8}, Shape{4, 8, 11, 11}, 10}}) {
    const Shape y{x[0], w[0], x[2] + 2 * pad - w[2] + 1, x[3] + 2 * pad - w[3] + 1};
    const KernelCall call{.op = "ConvGradWeight",
                          .domain = "gradloom",
                          .attributes = {{"pads", Ints{pad, pad, pad, pad}}},
                          .inputs = {{DType::kBfloat16, x, {}}, {DType::kBfloat16, y, {}}},
                          .outputs = {{DType::kBfloat16, w, {}}}};
    const KernelRow &library = *FindKernel("cudnn.gradloom.ConvGradWeight"), &own = *FindKernel("cuda.gradloom.ConvGradWeight");
    EXPECT_GT(own.scratch_bytes(call), 0);
    EXPECT_GE(library.scratch_bytes(call), own.scratch_bytes(call)) << x.ToString();
  }
}

// Our row accepts whatever cuDNN's row accepts.
TEST(Dnn, FallsBackToOwnKernels) {
  KernelCall call = Conv({2, 4, 8, 6}, {8, 2, 3, 3}, {2, 8, 6, 4}, {{"group", int64_t{2}}});
  std::vector<Tensor> inputs;
  for (const OperandType& in : call.inputs) {
    inputs.emplace_back(in.dtype, in.shape);
    for (size_t i = 0; i < inputs.back().as<float>().size(); ++i) inputs.back().as<float>()[i] = static_cast<float>(i * 7 % 13) / 8;
  }
  const Tensor wanted = RunReference(call, inputs)[0];
  for (auto* operands : {&call.inputs, &call.outputs}) {
    for (OperandType& operand : *operands) operand.layout = ChannelsLast(4);
  }
  const size_t before = TheLibraries().notes().size();
  emulated::SetDnnHasAlgorithms(false);
  const Tensor got = RunKernel(*FindKernel("cudnn.Conv"), call, inputs)[0];
  emulated::SetDnnHasAlgorithms(true);
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    const double w = ElementAsDouble(wanted.view(), i);
    EXPECT_NEAR(ElementAsDouble(got.view(), i), w, 1e-5 * w) << i;
  }
  ASSERT_EQ(TheLibraries().notes().size(), before + 1);
  EXPECT_NE(TheLibraries().notes().back().find("cuda.Conv runs: a test wants it so"), std::string::npos);
}

}  // namespace
}  // namespace gradloom
