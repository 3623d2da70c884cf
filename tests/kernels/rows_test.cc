// Compares reductions, softmax, normalizations, losses, optimizers and data movement with the reference kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/scalar/optimizers.h"
#include "tests/kernels/compare.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

OperandType Float(Shape shape) { return Plain(DType::kFloat32, std::move(shape)); }

KernelCall Call(const std::string& op, const std::string& domain, std::vector<OperandType> inputs, std::vector<OperandType> outputs,
                Attributes attributes = {}) {
  return {.op = op, .domain = domain, .attributes = std::move(attributes), .inputs = std::move(inputs), .outputs = std::move(outputs)};
}

// Sets the values of one integer operand.
Comparison WithIntegers(int operand, std::vector<int64_t> values, Comparison how = {}) {
  how.fill = [=](int input, Tensor& tensor, std::mt19937_64&) {
    if (input != operand) return false;
    for (size_t i = 0; i < values.size(); ++i) tensor.as<int64_t>()[i] = values[i];
    return true;
  };
  return how;
}

TEST(Reduce, AnyAxes) {
  std::mt19937_64 random(TestSeed());
  const Shape shapes[] = {{5},       {40000},        {3, 4, 5},       {7, 1, 33}, {64, 10}, {9000, 10},
                          {5000, 3}, {4, 6, 17, 19}, {2, 3, 1, 5, 4}, {3, 700},   {0, 4},   {}};
  for (const Shape& shape : shapes) {
    for (int subset = 0; subset < 1 << shape.rank(); ++subset) {
      std::vector<int64_t> axes;
      Shape out;
      for (int axis = 0; axis < shape.rank(); ++axis) {
        if (subset >> axis & 1) axes.push_back(random() % 2 == 0 ? axis : axis - shape.rank());
        out.push_back(subset >> axis & 1 ? 1 : shape[axis]);
      }
      // An empty list reduces all axes.
      if (axes.empty()) out = Shape(std::vector<int64_t>(static_cast<size_t>(shape.rank()), 1));
      const auto count = static_cast<int64_t>(axes.size());
      // Terms of a sum may cancel: float rounding is relative to the terms, not to their sum.
      const double rounding = 1e-8 * static_cast<double>(shape.elements());
      for (const char* op :
           {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSumExp"}) {
        if (shape.elements() == 0 && std::string(op) == "ReduceMean") continue;
        const Comparison how{.absolute = 1e-5 + rounding, .relative = 1e-5, .scale = 0.1};
        ExpectSameAsReference(Call(op, "", {Float(shape), Plain(DType::kInt64, {count})}, {Float(out)}), random,
                              WithIntegers(1, axes, how));
        // The same sums of 16-bit elements, as they are or rounded once.
        const auto half = static_cast<DType>(random() % 2 == 0 ? DType::kFloat16 : DType::kBfloat16);
        for (const DType result : {half, DType::kFloat32}) {
          Comparison rounded = WithIntegers(1, axes, how);
          rounded.widen = true;
          rounded.relative = result == DType::kFloat32 ? 1e-5 : result == DType::kFloat16 ? 0x1p-10 : 0x1p-7;
          ExpectSameAsReference(Call(op, "", {Plain(half, shape), Plain(DType::kInt64, {count})}, {Plain(result, out)}), random, rounded,
                                "cpu." + std::string(op));
        }
      }
      ExpectSameAsReference(Call("ReduceProd", "", {Float(shape), Plain(DType::kInt64, {count})}, {Float(out)}), random,
                            WithIntegers(1, axes, {.absolute = 1e-5, .relative = 1e-4, .low = 0.99, .high = 1.01}));
    }
  }
  ExpectSameAsReference(Call("ReduceSum", "", {Float({3, 4})}, {Float({3, 4})}, {{"noop_with_empty_axes", int64_t{1}}}), random);
}

// Numbers whose exponentials all overflow or underflow, and NaN.
TEST(Reduce, LogSumExpOfAnything) {
  std::mt19937_64 random(TestSeed());
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kValues[] = {500, 499, -kInfinity, 480, -1000, kInfinity, std::numeric_limits<float>::quiet_NaN()};
  for (int round = 0; round < 24; ++round) {
    const Shape shape = RandomShape(random, 3, 1, 20);
    const int axis = round % 3;
    const uint64_t kinds = round % 4 == 0 ? 7 : round % 4 == 1 ? 6 : round % 4 == 2 ? 5 : 3;
    Shape out = shape;
    out[axis] = 1;
    Comparison how;
    how.fill = [&](int input, Tensor& tensor, std::mt19937_64&) {
      if (input == 1) tensor.as<int64_t>()[0] = axis;
      for (int64_t i = 0; input == 0 && i < tensor.elements(); ++i) tensor.as<float>()[static_cast<size_t>(i)] = kValues[random() % kinds];
      return true;
    };
    ExpectSameAsReference(Call("ReduceLogSumExp", "", {Float(shape), Plain(DType::kInt64, {1})}, {Float(out)}), random, how,
                          "cpu.ReduceLogSumExp");
  }
}

TEST(Softmax, AnyAxis) {
  std::mt19937_64 random(TestSeed());
  for (const Shape& shape : {Shape{5}, Shape{33, 10}, Shape{4, 1000}, Shape{2, 5000}, Shape{3, 7, 300}, Shape{2, 3, 5, 9}}) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      for (const char* op : {"Softmax", "LogSoftmax"}) {
        const KernelCall call = Call(op, "", {Float(shape)}, {Float(shape)}, {{"axis", int64_t{axis}}});
        // A logarithm is a difference of numbers as large as the operands, and rounds as they do.
        ExpectSameAsReference(call, random, {.absolute = op[0] == 'L' ? 8e-6 : 1e-7, .relative = 2e-6, .low = -30, .high = 30});
        // Equal scores that are large have the probabilities of small ones.
        ExpectSameAsReference(call, random, {.absolute = 1e-6, .relative = 2e-6, .low = 1e7, .high = 1e7});
      }
    }
  }
}

// Equal terms, of which each rounds a long sum in the same direction.
TEST(Softmax, LongColumns) {
  std::mt19937_64 random(TestSeed());
  const Shape shape{50000, 20};
  Comparison how{.absolute = 1e-9, .relative = 1e-5};
  how.fill = [&](int, Tensor& tensor, std::mt19937_64&) {
    std::fill_n(tensor.as<float>().begin(), shape[1], 1.0f);
    std::fill(tensor.as<float>().begin() + shape[1], tensor.as<float>().end(), 0.0f);
    return true;
  };
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    ExpectSameAsReference(Call(op, "", {Float(shape)}, {Float(shape)}, {{"axis", int64_t{0}}}), random, how, std::string("cpu.") + op);
  }
}

// exp(-100), as of the masked scores of a Swin transformer, is a subnormal number, with which all later arithmetic would be slow.
TEST(Softmax, TermsThatWouldBeSubnormalAreZero) {
  const float x[] = {0, -1, -87.3f, -87.4f, -100, -103.9f, -1e30f, -std::numeric_limits<float>::infinity()};
  float y[8];
  BestLoops().exp_scaled(x, y, 8, 1);
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(y[i] / std::exp(x[i]), 1, 1e-6) << x[i];
  for (int i = 3; i < 8; ++i) EXPECT_EQ(y[i], 0) << x[i];
  std::mt19937_64 random(TestSeed());
  for (const int64_t axis : {0, 1}) {
    const Shape shape = axis == 0 ? Shape{700, 9} : Shape{9, 700};
    Comparison how{.absolute = 1.2e-38, .relative = 1e-5};
    how.fill = [&](int, Tensor& tensor, std::mt19937_64& draw) {
      std::uniform_real_distribution<float> score(-110, 0);
      for (float& to : tensor.as<float>()) to = draw() % 8 == 0 ? -std::numeric_limits<float>::infinity() : score(draw);
      return true;
    };
    ExpectSameAsReference(Call("Softmax", "", {Float(shape)}, {Float(shape)}, {{"axis", axis}}), random, how, "cpu.Softmax");
  }
}

TEST(Normalization, BatchAndLayer) {
  std::mt19937_64 random(TestSeed());
  const Comparison how{.absolute = 1e-5, .relative = 1e-5, .scale = 0.5, .low = 0.1, .high = 3};
  for (const Shape& shape : {Shape{16, 5}, Shape{4, 3, 50}, Shape{2, 7, 9, 11}, Shape{8, 16, 40, 40}}) {
    const Shape c{shape[1]};
    ExpectSameAsReference(Call("BatchNormTrain", "gradloom", {Float(shape), Float(c), Float(c)},
                               {Float(shape), Float(c), Float(c), Float(c)}, {{"epsilon", 1e-3}}),
                          random, how);
    Shape line = c;
    for (int axis = 2; axis < shape.rank(); ++axis) line.push_back(1);
    ExpectSameAsReference(Call("BatchNormLine", "gradloom", {Float(shape), Float(c), Float(c)},
                               {Float(c), Float(c), Float(c), Float(line), Float(line), Float(line)}, {{"epsilon", 1e-3}}),
                          random, how);
    ExpectSameAsReference(Call("BatchNormTrainGrad", "gradloom", {Float(shape), Float(shape), Float(c), Float(c), Float(c)},
                               {Float(shape), Float(c), Float(c)}),
                          random, how);
  }
  for (const auto& [shape, axis] : {std::pair{Shape{3, 8}, -1}, {Shape{40, 768}, -1}, {Shape{2, 3, 5, 7}, 2}, {Shape{1, 33}, 0}}) {
    const Shape width(std::vector<int64_t>(shape.begin() + (axis < 0 ? axis + shape.rank() : axis), shape.end()));
    const Attributes attributes = {{"axis", int64_t{axis}}, {"epsilon", 1e-5}};
    ExpectSameAsReference(Call("LayerNormalization", "", {Float(shape), Float(width), Float(width)}, {Float(shape)}, attributes), random,
                          how);
    ExpectSameAsReference(Call("LayerNormalization", "", {Float(shape), Float(width)}, {Float(shape)}, attributes), random, how);
    ExpectSameAsReference(Call("LayerNormGrad", "gradloom", {Float(shape), Float(shape), Float(width)},
                               {Float(shape), Float(width), Float(width)}, attributes),
                          random, how);
    ExpectSameAsReference(Call("LayerNormGrad", "gradloom", {Float(shape), Float(shape), Float(width)},
                               {OperandType{}, Float(width), Float(width)}, attributes),
                          random, how);
  }
}

TEST(Normalization, RootMeanSquare) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 12; ++round) {
    const Shape shape = RandomShape(random, 3, 1, 40), width{shape[1], shape[2]};
    const Attributes attributes = {{"axis", int64_t{1}}, {"epsilon", 1e-5}};
    const Comparison how{.absolute = 2e-5, .relative = 2e-5, .scale = 1};
    ExpectSameAsReference(Call("RMSNormalization", "", {Float(shape), Float(width)}, {Float(shape)}, attributes), random, how,
                          "cpu.RMSNormalization");
    ExpectSameAsReference(
        Call("RmsNormGrad", "gradloom", {Float(shape), Float(shape), Float(width)}, {Float(shape), Float(width)}, attributes), random, how,
        "cpu.RmsNormGrad");
  }
}

// Also for values far from zero, since the mean is subtracted before squaring.
TEST(Normalization, GroupsOfChannels) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 48; ++round) {
    const int64_t groups = 1 + static_cast<int64_t>(random() % 5), rank = 2 + static_cast<int64_t>(random() % 4);
    Shape shape = RandomShape(random, static_cast<int>(rank), 1, 12);
    shape[1] *= groups;
    if (round % 8 == 0 && rank == 4) shape[2] = 50;  // more rows than are summed in float before the sums are widened
    OperandType x = Float(shape);
    if (round % 2 == 0) x.layout = ChannelsLast(shape.rank());
    const OperandType channels = Float({shape[1]});
    const Attributes attributes = {{"num_groups", groups}, {"epsilon", 1e-3}};
    Comparison how{.absolute = 1e-4, .relative = 1e-4, .scale = 1};
    if (round % 3 == 0) how.low = 20, how.high = 24;
    ExpectSameAsReference(Call("GroupNormalization", "", {x, channels, channels}, {x}, attributes), random, how, "cpu.GroupNormalization");
    ExpectSameAsReference(Call("InstanceNormalization", "", {x, channels, channels}, {x}, attributes), random, how,
                          "cpu.InstanceNormalization");
    // With few elements the normalized value may be nothing but rounding error, which the gradient divides by the square root of epsilon.
    if (shape.elements() / (shape[0] * groups) < 4) continue;
    how.low = round % 3 == 0 ? 1 : -2, how.high = 3, how.absolute = how.relative = 1e-3;
    ExpectSameAsReference(Call("GroupNormGrad", "gradloom", {x, x, channels}, {x, channels, channels}, attributes), random, how,
                          "cpu.GroupNormGrad");
  }
}

TEST(Loss, CrossEntropyWithItsOptions) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 24; ++round) {
    const int64_t rows = 1 + static_cast<int64_t>(random() % 200), classes = 1 + static_cast<int64_t>(random() % 90);
    const OperandType scores = Float({rows, classes}), labels = Plain(DType::kInt64, {rows});
    const OperandType weights = round % 2 == 0 ? Float({classes}) : OperandType{};
    std::vector<int64_t> target(static_cast<size_t>(rows));
    for (int64_t& label : target) label = random() % 7 == 0 ? -100 : static_cast<int64_t>(random() % static_cast<uint64_t>(classes));
    const Attributes attributes = {{"ignore_index", int64_t{-100}}, {"label_smoothing", round % 3 == 0 ? 0.1 : 0.0}};
    Comparison how{.absolute = 1e-5, .relative = 1e-5, .scale = 0, .low = 0.1, .high = 2};
    how = WithIntegers(1, target, how);
    ExpectSameAsReference(Call("CrossEntropy", "gradloom", {scores, labels, weights}, {Float({}), Float({}), scores}, attributes), random,
                          how);
    const OperandType upstream = round % 2 == 0 ? Float({}) : Float({rows});
    ExpectSameAsReference(Call("CrossEntropyGrad", "gradloom", {scores, labels, weights, upstream}, {scores}, attributes), random, how);
    for (const DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
      const OperandType narrow = Plain(dtype, {rows, classes}), sums = Float({rows});
      ExpectSameAsReference(Call("CrossEntropyLogSum", "gradloom", {narrow, labels, weights}, {Float({}), Float({}), sums}, attributes),
                            random, how, "cpu.CrossEntropyLogSum");
      Comparison rounded = WithIntegers(2, target, how);
      if (dtype != DType::kFloat32) rounded.relative = dtype == DType::kBfloat16 ? 0x1p-7 : 0x1p-10;
      ExpectSameAsReference(Call("CrossEntropyLogSumGrad", "gradloom", {narrow, sums, labels, weights, upstream}, {narrow}, attributes),
                            random, rounded, "cpu.CrossEntropyLogSumGrad");
      rounded = WithIntegers(1, target, rounded);
      ExpectSameAsReference(Call("CrossEntropyTraining", "gradloom", {narrow, labels, weights, upstream}, {Float({}), narrow}, attributes),
                            random, rounded, "cpu.CrossEntropyTraining");
    }
    ExpectSameAsReference(Call("LabelWeights", "gradloom", {labels, weights}, {Float({})}, {{"ignore_index", int64_t{-100}}}), random,
                          WithIntegers(0, target, how), "cpu.LabelWeights");
    how = WithIntegers(0, target, how);
    ExpectSameAsReference(
        Call("NllGrad", "gradloom", {labels, weights, upstream}, {scores}, {{"ignore_index", int64_t{-100}}, {"classes", classes}}), random,
        how);
  }
}

// Rows that are longer than the parts in which a gradient is rounded.
TEST(Loss, TrainingOfLongRows) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 9; ++round) {
    const DType dtype = std::array{DType::kFloat32, DType::kBfloat16, DType::kFloat16}[static_cast<size_t>(round % 3)];
    const int64_t rows = 1 + static_cast<int64_t>(random() % 5), classes = 2000 + static_cast<int64_t>(random() % 6000);
    const OperandType scores = Plain(dtype, {rows, classes}), labels = Plain(DType::kInt64, {rows});
    const OperandType weights = random() % 2 == 0 ? Float({classes}) : OperandType{};
    std::vector<int64_t> target(static_cast<size_t>(rows));
    for (int64_t& label : target) label = static_cast<int64_t>(random() % static_cast<uint64_t>(classes));
    Comparison how{.absolute = 1e-5,
                   .relative = dtype == DType::kFloat32    ? 1e-5
                               : dtype == DType::kBfloat16 ? 0x1p-7
                                                           : 0x1p-10,
                   .scale = 0,
                   .low = -4,
                   .high = 4};
    if (weights.present()) how.low = 0.1;
    how = WithIntegers(1, target, how);
    ExpectSameAsReference(Call("CrossEntropyTraining", "gradloom", {scores, labels, weights, Float({rows})}, {Float({}), scores},
                               {{"label_smoothing", random() % 2 == 0 ? 0.1 : 0.0}}),
                          random, how, "cpu.CrossEntropyTraining");
  }
}

TEST(Loss, BadLabelsAreErrors) {
  const OperandType scores = Float({2, 3}), labels = Plain(DType::kInt64, {2});
  const KernelCall calls[] = {
      Call("CrossEntropy", "gradloom", {scores, labels, OperandType{}}, {Float({}), Float({}), scores}),
      Call("CrossEntropyTraining", "gradloom", {scores, labels, OperandType{}, Float({})}, {Float({}), scores}),
      // ONNX's losses leave out no label unless they say which.
      Call("CrossEntropy", "gradloom", {scores, labels, OperandType{}}, {Float({}), Float({}), scores}, {{"ignore_index", INT64_MIN}}),
  };
  for (const KernelCall& call : calls) {
    const KernelRow* row = FindKernel("cpu." + call.op);
    std::vector<Tensor> memory;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const OperandType& operand : call.inputs) {
      memory.push_back(operand.present() ? Tensor(operand.dtype, operand.shape) : Tensor());
      inputs.push_back(operand.present() ? memory.back().data() : nullptr);
    }
    for (const OperandType& operand : call.outputs) outputs.push_back(memory.emplace_back(operand.dtype, operand.shape).data());
    memory[1].as<int64_t>()[0] = 1;
    memory[1].as<int64_t>()[1] = 3;
    Tensor scratch(DType::kUint8, {row->scratch_bytes(call)});
    try {
      MakeCpuKernel(*row, call)->Run(inputs.data(), outputs.data(), scratch.data(), nullptr);
      FAIL() << call.op << ": label 3 of 3 classes was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kData);
      EXPECT_NE(error.message().find("row 1 has label 3"), std::string::npos) << error.message();
      EXPECT_EQ(error.help(),
                std::string("labels count from 0") + (call.attributes.has("ignore_index") ? "" : "; a row to leave out has label -100"));
    }
  }
}

// The same arithmetic gives the same bits.
TEST(Optimizers, MatchTheReferenceBitForBit) {
  std::mt19937_64 random(TestSeed());
  struct Case {
    const char* op;
    int states;
    Attributes attributes;
  };
  const Case cases[] = {
      {"Sgd", 0, {{"weight_decay", 0.01}}},
      {"Sgd", 1, {{"momentum", 0.9}, {"nesterov", int64_t{1}}}},
      {"Sgd", 1, {{"momentum", 0.9}, {"dampening", 0.1}, {"lr_scale", 0.5}}},
      {"Adam", 2, {{"weight_decay", 0.1}}},
      {"Adam", 2, {{"decoupled", int64_t{1}}, {"weight_decay", 0.1}}},
      {"Adam", 3, {}},
      {"NAdam", 2, {{"weight_decay", 0.1}}},
      {"NAdam", 2, {{"momentum_decay", 0.0}}},
      {"RAdam", 2, {{"weight_decay", 0.1}}},
      {"Lion", 1, {{"weight_decay", 0.1}}},
      {"RmsProp", 1, {}},
      {"RmsProp", 2, {{"momentum", 0.9}}},
      {"RmsProp", 2, {{"centered", int64_t{1}}}},
      {"RmsProp", 3, {{"momentum", 0.9}, {"centered", int64_t{1}}}},
      {"Adagrad", 1, {{"lr_decay", 0.1}}},
      {"Adadelta", 2, {}},
      {"Adamax", 2, {}},
      {"LambDirection", 2, {{"weight_decay", 0.1}}},
  };
  for (const Case& c : cases) {
    for (int round = 0; round < 6; ++round) {
      const OperandType p = Float({1 + static_cast<int64_t>(random() % (round == 5 ? 80000 : 100))});
      const OperandType clip = round % 2 == 0 ? Float({}) : OperandType{}, apply = round % 3 == 0 ? Plain(DType::kBool, {}) : OperandType{};
      KernelCall call = Call(c.op, "gradloom", {p, p, Float({}), Plain(DType::kInt64, {}), clip, apply}, {p}, c.attributes);
      for (int k = 0; k < c.states; ++k) {
        call.inputs.push_back(p);
        call.outputs.push_back(p);
      }
      // With the parameter's copy, or a gradient of 16 bits.
      const DType half = round < 3 ? DType::kBfloat16 : DType::kFloat16;
      if (round % 3 != 0 && std::string(c.op) != "LambDirection") {
        call.outputs.push_back(Plain(half, p.shape));
        call.attributes.set("copy_type", static_cast<int64_t>(half));
      }
      if (round % 2 == 1) call.inputs[1].dtype = half;
      Comparison how{.absolute = 0, .relative = 0, .low = 0.5, .high = 2};
      // If it is not applied, the direction may be any finite number.
      if (std::string(c.op) == "LambDirection") call.inputs[5] = OperandType{};
      ExpectSameAsReference(call, random, WithIntegers(3, {1 + round}, how));
    }
  }
  for (int64_t n : {1, 50000}) {
    ExpectSameAsReference(
        Call("LambApply", "gradloom", {Float({n}), Float({n}), Float({}), Float({}), Float({}), Plain(DType::kBool, {})}, {Float({n})}),
        random, {.absolute = 0, .relative = 0});
    for (const DType half : {DType::kBfloat16, DType::kFloat16}) {
      ExpectSameAsReference(
          Call("LambApply", "gradloom", {Float({n}), Float({n}), Float({}), Float({}), Float({}), Plain(DType::kBool, {})},
               {Float({n}), Plain(half, {n})}, {{"copy_type", static_cast<int64_t>(half)}}),
          random, {.absolute = 0, .relative = 0});
    }
  }
}

// Rounding would keep moments of parameters without gradients among the subnormal numbers for ever, where arithmetic is slow. Mean squares
// are only set to zero where something is added to their root.
TEST(Optimizers, MomentsWithoutGradientsBecomeZero) {
  float parameter = 1, buffer = 1e-30f, average = 1e-30f, square = 1e-36f, delta = 1e-36f;
  const auto momentum = scalar::MakeStep<float>(scalar::SgdOptions{.momentum = 0.9}, 0.1, int64_t{2});
  for (int i = 0; i < 400; ++i) scalar::MomentumElement(momentum, 0.0f, parameter, buffer);
  EXPECT_EQ(buffer, 0);
  const auto adam = scalar::MakeStep<float>(scalar::AdamOptions{}, 0.1, int64_t{1000});
  for (int i = 0; i < 10000; ++i) scalar::AdamElement(adam, 0.0f, parameter, average, square);
  EXPECT_EQ(average, 0);
  EXPECT_EQ(square, 0);
  square = 1e-36f, buffer = average = 1e-30f;
  const auto rms = scalar::MakeStep<float>(scalar::RmsPropOptions{.alpha = 0.9, .momentum = 0.9, .centered = true}, 0.1, int64_t{1});
  for (int i = 0; i < 400; ++i) scalar::RmsPropElement(rms, 0.0f, parameter, square, buffer, average);
  EXPECT_EQ(buffer, 0);
  EXPECT_EQ(average, 0);
  square = 1e-36f, average = 1e-30f;
  const auto adadelta = scalar::MakeStep<float>(scalar::AdadeltaOptions{}, 0.1, int64_t{1});
  for (int i = 0; i < 400; ++i) scalar::AdadeltaElement(adadelta, 0.0f, parameter, square, delta);
  EXPECT_EQ(square, 0);
  EXPECT_EQ(delta, 0);
  const auto adamax = scalar::MakeStep<float>(scalar::AdamaxOptions{}, 0.1, int64_t{1});
  for (int i = 0; i < 400; ++i) scalar::AdamaxElement(adamax, 0.0f, parameter, average, square);
  EXPECT_EQ(average, 0);
  average = 1e-30f;
  const auto lion = scalar::MakeStep<float>(scalar::LionOptions{.beta2 = 0.9}, 0.1, int64_t{1});
  for (int i = 0; i < 400; ++i) scalar::LionElement(lion, 0.0f, parameter, average);
  EXPECT_EQ(average, 0);
}

// Formulas for a known number of steps, against the products and sums that define them.
TEST(Optimizers, MomentaOfNAdam) {
  for (const double decay : {0.0, 1e-6, 4e-3, 0.5, 10.0}) {
    const double q = std::pow(0.96, decay);
    double product = 1;
    for (int64_t step = 1; step <= 300; ++step) {
      product *= 1 - 0.5 * std::pow(q, static_cast<double>(step));
      EXPECT_NEAR(scalar::ProductOfMomenta<double>(q, step) / product, 1, 1e-8) << decay << " " << step;
    }
  }
}

// Gradients whose squares are subnormal: moments that are compared or divided by each other must not become zero one without the other.
TEST(Optimizers, TinyGradients) {
  for (const float gradient : {1e-18f, 1e-19f, 1e-20f}) {
    for (const bool centered : {false, true}) {
      float parameter = 1, square = 0, buffer = 0, average = 0;
      const auto rms = scalar::MakeStep<float>(scalar::RmsPropOptions{.centered = centered}, 0.1, int64_t{1});
      for (int i = 0; i < 100; ++i) scalar::RmsPropElement(rms, gradient, parameter, square, buffer, average);
      EXPECT_NEAR(parameter, 1, 1e-6) << gradient << (centered ? " centered" : "");
    }
    // Without an epsilon that outweighs the root, each update is about the learning rate, as in PyTorch.
    for (const double eps : {0.0, 1e-30}) {
      float parameter = 1, square = 0, average = 0;
      const auto adam = scalar::MakeStep<float>(scalar::AdamOptions{.eps = eps}, 0.001, int64_t{1000});
      if (gradient < 1e-19f) continue;  // the square of these has too few bits
      for (int i = 0; i < 10; ++i) scalar::AdamElement(adam, gradient, parameter, average, square);
      EXPECT_NEAR(parameter, 1, 0.2) << gradient << " " << eps;
    }
  }
}

// Padding is updated like the elements, and must stay zero. Without epsilon it would become 0 / 0.
TEST(Optimizers, PaddingStaysZero) {
  std::mt19937_64 random(TestSeed());
  OperandType p = Float({20, 3});
  p.layout = Layout{.order = {}, .blocks = {{0, 16}}};
  const std::pair<const char*, int> rules[] = {{"Sgd", 1},     {"Adam", 2},    {"NAdam", 2},    {"RAdam", 2},  {"Lion", 1},
                                               {"RmsProp", 1}, {"Adagrad", 1}, {"Adadelta", 2}, {"Adamax", 2}, {"MovingAverage", 0}};
  for (const auto& [op, states] : rules) {
    for (const double eps : {1e-8, 0.0}) {
      KernelCall call =
          Call(op, "gradloom", {p, p, Float({}), Plain(DType::kInt64, {}), OperandType{}, OperandType{}}, {p}, {{"eps", eps}});
      for (int k = 0; k < states; ++k) {
        call.inputs.push_back(p);
        call.outputs.push_back(p);
      }
      const std::string name = op;
      const bool keeps = name == "Sgd" || name == "Lion" || name == "MovingAverage" || (name != "Adamax" && eps > 0);
      EXPECT_EQ(Rejection(*FindKernel(std::string("cpu.") + op), call).empty(), keeps) << op << " " << eps;
      if (!keeps) continue;
      ExpectSameAsReference(call, random, WithIntegers(3, {2}, {.absolute = 0, .relative = 0, .low = 0.5, .high = 2}));
    }
  }
}

TEST(Moves, TransposeExpandConcatSplit) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 60; ++round) {
    const DType dtype = round % 3 == 0 ? DType::kInt64 : round % 3 == 1 ? DType::kFloat32 : DType::kBool;
    const int rank = 1 + static_cast<int>(random() % 5);
    const Shape shape = RandomShape(random, rank, 1, round % 4 == 0 ? 20 : 9);
    std::vector<int64_t> perm;
    for (int axis = 0; axis < rank; ++axis) perm.push_back(axis);
    std::shuffle(perm.begin(), perm.end(), random);
    Shape permuted;
    for (int64_t axis : perm) permuted.push_back(shape[static_cast<int>(axis)]);
    ExpectSameAsReference(Call("Transpose", "", {Plain(dtype, shape)}, {Plain(dtype, permuted)}, {{"perm", perm}}), random);
    Shape wide = shape;
    Shape narrow = shape;
    for (int axis = 0; axis < rank; ++axis) {
      if (random() % 2 == 0) narrow[axis] = 1;
    }
    ExpectSameAsReference(Call("Expand", "", {Plain(dtype, narrow), Plain(DType::kInt64, {rank})}, {Plain(dtype, wide)}), random,
                          WithIntegers(1, wide.dims()));
    const int axis = static_cast<int>(random() % static_cast<uint64_t>(rank));
    Shape other = shape, both = shape;
    other[axis] = 1 + static_cast<int64_t>(random() % 5);
    both[axis] += other[axis];
    const Attributes along = {{"axis", int64_t{axis - rank}}};
    ExpectSameAsReference(Call("Concat", "", {Plain(dtype, shape), Plain(dtype, other)}, {Plain(dtype, both)}, along), random);
    ExpectSameAsReference(
        Call("Split", "", {Plain(dtype, both), Plain(DType::kInt64, {2})}, {Plain(dtype, shape), Plain(dtype, other)}, along), random,
        WithIntegers(1, {shape[axis], other[axis]}));
    ExpectSameAsReference(Call("Split", "", {Plain(dtype, both), Plain(DType::kInt64, {2})}, {OperandType{}, Plain(dtype, other)}, along),
                          random, WithIntegers(1, {shape[axis], other[axis]}));
  }
  ExpectSameAsReference(Call("Transpose", "", {Float({300, 517})}, {Float({517, 300})}), random);
  ExpectSameAsReference(
      Call("Transpose", "", {Float({4, 60, 3, 64})}, {Float({4, 3, 60, 64})}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}}), random);
}

TEST(Moves, SliceAndItsGradient) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 60; ++round) {
    const int64_t n = 2 + static_cast<int64_t>(random() % 30), m = 1 + static_cast<int64_t>(random() % 40);
    const int64_t step = round % 3 == 0 ? -2 : 1 + round % 2, start = static_cast<int64_t>(random() % static_cast<uint64_t>(n));
    const int64_t end = step > 0 ? n : -n - 1, count = step > 0 ? (n - start + step - 1) / step : start / -step + 1;
    const OperandType one = Plain(DType::kInt64, {1});
    const auto fill = [&](int input, Tensor& tensor, std::mt19937_64&) {
      const int64_t values[] = {0, start, end, 1, step};
      if (input == 0) return false;
      tensor.as<int64_t>()[0] = values[input];
      return true;
    };
    ExpectSameAsReference(Call("Slice", "", {Float({3, n, m}), one, one, one, one}, {Float({3, count, m})}), random, {.fill = fill});
    ExpectSameAsReference(Call("SliceGrad", "gradloom", {Float({3, count, m}), one, one, one, one}, {Float({3, n, m})}), random,
                          {.fill = fill});
  }
}

TEST(Index, GatherAndItsGradient) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 30; ++round) {
    const int64_t outer = 1 + round % 3, extent = 1 + static_cast<int64_t>(random() % 50);
    const int64_t inner = round % 5 == 0 ? 1 : 1 + static_cast<int64_t>(random() % 300);
    const Shape table = {outer, extent, inner}, indices = RandomShape(random, 2, 1, 20), out = {outer, indices[0], indices[1], inner};
    std::vector<int64_t> values;
    for (int64_t i = 0; i < indices.elements(); ++i) {
      // In half of the rounds most indices follow their predecessor, as for windows along an axis.
      const bool follows = round % 2 == 0 && i > 0 && values.back() + 1 < extent && random() % 4 != 0;
      values.push_back(follows ? values.back() + 1 : static_cast<int64_t>(random() % static_cast<uint64_t>(2 * extent)) - extent);
    }
    const Attributes along = {{"axis", int64_t{1}}, {"shape", table.dims()}};
    ExpectSameAsReference(Call("Gather", "", {Float(table), Plain(DType::kInt64, indices)}, {Float(out)}, along), random,
                          WithIntegers(1, values));
    // A row may receive all 400 addends in another order, so the tolerance is relative to the largest sum, not to one whose terms cancel.
    ExpectSameAsReference(Call("GatherGrad", "gradloom", {Plain(DType::kInt64, indices), Float(out)}, {Float(table)}, along), random,
                          WithIntegers(0, values, {.relative = 1e-5, .scale = 1}));
  }
}

TEST(Index, Elements) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 40; ++round) {
    const Shape data = RandomShape(random, 3, 1, 30);
    const int axis = round % 3;
    Shape indices = data;
    indices[axis] = 1 + static_cast<int64_t>(random() % 40);
    const int64_t extent = data[axis];
    std::vector<int64_t> values;
    for (int64_t i = 0; i < indices.elements(); ++i) {
      values.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(2 * extent)) - extent);
    }
    const DType dtype = round % 2 == 0 ? DType::kFloat32 : DType::kInt64;
    const Attributes along = {{"axis", int64_t{axis - 3}}};
    ExpectSameAsReference(Call("GatherElements", "", {Plain(dtype, data), Plain(DType::kInt64, indices)}, {Plain(dtype, indices)}, along),
                          random, WithIntegers(1, values), "cpu.GatherElements");
    Attributes scatter = along;
    if (round % 4 == 0) scatter.set("reduction", std::string("add"));
    ExpectSameAsReference(Call("ScatterElements", "", {Plain(dtype, data), Plain(DType::kInt64, indices), Plain(dtype, indices)},
                               {Plain(dtype, data)}, scatter),
                          random, WithIntegers(1, values, {.relative = 1e-5, .scale = 1}), "cpu.ScatterElements");
  }
}

TEST(Moves, PadAndItsGradient) {
  std::mt19937_64 random(TestSeed());
  for (const char* mode : {"constant", "edge", "reflect", "wrap"}) {
    for (int round = 0; round < 24; ++round) {
      const int rank = 1 + round % 4;
      const Shape from = RandomShape(random, rank, 3, 20);
      Shape to = from;
      std::vector<int64_t> pads(static_cast<size_t>(2 * rank));
      for (int axis = 0; axis < rank; ++axis) {
        for (int side : {0, 1}) {
          const int64_t pad = random() % 3 == 0 ? 0 : static_cast<int64_t>(random() % 4) - 1;  // -1 crops
          pads[static_cast<size_t>(side * rank + axis)] = pad;
          to[axis] += pad;
        }
      }
      const DType dtype = round % 3 == 0 ? DType::kInt64 : round % 3 == 1 ? DType::kBool : DType::kFloat32;
      const OperandType sizes = Plain(DType::kInt64, {2 * rank});
      const Attributes attributes = {{"mode", std::string(mode)}, {"shape", from.dims()}};
      OperandType constant = round % 2 == 0 ? Plain(dtype, {}) : OperandType{};
      ExpectSameAsReference(Call("Pad", "", {Plain(dtype, from), sizes, constant}, {Plain(dtype, to)}, attributes), random,
                            WithIntegers(1, pads), "cpu.Pad");
      if (to == from) continue;
      Comparison how = WithIntegers(1, pads, {.relative = 1e-5, .scale = 1});
      ExpectSameAsReference(Call("PadGrad", "gradloom", {Float(to), sizes}, {Float(from)}, attributes), random, how, "cpu.PadGrad");
      if (rank != 4) continue;
      OperandType x = Float(from), y = Float(to);
      x.layout = y.layout = ChannelsLast(rank);
      ExpectSameAsReference(Call("PadGrad", "gradloom", {y, sizes}, {x}, attributes), random, how, "cpu.PadGrad");
    }
  }
}

}  // namespace
}  // namespace gradloom
