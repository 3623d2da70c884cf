// The cost of a step besides its kernels: no allocation, little time, and no memory beyond the plan.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>

#include "compiler/compile.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_kernels.h"
#include "runtime/exec/host_executor.h"
#include "runtime/exec/rethrow.h"
#include "runtime/session/session.h"
#include "tests/conformance/training_case.h"
#include "tests/exec/allocations.h"

namespace gradloom {
namespace {

const char* const kCases[] = {"housing_mlp", "lenet", "resnet_cifar", "tiny_gpt", "lstm_classifier", "unet_small"};

std::shared_ptr<const Plan> PlanOf(const TrainingCase& recorded) {
  CompileOptions options;
  options.recipe = recorded.recipe;
  options.recipe.threads = 1;
  options.entries.push_back({EntryKind::kStep, recorded.batch_sizes.front()});
  return std::make_shared<const Plan>(Compile(Model::Load(recorded.model_path), options));
}

std::vector<TensorView> FeedsOf(const Plan& plan, const TrainingCase& recorded) {
  std::vector<TensorView> feeds;
  for (const Feed& feed : plan.entries[0].feeds) feeds.push_back(recorded.batches.at(feed.name + "0").view());
  return feeds;
}

// Runs the kernels of a plan's first program in a plain loop with memory of its own.
class BareLoop {
 public:
  BareLoop(const Plan& plan, std::span<const TensorView> feeds)
      : plan_(plan),
        program_(plan.programs[0]),
        state_(plan, AllocateHostArena, {0, 1}),
        constants_(plan.places[0].constants_bytes, "constants"),
        transient_(program_.transient_bytes, "transient"),
        step_(plan.step.bytes, "step") {
    for (const Constant& constant : plan.constants) {
      std::memcpy(constants_.at(constant.offset), constant.value.data(), static_cast<size_t>(constant.value.bytes()));
    }
    for (const Instruction& instruction : program_.instructions) {
      if (instruction.kind != InstructionKind::kLaunch) continue;
      Launch launch;
      launch.name = instruction.kernel;
      launch.kernel = MakeCpuKernel(*FindKernel(instruction.kernel), CallOf(plan, program_, instruction));
      for (const Use& use : instruction.uses) {
        void* address = use.buffer < 0 ? nullptr : Address(program_.buffers[static_cast<size_t>(use.buffer)], feeds);
        if (use.access == Access::kRead) launch.inputs.push_back(address);
        if (use.access == Access::kWrite) launch.outputs.push_back(address);
        if (use.access == Access::kScratch) launch.scratch = address;
      }
      launches_.push_back(std::move(launch));
    }
  }

  void Run() {
    for (Launch& launch : launches_) launch.kernel->Run(launch.inputs.data(), launch.outputs.data(), launch.scratch, nullptr);
  }

  // Runs once and counts the calls of operator new, by kernel.
  std::map<std::string, int64_t> AllocationsByKernel() {
    std::vector<int64_t> counts(launches_.size());
    for (size_t i = 0; i < launches_.size(); ++i) {
      const int64_t before = Allocations();
      launches_[i].kernel->Run(launches_[i].inputs.data(), launches_[i].outputs.data(), launches_[i].scratch, nullptr);
      counts[i] = Allocations() - before;
    }
    std::map<std::string, int64_t> by_kernel;
    for (size_t i = 0; i < launches_.size(); ++i) by_kernel[launches_[i].name] += counts[i];
    return by_kernel;
  }

 private:
  struct Launch {
    std::string name;
    std::unique_ptr<Kernel> kernel;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    void* scratch = nullptr;
  };

  void* Address(const Buffer& buffer, std::span<const TensorView> feeds) {
    switch (buffer.arena) {
      case Arena::kState: return state_.at(0, buffer.offset);
      case Arena::kConstants: return constants_.at(buffer.offset);
      case Arena::kTransient: return transient_.at(buffer.offset);
      case Arena::kStep: return step_.at(buffer.offset);
      case Arena::kFeed: return const_cast<void*>(feeds[static_cast<size_t>(buffer.feed)].data);
      case Arena::kInput: return nullptr;  // with one stream there are no input copies
    }
    return nullptr;
  }

  const Plan& plan_;
  const Program& program_;
  StateArena state_;
  HostArena constants_, transient_, step_;
  std::vector<Launch> launches_;
};

class StepTest : public testing::TestWithParam<const char*> {
 protected:
  TrainingCase recorded_ = ReadTrainingCase(std::string("tests/conformance/cases/") + GetParam());
  std::shared_ptr<const Plan> plan_ = PlanOf(recorded_);
  std::vector<TensorView> feeds_ = FeedsOf(*plan_, recorded_);
};

TEST_P(StepTest, AllocatesNothingOfItsOwn) {
  BareLoop bare(*plan_, feeds_);
  bare.Run();
  int64_t of_kernels = 0;
  for (const auto& [kernel, count] : bare.AllocationsByKernel()) {
    of_kernels += count;
    if (count > 0) std::printf("%s: %lld allocations a step\n", kernel.c_str(), static_cast<long long>(count));
    // oneDNN and the reference kernels may allocate. Our own kernels use memory from the plan.
    if (kernel.starts_with("cpu.")) {
      EXPECT_EQ(count, 0) << kernel;
    }
  }
  HostExecutor executor(plan_);
  executor.Run(0, feeds_, {.lr = 1e-3F});
  for (int64_t step = 2; step <= 100; ++step) {
    const int64_t before = Allocations();
    executor.Run(0, feeds_, {.lr = 1e-3F, .step = step, .batch = step - 1});
    ASSERT_EQ(Allocations() - before, of_kernels) << "step " << step;
    if (recorded_.name != "housing_mlp" && step == 10) break;
  }
}

TEST_P(StepTest, ReallocatesReleasedMemory) {
  HostExecutor kept(plan_), released(plan_);
  for (int64_t step = 1; step <= 3; ++step) {
    for (HostExecutor* executor : {&kept, &released}) executor->Run(0, feeds_, {.lr = 1e-2F, .step = step, .batch = step - 1});
    EXPECT_EQ(released.memory()[0].cached, released.transient_bytes());
    released.ReleaseMemory();
    EXPECT_EQ(released.memory()[0].cached, 0);
    EXPECT_GT(released.memory()[0].free, 0);
    EXPECT_EQ(std::memcmp(kept.state().at(0, 0), released.state().at(0, 0), static_cast<size_t>(plan_->places[0].state_bytes)), 0);
  }
  EXPECT_EQ(released.memory()[0].allocated, plan_->places[0].state_bytes + plan_->places[0].constants_bytes + plan_->step.bytes);
}

TEST_P(StepTest, UsesThePlannedPeak) {
  int64_t end = 0;
  for (const Buffer& buffer : plan_->programs[0].buffers) {
    if (buffer.arena == Arena::kTransient) end = std::max(end, buffer.offset + buffer.bytes);
  }
  EXPECT_GE(plan_->programs[0].transient_bytes, end);
  EXPECT_LT(plan_->programs[0].transient_bytes - end, 64);
  EXPECT_EQ(HostExecutor(plan_).transient_bytes(0), plan_->programs[0].transient_bytes);
}

TEST(Tensor, IsZeroAndAlignedHoweverLarge) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, (int64_t{1} << 20) - 1, int64_t{1} << 20, (int64_t{5} << 20) + 3}) {
    // The second round reuses memory that was written before.
    for (int round = 0; round < 2; ++round) {
      Tensor tensor(DType::kUint8, {bytes});
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data()) % kAlignmentBytes, 0U);
      const std::span<uint8_t> elements = tensor.as<uint8_t>();
      EXPECT_TRUE(std::all_of(elements.begin(), elements.end(), [](uint8_t element) { return element == 0; })) << bytes;
      std::fill(elements.begin(), elements.end(), uint8_t{255});
    }
  }
}

// An empty tensor is different from an absent one.
TEST(Arenas, EmptyArenaHasAnAddress) {
  HostArena none(0, "none"), moved = std::move(none);
  EXPECT_NE(moved.at(0), nullptr);
  EXPECT_NE(HostArena().at(0), nullptr);
}

// The initial weights belong to the caller alone, who may release them.
TEST_P(StepTest, SessionKeepsNoCopyOfTheWeights) {
  const Session session(plan_);
  for (size_t i = 0; i < plan_->state.size(); ++i) {
    const Tensor& initial = plan_->state[i].initial;
    EXPECT_FALSE(session.plan().state[i].initial.defined());
    if (!initial.defined()) continue;
    const Tensor kept = session.Get(plan_->state[i].name);
    ASSERT_EQ(kept.bytes(), initial.bytes());
    EXPECT_EQ(std::memcmp(kept.data(), initial.data(), static_cast<size_t>(kept.bytes())), 0) << plan_->state[i].name;
  }
}

// The attributes of a kernel come from the plan, not the model. A corrupted file is reported as such, with the location.
TEST(BadPlan, AttributeOfTheWrongKindNamesTheLaunch) {
  const TrainingCase recorded = ReadTrainingCase("tests/conformance/cases/lenet");
  const auto plan = PlanOf(recorded);
  const std::vector<TensorView> feeds = FeedsOf(*plan, recorded);
  int refused = 0;
  for (size_t i = 0; i < plan->programs[0].instructions.size(); ++i) {
    const Instruction& launch = plan->programs[0].instructions[i];
    if (launch.kind != InstructionKind::kLaunch) continue;
    for (const auto& [name, value] : launch.attributes) {
      Plan changed = *plan;
      changed.programs.Mutable(0).instructions[i].attributes.set(name, std::string("x"));
      try {
        HostExecutor executor(std::make_shared<const Plan>(std::move(changed)));
        executor.Run(0, feeds, {.lr = 1e-3F});
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kPlan) << NodeOf(launch) << " " << name << ": " << error.message();
        EXPECT_NE(error.where().find(NodeOf(launch)), std::string::npos) << error.where();
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 0);
}

double MedianMicroseconds(const std::function<void()>& run) {
  std::vector<double> times;
  for (int i = 0; i < 300; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + 150, times.end());
  return times[150];
}

// Printed, not asserted, since a busy machine is not a failure.
TEST(StepCost, SmallModel) {
  const TrainingCase recorded = ReadTrainingCase("tests/conformance/cases/housing_mlp");
  const auto plan = PlanOf(recorded);
  const auto feeds = FeedsOf(*plan, recorded);
  BareLoop bare(*plan, feeds);
  HostExecutor executor(plan);
  const double of_kernels = MedianMicroseconds([&] { bare.Run(); });
  const double of_step = MedianMicroseconds([&] { executor.Run(0, feeds, {.lr = 1e-3F}); });
  std::printf("step %.2f us, its kernels in a bare loop %.2f us, the executor adds %.2f us\n", of_step, of_kernels, of_step - of_kernels);
  EXPECT_GT(of_step, 0);
}

INSTANTIATE_TEST_SUITE_P(Cases, StepTest, testing::ValuesIn(kCases), [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace gradloom
