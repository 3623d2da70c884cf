#include "tests/oracle/random_graph.h"

#include <algorithm>
#include <random>
#include <string>

namespace gradloom {
namespace {

class Generator {
 public:
  Generator(uint64_t seed, const TypeRules& rules)
      : random_(seed), result_{.graph = std::make_unique<Graph>()}, b_(*result_.graph, rules) {}

  RandomGraph Make(int num_nodes) {
    for (int i = 0; i < 2; ++i) pool_.push_back(Input(i));
    for (int i = 0; i < 3; ++i) pool_.push_back(Parameter(Shape{Extent(), Extent()}));
    for (int i = 0; i < num_nodes; ++i) Step();
    // Every value without readers is added to the loss, so that nothing is dead.
    const Uses uses(*result_.graph);
    std::vector<ValueId> leaves;
    for (ValueId id : pool_) {
      if (uses.consumers[static_cast<size_t>(id)].empty()) leaves.push_back(id);
    }
    ValueId loss = kNoValue;
    for (ValueId id : leaves) {
      const ValueId mean = b_.Scale(b_.ReduceSum(id, {}, false), 1.0 / static_cast<double>(std::max<int64_t>(1, b_.shape(id).elements())));
      loss = loss == kNoValue ? mean : b_.Add(loss, mean);
    }
    result_.loss = loss;
    result_.graph->outputs = {loss};
    return std::move(result_);
  }

 private:
  int Pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  int64_t Extent() { return 1 + Pick(6); }
  ValueId Any() { return pool_[static_cast<size_t>(Pick(static_cast<int>(pool_.size())))]; }

  Tensor Uniform(const Shape& shape) {
    Tensor tensor(DType::kFloat32, shape);
    std::uniform_real_distribution<float> uniform(-1.5f, 1.5f);
    for (float& value : tensor.as<float>()) value = uniform(random_);
    return tensor;
  }

  ValueId Input(int i) {
    const Shape shape{Extent(), Extent()};
    const ValueId id = result_.graph->AddValue("x" + std::to_string(i), DType::kFloat32, shape, Role::kInput);
    result_.graph->inputs.push_back(id);
    result_.feeds.emplace(id, Uniform(shape));
    return id;
  }

  ValueId Parameter(const Shape& shape) {
    const ValueId id = result_.graph->AddData("w" + std::to_string(result_.parameters.size()), Uniform(shape), Role::kParam);
    result_.parameters.push_back(id);
    return id;
  }

  // Bounded functions keep later products from overflowing.
  ValueId Unary(ValueId x) {
    static const char* const kOps[] = {"Tanh", "Sigmoid", "Relu", "Neg", "Sin", "Softplus", "Abs", "Erf", "LeakyRelu", "Cos"};
    return b_.Op(kOps[Pick(std::size(kOps))], {x});
  }

  ValueId Binary(ValueId x) {
    static const char* const kOps[] = {"Add", "Sub", "Mul", "Max", "Min"};
    for (int attempt = 0; attempt < 8; ++attempt) {
      const ValueId y = Any();
      const auto shape = Broadcast(b_.shape(x), b_.shape(y));
      if (shape && shape->elements() <= 4096) return b_.Op(kOps[Pick(std::size(kOps))], {x, y});
    }
    return b_.Add(x, Parameter(b_.shape(x)));
  }

  ValueId Product(ValueId x) {
    if (b_.shape(x).rank() < 2) return Unary(x);
    const int64_t k = b_.shape(x)[b_.shape(x).rank() - 1];
    return b_.Op("Tanh", {b_.MatMul(x, Parameter(Shape{k, Extent()}))});
  }

  ValueId Reduce(ValueId x) {
    if (b_.shape(x).rank() == 0) return Unary(x);
    static const char* const kOps[] = {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceSumSquare"};
    const int64_t axis = Pick(b_.shape(x).rank());
    return b_.Op("Tanh", {b_.Op(kOps[Pick(std::size(kOps))], {x, b_.Ints({axis})}, {{"keepdims", int64_t{Pick(2)}}})});
  }

  ValueId Move(ValueId x) {
    const Shape shape = b_.shape(x);
    const int rank = shape.rank();
    if (rank == 0) return b_.Reshape(x, Shape{1, 1});
    switch (Pick(5)) {
      case 0: {
        std::vector<int64_t> perm(static_cast<size_t>(rank));
        for (int i = 0; i < rank; ++i) perm[static_cast<size_t>(i)] = rank - 1 - i;
        return b_.Transpose(x, perm);
      }
      case 1: return b_.Reshape(x, Shape{shape.elements()});
      case 2: return b_.Reshape(x, Shape{1, shape.elements()});
      case 3: return b_.Op("Concat", {x, x}, {{"axis", int64_t{Pick(rank)}}});
      default: {
        const int64_t axis = Pick(rank), extent = shape[static_cast<int>(axis)];
        return b_.Op("Slice", {x, b_.Ints({0}), b_.Ints({std::max<int64_t>(1, extent / 2)}), b_.Ints({axis})});
      }
    }
  }

  ValueId Look(ValueId x) {
    if (b_.shape(x).rank() == 0) return Unary(x);
    std::vector<int64_t> indices;
    for (int i = 0; i < 3; ++i) indices.push_back(Pick(static_cast<int>(b_.shape(x)[0])));
    return b_.Op("Gather", {x, b_.Ints(indices)}, {{"axis", int64_t{0}}});
  }

  void Step() {
    const ValueId x = Any();
    ValueId made = kNoValue;
    switch (Pick(8)) {
      case 0:
      case 1: made = Unary(x); break;
      case 2:
      case 3: made = Binary(x); break;
      case 4: made = Product(x); break;
      case 5: made = Reduce(x); break;
      case 6: made = Move(x); break;
      default: made = Look(x); break;
    }
    if (b_.shape(made).elements() <= 4096) pool_.push_back(made);
  }

  std::mt19937_64 random_;
  RandomGraph result_;
  GraphBuilder b_;
  std::vector<ValueId> pool_;
};

}  // namespace

RandomGraph MakeRandomGraph(uint64_t seed, int num_nodes, const TypeRules& rules) { return Generator(seed, rules).Make(num_nodes); }

}  // namespace gradloom
