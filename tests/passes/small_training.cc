#include "tests/passes/small_training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace gradloom {

Model ModelOf(const std::string& graph) { return Model::FromText("<ir_version: 10, opset_import: [\"\" : 17]>\n" + graph); }

std::string Weights(std::mt19937& random, const std::string& name, const Shape& shape, float spread) {
  std::uniform_real_distribution<float> real(-spread, spread);
  std::string values;
  for (int64_t i = 0; i < shape.elements(); ++i) values += (i ? ", " : "") + std::to_string(real(random));
  return "float" + shape.ToString() + " " + name + " = {" + values + "}";
}

int64_t Count(const Plan& plan, const std::string& op) {
  int64_t count = 0;
  for (const Program& program : plan.programs) {
    for (const Instruction& instruction : program.instructions) count += instruction.op == op;
  }
  return count;
}

Tensor Random(std::mt19937& random, Shape shape) {
  Tensor tensor(DType::kFloat32, shape);
  std::normal_distribution<float> normal;
  for (float& value : tensor.as<float>()) value = normal(random);
  return tensor;
}

Tensor Classes(std::mt19937& random, int64_t count, int64_t classes) {
  Tensor tensor(DType::kInt64, Shape{count});
  for (int64_t& value : tensor.as<int64_t>()) value = static_cast<int64_t>(random() % static_cast<uint64_t>(classes));
  return tensor;
}

Feeds Views(const Batch& batch) {
  Feeds feeds;
  for (const auto& [name, tensor] : batch) feeds.emplace(name, tensor.view());
  return feeds;
}

CompileOptions OptionsFor(std::vector<LossTerm> losses, int devices, const std::vector<int64_t>& batches) {
  CompileOptions options;
  options.recipe.losses = std::move(losses);
  options.recipe.optimizer.type = "adam";
  options.recipe.schedule.lr = options.recipe.optimizer.lr = 0.05;
  options.recipe.fetch_gradients = true;
  options.recipe.fetch_outputs = true;
  options.recipe.devices = devices;
  for (int64_t batch : batches) options.entries.push_back({EntryKind::kStep, batch});
  return options;
}

std::map<std::string, Tensor> Train(const Model& model, const CompileOptions& options, const std::vector<Batch>& batches, uint64_t chaos) {
  Session session(std::make_shared<const Plan>(Compile(model, options)));
  if (chaos != 0) session.executor().SetChaos(chaos);
  std::map<std::string, Tensor> results;
  for (size_t step = 0; step < batches.size(); ++step) {
    const Feeds feeds = Views(batches[step]), next = step + 1 < batches.size() ? Views(batches[step + 1]) : Feeds();
    const StepResult made = session.Step(feeds, [&] { return next.empty() ? nullptr : &next; });
    session.FinishPrefetch();
    if (made.grad_norm >= 0) results.emplace("grad_norm@" + std::to_string(step), Tensor::Scalar(made.grad_norm));
    for (const Entry& entry : session.plan().entries) {
      for (const Fetch& fetch : entry.fetches) {
        if (session.HasFetch(fetch.name) && fetch.name != "grad_norm")
          results.emplace(fetch.name + "@" + std::to_string(step), Tensor::Copy(session.Fetched(fetch.name)));
      }
    }
  }
  // Every device that holds the tensor must have the same bits.
  const Plan& plan = session.plan();
  const StateArena& state = session.executor().state();
  for (const StateTensor& tensor : plan.state) {
    if (tensor.derived()) {
      const Tensor copy = session.Get(tensor.name);
      const Tensor rounded = Converted(session.Get(plan.state[static_cast<size_t>(tensor.parameter)].name).view(), tensor.dtype);
      EXPECT_EQ(std::memcmp(copy.data(), rounded.data(), static_cast<size_t>(copy.bytes())), 0) << tensor.name;
    } else {
      results.emplace(tensor.name, session.Get(tensor.name));
    }
    if (tensor.partial) continue;
    const std::byte* first = nullptr;
    for (size_t rank = 0; rank < state.ranks(); ++rank) {
      if (!tensor.in_place(plan.PlaceOf(rank))) continue;
      const std::byte* const mine = state.at(static_cast<int>(rank), tensor.offset);
      if (first == nullptr) {
        first = mine;
        continue;
      }
      EXPECT_EQ(std::memcmp(first, mine, static_cast<size_t>(tensor.bytes)), 0) << tensor.name << " of device " << rank;
    }
  }
  return results;
}

void ExpectNear(const std::map<std::string, Tensor>& want, const std::map<std::string, Tensor>& got, double tolerance) {
  ASSERT_EQ(want.size(), got.size());
  for (const auto& [name, tensor] : want) {
    ASSERT_TRUE(got.contains(name)) << name;
    const Tensor& other = got.at(name);
    ASSERT_EQ(tensor.shape(), other.shape()) << name;
    double largest = 0;
    for (int64_t i = 0; i < tensor.elements(); ++i) largest = std::max(largest, std::abs(ElementAsDouble(tensor.view(), i)));
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      ASSERT_NEAR(ElementAsDouble(tensor.view(), i), ElementAsDouble(other.view(), i), tolerance * std::max(largest, 1e-3))
          << name << " " << i;
    }
  }
}

void ExpectSameBits(const std::map<std::string, Tensor>& want, const std::map<std::string, Tensor>& got) {
  ASSERT_EQ(want.size(), got.size());
  for (const auto& [name, tensor] : want) {
    EXPECT_EQ(std::memcmp(tensor.data(), got.at(name).data(), static_cast<size_t>(tensor.bytes())), 0) << name;
  }
}

void ExpectSameWithout(const std::string& pass, const Model& model, const std::vector<Batch>& batches, double tolerance,
                       const std::function<void(const CompileOptions&)>& look, const std::vector<std::string>& disabled) {
  const int64_t size = batches.front().at("target").shape()[0];
  for (int devices : {1, 2}) {
    CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {size});
    options.recipe.optimizer.type = "sgd";
    options.control.disabled = disabled;
    if (devices == 1) look(options);
    const auto with = Train(model, options, batches);
    options.control.disabled.push_back(pass);
    ExpectNear(Train(model, options, batches), with, tolerance);
  }
}

void ExpectDivides(const std::string& graph, const std::vector<LossTerm>& losses, const std::vector<int64_t>& sizes,
                   const std::function<Batch(std::mt19937&, int64_t)>& make, const std::function<void(CompileOptions&)>& change) {
  std::mt19937 random(7);
  std::vector<Batch> batches;
  for (int64_t size : sizes) batches.push_back(make(random, size));
  std::vector<int64_t> unlike = sizes;
  std::sort(unlike.begin(), unlike.end(), std::greater<>());
  unlike.erase(std::unique(unlike.begin(), unlike.end()), unlike.end());
  const Model model = ModelOf(graph);
  const auto options = [&](int devices) {
    CompileOptions made = OptionsFor(losses, devices, unlike);
    if (change) change(made);
    return made;
  };
  const auto one = Train(model, options(1), batches);
  for (int devices : {2, 3, 8}) {
    SCOPED_TRACE(std::to_string(devices) + " devices");
    const auto several = Train(model, options(devices), batches);
    ExpectNear(one, several, 2e-5);
    ExpectSameBits(several, Train(model, options(devices), batches, 5));
    // One collective per sum, and several compute streams.
    CompileOptions apart = options(devices);
    apart.recipe.bucket_bytes = 1;
    apart.recipe.streams = 2;
    ExpectSameBits(several, Train(model, apart, batches, 6));
  }
}

}  // namespace gradloom
