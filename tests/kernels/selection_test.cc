// Compares kernels that select, move by index, accumulate along an axis or sample a grid with the reference kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "runtime/base/error.h"
#include "tests/kernels/compare.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

OperandType Float(Shape shape) { return Plain(DType::kFloat32, std::move(shape)); }
OperandType Int64(Shape shape) { return Plain(DType::kInt64, std::move(shape)); }

KernelCall Call(const std::string& op, const std::string& domain, std::vector<OperandType> inputs, std::vector<OperandType> outputs,
                Attributes attributes = {}) {
  return {.op = op, .domain = domain, .attributes = std::move(attributes), .inputs = std::move(inputs), .outputs = std::move(outputs)};
}

// Few distinct values, many of them equal, with NaN, infinities and both zeros.
bool FillWithTies(Tensor& tensor, std::mt19937_64& random) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kValues[] = {-2, -1, -0.0f, 0, 1, 2, kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()};
  for (float& value : tensor.as<float>()) value = kValues[random() % 9];
  return true;
}

// Input `operand` receives `values`. With `ties`, float32 inputs are filled by FillWithTies.
Comparison Filled(int operand, std::vector<int64_t> values, bool ties = false) {
  Comparison how;
  how.fill = [=](int input, Tensor& tensor, std::mt19937_64& random) {
    if (input != operand) return ties && tensor.dtype() == DType::kFloat32 && FillWithTies(tensor, random);
    for (size_t i = 0; i < values.size(); ++i) tensor.as<int64_t>()[i] = values[i];
    return true;
  };
  return how;
}

int64_t Below(std::mt19937_64& random, int64_t bound) { return static_cast<int64_t>(random() % static_cast<uint64_t>(bound)); }

TEST(ArgExtreme, FirstOrLastOfEqualElements) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 60; ++round) {
    const Shape shape = round % 10 == 0 ? Shape{2, 5000, 3} : RandomShape(random, 3, 1, round % 3 == 0 ? 90 : 7);
    const int axis = round % 3;
    Shape out = shape;
    out[axis] = 1;
    const Attributes attributes = {{"axis", int64_t{axis - 3}}, {"keepdims", int64_t{1}}, {"select_last_index", int64_t{round / 3 % 2}}};
    for (const char* op : {"ArgMax", "ArgMin"})
      ExpectSameAsReference(Call(op, "", {Float(shape)}, {Int64(out)}, attributes), random, Filled(-1, {}, round % 2 == 0),
                            std::string("cpu.") + op);
  }
}

TEST(TopK, InOrderWithTies) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 80; ++round) {
    const Shape shape = round % 10 == 0 ? Shape{3, 4000, 2} : RandomShape(random, 3, 1, 40);
    const int axis = round % 3;
    const int64_t k = round % 5 == 0 ? shape[axis] : Below(random, std::min<int64_t>(shape[axis], round % 2 == 0 ? 5 : 1000) + 1);
    Shape out = shape;
    out[axis] = k;
    const Attributes attributes = {{"axis", int64_t{axis}}, {"largest", int64_t{round / 3 % 2}}};
    const Comparison how = Filled(1, {k}, round % 4 < 2);
    ExpectSameAsReference(Call("TopK", "", {Float(shape), Int64({1})}, {Float(out), Int64(out)}, attributes), random, how, "cpu.TopK");
    ExpectSameAsReference(Call("TopK", "", {Float(shape), Int64({1})}, {OperandType{}, Int64(out)}, attributes), random, how, "cpu.TopK");
    ExpectSameAsReference(Call("TopK", "", {Float(shape), Int64({1})}, {Float(out)}, attributes), random, how, "cpu.TopK");
  }
}

TEST(CumSum, EveryWay) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 48; ++round) {
    const DType dtype = round % 3 == 0 ? DType::kInt64 : round % 3 == 1 ? DType::kInt32 : DType::kFloat32;
    const Shape shape = round % 8 == 0 ? Shape{3, 700, 130} : RandomShape(random, 3, 1, 70);
    const OperandType x = Plain(dtype, shape);
    const Attributes attributes = {{"exclusive", int64_t{round / 3 % 2}}, {"reverse", int64_t{round / 6 % 2}}};
    Comparison how = Filled(1, {Below(random, 6) - 3});
    how.scale = 1;
    ExpectSameAsReference(Call("CumSum", "", {x, Int64({})}, {x}, attributes), random, how, "cpu.CumSum");
  }
}

TEST(Moves, Tile) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 40; ++round) {
    const DType dtype = round % 3 == 0 ? DType::kInt64 : round % 3 == 1 ? DType::kFloat32 : DType::kBool;
    const int rank = 1 + round % 4;
    const Shape from = RandomShape(random, rank, 1, 12);
    Shape to = from;
    std::vector<int64_t> repeats;
    for (int axis = 0; axis < rank; ++axis) to[axis] *= repeats.emplace_back(round == 7 ? 0 : 1 + Below(random, 4));
    ExpectSameAsReference(Call("Tile", "", {Plain(dtype, from), Int64({rank})}, {Plain(dtype, to)}), random, Filled(1, repeats),
                          "cpu.Tile");
  }
}

TEST(Moves, DepthAndSpace) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 40; ++round) {
    const DType dtype = round % 3 == 0 ? DType::kInt64 : round % 3 == 1 ? DType::kFloat32 : DType::kBool;
    const int64_t block = 1 + round % 5;
    const Shape depth{1 + Below(random, 3), block * block * (1 + Below(random, 4)), 1 + Below(random, 9), 1 + Below(random, 40)};
    const Shape space{depth[0], depth[1] / (block * block), depth[2] * block, depth[3] * block};
    const Attributes attributes = {{"blocksize", block}, {"mode", std::string(round % 2 == 0 ? "DCR" : "CRD")}};
    ExpectSameAsReference(Call("DepthToSpace", "", {Plain(dtype, depth)}, {Plain(dtype, space)}, attributes), random, {},
                          "cpu.DepthToSpace");
    ExpectSameAsReference(Call("SpaceToDepth", "", {Plain(dtype, space)}, {Plain(dtype, depth)}, attributes), random, {},
                          "cpu.SpaceToDepth");
  }
}

TEST(Index, Tuples) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 60; ++round) {
    const int rank = 1 + round % 4, batch_dims = round % 3 == 2 ? static_cast<int>(Below(random, rank)) : 0;
    const int width = static_cast<int>(Below(random, rank - batch_dims + 1));
    Shape data = RandomShape(random, rank, 1, round % 4 == 0 ? 40 : 9), indices, picked;
    for (int axis = 0; axis < batch_dims; ++axis) indices.push_back(data[axis]);
    indices.push_back(1 + Below(random, 12));
    picked = indices;
    indices.push_back(width);
    for (int axis = batch_dims + width; axis < rank; ++axis) picked.push_back(data[axis]);
    std::vector<int64_t> values;
    for (int64_t i = 0; i < indices.elements(); ++i) {
      const int64_t extent = data[batch_dims + static_cast<int>(i % width)];
      values.push_back(Below(random, 2 * extent) - extent);
    }
    const DType dtype = round % 2 == 0 ? DType::kFloat32 : DType::kInt64;
    const Attributes attributes = {{"batch_dims", int64_t{batch_dims}}, {"shape", data.dims()}};
    ExpectSameAsReference(Call("GatherND", "", {Plain(dtype, data), Int64(indices)}, {Plain(dtype, picked)}, attributes), random,
                          Filled(1, values), "cpu.GatherND");
    Comparison how = Filled(0, values);
    how.scale = 1;
    ExpectSameAsReference(Call("GatherNDGrad", "gradloom", {Int64(indices), Float(picked)}, {Float(data)}, attributes), random, how,
                          "cpu.GatherNDGrad");
    if (batch_dims > 0) continue;
    how = Filled(1, values);
    how.scale = 1;
    const Attributes reduction = {{"reduction", std::string(round % 4 == 0 ? "add" : "none")}};
    ExpectSameAsReference(
        Call("ScatterND", "", {Plain(dtype, data), Int64(indices), Plain(dtype, picked)}, {Plain(dtype, data)}, reduction), random, how,
        "cpu.ScatterND");
  }
}

TEST(Index, TuplesOutOfRangeAreErrors) {
  const KernelCall call = Call("ScatterND", "", {Float({2, 3}), Int64({1, 2}), Float({1})}, {Float({2, 3})});
  Tensor data(DType::kFloat32, {2, 3}), updates(DType::kFloat32, {1});
  const Tensor indices = Tensor::From<int64_t>({1, 3}, {1, 2});
  const void* inputs[] = {data.data(), indices.data(), updates.data()};
  void* outputs[] = {data.data()};
  try {
    MakeCpuKernel(*FindKernel("cpu.ScatterND"), call)->Run(inputs, outputs, nullptr, nullptr);
    FAIL() << "index 3 of an axis of 3 was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kData);
    EXPECT_NE(error.message().find("index 3"), std::string::npos) << error.message();
  }
}

TEST(GridSample, EveryModeAndItsGradient) {
  std::mt19937_64 random(TestSeed());
  for (const char* mode : {"linear", "nearest", "cubic"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (int round = 0; round < 6; ++round) {
        const int dims = 1 + round % 3;
        Shape x{1 + Below(random, 2), 1 + Below(random, dims == 1 || round < 3 ? 5 : 20)}, grid{x[0]}, y{x[0], x[1]};
        for (int d = 0; d < dims; ++d) {
          x.push_back(2 + Below(random, 7));
          y.push_back(1 + Below(random, dims == 1 ? 9000 : dims == 2 ? 100 : 12));
          grid.push_back(y[d + 2]);
        }
        grid.push_back(dims);
        const Attributes attributes = {
            {"mode", std::string(mode)}, {"padding_mode", std::string(padding)}, {"align_corners", int64_t{round / 3}}};
        // A third of the points lies outside the border, or none.
        const double reach = round % 2 == 0 ? 1.5 : 0.4;
        const Comparison how{.absolute = 1e-5, .relative = 1e-5, .scale = 1, .low = -reach, .high = reach};
        ExpectSameAsReference(Call("GridSample", "", {Float(x), Float(grid)}, {Float(y)}, attributes), random, how, "cpu.GridSample");
        for (const std::vector<int64_t>& wanted : {std::vector<int64_t>{0, 1}, {0}, {1}}) {
          Attributes gradient = attributes;
          gradient.set("wanted", wanted);
          std::vector<OperandType> outputs;
          for (int64_t i : wanted) outputs.push_back(Float(i == 0 ? x : grid));
          ExpectSameAsReference(Call("GridSampleGrad", "gradloom", {Float(x), Float(grid), Float(y)}, outputs, gradient), random, how,
                                "cpu.GridSampleGrad");
        }
      }
    }
  }
}

// On samples, on the border and its corners, at infinity, and NaN.
TEST(GridSample, CoordinatesAtTheEdges) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kEdges[] = {-1, 1, 0, -0.75f, 0.75f, 0.5f, -3, 3, 5, -5, kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()};
  std::mt19937_64 random(TestSeed());
  for (const char* mode : {"linear", "nearest"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (int round = 0; round < 8; ++round) {
        const Shape x{1, 3, 1 + Below(random, 5), 1 + Below(random, 5)}, grid{1, 9, 13, 2}, y{1, 3, 9, 13};
        Attributes attributes = {
            {"mode", std::string(mode)}, {"padding_mode", std::string(padding)}, {"align_corners", int64_t{round % 2}}};
        Comparison how{.absolute = 1e-5, .relative = 1e-5, .scale = 1};
        how.fill = [&](int input, Tensor& tensor, std::mt19937_64& draw) {
          if (input != 1) return false;
          for (float& coordinate : tensor.as<float>()) coordinate = kEdges[draw() % std::size(kEdges)];
          return true;
        };
        ExpectSameAsReference(Call("GridSample", "", {Float(x), Float(grid)}, {Float(y)}, attributes), random, how, "cpu.GridSample");
        attributes.set("wanted", std::vector<int64_t>{0, 1});
        ExpectSameAsReference(Call("GridSampleGrad", "gradloom", {Float(x), Float(grid), Float(y)}, {Float(x), Float(grid)}, attributes),
                              random, how, "cpu.GridSampleGrad");
      }
    }
  }
}

// Windows with dilation, padding and strides, for one and two spatial axes.
TEST(Columns, OfImagesAndBack) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 40; ++round) {
    const int rank = 1 + round % 2;
    Shape image{1 + Below(random, 3), 1 + Below(random, 4)};
    std::vector<int64_t> extents, block, strides, dilations, pads(static_cast<size_t>(2 * rank));
    int64_t taps = 1, windows = 1;
    for (int64_t& pad : pads) pad = Below(random, 3);
    for (int d = 0; d < rank; ++d) {
      block.push_back(1 + Below(random, 4));
      strides.push_back(1 + Below(random, 3));
      dilations.push_back(1 + Below(random, 2));
      const int64_t reach = dilations.back() * (block.back() - 1);
      extents.push_back(reach + 1 + Below(random, 30));
      image.push_back(extents.back());
      taps *= block.back();
      windows *= (extents.back() + pads[static_cast<size_t>(d)] + pads[static_cast<size_t>(rank + d)] - reach - 1) / strides.back() + 1;
    }
    const Shape columns{image[0], image[1] * taps, windows};
    Attributes attributes = {{"strides", strides}, {"dilations", dilations}, {"pads", pads}};
    Comparison how;
    how.scale = 1;
    how.fill = [&](int input, Tensor& tensor, std::mt19937_64&) {
      if (input > 0) std::copy_n(input == 1 ? extents.begin() : block.begin(), rank, tensor.as<int64_t>().begin());
      return input > 0;
    };
    ExpectSameAsReference(Call("Col2Im", "", {Float(columns), Int64({rank}), Int64({rank})}, {Float(image)}, attributes), random, how,
                          "cpu.Col2Im");
    attributes.set("block", block);
    attributes.set("shape", std::vector<int64_t>(columns.begin(), columns.end()));
    ExpectSameAsReference(Call("Im2Col", "gradloom", {Float(image)}, {Float(columns)}, attributes), random, how, "cpu.Im2Col");
  }
}

// Groups of channels and of offsets in every combination; taps inside the planes, across their border and far outside.
TEST(DeformConv, SamplesAndEveryGradient) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 24; ++round) {
    const int64_t groups = 1 + Below(random, 3), offset_groups = 1 + Below(random, 3);
    const int64_t channels = groups * offset_groups * (1 + Below(random, round % 4 == 0 ? 12 : 3)),
                  filters = groups * (1 + Below(random, 5));
    const int64_t kh = 1 + Below(random, 3), kw = 1 + Below(random, 3);
    const Shape x{1 + Below(random, 3), channels, 1 + Below(random, 9), 1 + Below(random, 9)}, w{filters, channels / groups, kh, kw};
    const Shape y{x[0], filters, 1 + Below(random, 11), 1 + Below(random, 11)};
    const Attributes attributes = {{"group", groups},
                                   {"offset_group", offset_groups},
                                   {"pads", std::vector<int64_t>{Below(random, 2), Below(random, 2), 0, 0}},
                                   {"strides", std::vector<int64_t>{1 + Below(random, 2), 1 + Below(random, 2)}},
                                   {"dilations", std::vector<int64_t>{1 + Below(random, 2), 1 + Below(random, 2)}}};
    std::vector<OperandType> operands{Float(x), Float(w), Float({x[0], offset_groups * kh * kw * 2, y[2], y[3]})};
    operands.push_back(round % 3 == 0 ? OperandType{} : Float({filters}));
    operands.push_back(round % 2 == 0 ? OperandType{} : Float({x[0], offset_groups * kh * kw, y[2], y[3]}));
    const Comparison how{.absolute = 1e-5, .relative = 1e-5, .scale = 1};
    ExpectSameAsReference(Call("DeformConv", "", operands, {Float(y)}, attributes), random, how, "cpu.DeformConv");
    operands.push_back(Float(y));
    Attributes gradient = attributes;
    std::vector<int64_t> wanted;
    std::vector<OperandType> outputs;
    for (int64_t i = 0; i < 5; ++i) {
      if (!operands[static_cast<size_t>(i)].present() || (round > 4 && Below(random, 3) == 0)) continue;
      wanted.push_back(i);
      outputs.push_back(operands[static_cast<size_t>(i)]);
    }
    if (wanted.empty()) continue;
    gradient.set("wanted", wanted);
    ExpectSameAsReference(Call("DeformConvGrad", "gradloom", operands, outputs, gradient), random, how, "cpu.DeformConvGrad");
  }
}

// Boxes inside their images, across the border, inverted, empty, far outside, and with NaN corners.
TEST(RoiAlign, MeansAndTheirGradient) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 80; ++round) {
    const Shape x{1 + Below(random, 3), 1 + Below(random, 9), 1 + Below(random, 30), 1 + Below(random, 30)};
    const int64_t count = 1 + Below(random, 12);
    const Shape y{count, x[1], 1 + Below(random, 8), 1 + Below(random, 8)};
    Attributes attributes = {{"sampling_ratio", Below(random, 4)}, {"spatial_scale", round % 2 == 0 ? 1.0f : 0.25f}};
    if (round % 3 == 0) attributes.set("coordinate_transformation_mode", std::string("output_half_pixel"));
    Comparison how{.absolute = 1e-5, .relative = 1e-5, .scale = 1};
    how.fill = [&](int input, Tensor& tensor, std::mt19937_64& draw) {
      if (input == 2) {
        for (int64_t& image : tensor.as<int64_t>()) image = Below(draw, x[0]);
      } else if (input == 1) {
        for (float& corner : tensor.as<float>()) corner = static_cast<float>(Below(draw, 1600)) / (round % 2 == 0 ? 32.0f : 8.0f) - 8;
        tensor.as<float>()[0] = round % 8 == 0 ? std::numeric_limits<float>::quiet_NaN() : round % 8 == 1 ? 1e30f : 2;
      }
      return input == 1 || input == 2;
    };
    const std::vector<OperandType> operands{Float(x), Float({count, 4}), Int64({count})};
    ExpectSameAsReference(Call("RoiAlign", "", operands, {Float(y)}, attributes), random, how, "cpu.RoiAlign");
    std::vector<OperandType> with_gradient = operands;
    with_gradient.push_back(Float(y));
    ExpectSameAsReference(Call("RoiAlignGrad", "gradloom", with_gradient, {Float(x)}, attributes), random, how, "cpu.RoiAlignGrad");
  }
}

TEST(RoiAlign, RejectsMissingImages) {
  const KernelCall call = Call("RoiAlign", "", {Float({2, 1, 4, 4}), Float({1, 4}), Int64({1})}, {Float({1, 1, 2, 2})});
  const KernelRow& row = *FindKernel("cpu.RoiAlign");
  const Tensor x(DType::kFloat32, {2, 1, 4, 4}), boxes(DType::kFloat32, {1, 4}), images = Tensor::From<int64_t>({2}, {1});
  Tensor y(DType::kFloat32, {1, 1, 2, 2});
  std::vector<std::byte> scratch(static_cast<size_t>(row.scratch_bytes(call)));
  const void* inputs[] = {x.data(), boxes.data(), images.data()};
  void* outputs[] = {y.data()};
  try {
    MakeCpuKernel(row, call)->Run(inputs, outputs, scratch.data(), nullptr);
    FAIL() << "image 2 of 2 was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kData);
    EXPECT_NE(error.message().find("image 2 of a batch of 2"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace gradloom
