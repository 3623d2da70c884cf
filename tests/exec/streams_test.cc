// Streams and ranks as threads: a step computes the same bits at whatever speeds they run.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <type_traits>

#include "compiler/compile.h"
#include "gtest/gtest.h"
#include "runtime/comm/local_group.h"
#include "runtime/exec/check_machine.h"
#include "runtime/exec/host_executor.h"
#include "runtime/exec/memory.h"
#include "runtime/exec/shared_parameters.h"
#include "runtime/plan/verify_plan.h"
#include "tests/conformance/training_case.h"

namespace gradloom {
namespace {

TEST(StreamThreads, RunEachIndexOnce) {
  StreamThreads threads;
  for (int run = 0; run < 2000; ++run) {
    const int count = 1 + run * 7 % 5;
    std::atomic<int> calls{0}, sum{0};
    threads.Run(count, [&](int i) {
      ++calls;
      sum += i;
    });
    ASSERT_EQ(calls, count);
    ASSERT_EQ(sum, count * (count - 1) / 2);
  }
}

TEST(Machine, ChecksMemoryOfAllProcessesOfAHost) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  // Host "a" exceeds its memory only with both claims together. A process that exceeds it alone is reported when it allocates.
  CheckHosts(std::vector<HostMemoryRequest>{
      {"a", 3 * kGiB, 8 * kGiB}, {"b", 5 * kGiB, 8 * kGiB}, {"a", 5 * kGiB, 8 * kGiB}, {"c", 9 * kGiB, 8 * kGiB}});
  CheckHosts({});
  try {
    CheckHosts(std::vector<HostMemoryRequest>{{"a", 3 * kGiB, 8 * kGiB},
                                              {"b", 1 * kGiB, 7 * kGiB},
                                              {"a", 3 * kGiB, 7 * kGiB},
                                              {"b", 1 * kGiB, 7 * kGiB},
                                              {"a", 2 * kGiB, 8 * kGiB}});
    ADD_FAILURE() << "8 GiB were taken of 7";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kLimit);
    EXPECT_EQ(error.message(),
              "the 3 processes of the job on host a need 8192 MiB, each up to 3072 MiB, but the host has 7168 MiB free for all of them");
    EXPECT_EQ(error.help(), "start at most 2 on this host, or use a smaller --batch");
  }
}

// A plan for `ranks` devices of `streams` streams each, with this much state.
Plan DevicesOf(int ranks, size_t streams, int64_t state_bytes) {
  Plan plan;
  plan.targets.resize(1);
  plan.places[0].state_bytes = state_bytes;
  plan.programs.push_back({.streams = std::vector<Stream>(streams)});
  plan.entries.push_back({.ranks = std::vector<RankBinding>(static_cast<size_t>(ranks), RankBinding{.program = 0})});
  return plan;
}

void ExpectRefused(const Plan& plan, RankRange own, const std::string& help, ErrorCode code = ErrorCode::kLimit) {
  try {
    CheckMachine(plan, own);
    ADD_FAILURE() << "a plan for " << help << " at most was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_NE(error.help().find(help), std::string::npos) << error.help();
  }
}

TEST(Machine, ChecksThreadsAndMemory) {
  CheckMachine(DevicesOf(256, 2, 1 << 10), {0, 256});
  ExpectRefused(DevicesOf(300, 2, 1 << 10), {0, 300}, "--devices cpu:256 ");
  // Only the devices of this process count, however many the job has.
  CheckMachine(DevicesOf(4096, 2, 1 << 10), {16, 32});
  // Before it allocates: the system would promise the memory, and kill the process that uses it. Other entries may have more streams.
  constexpr int64_t kTooMuch = int64_t{1} << 50;
  ExpectRefused(DevicesOf(1, 1, kTooMuch), {0, 1}, "use a smaller --batch, or use a machine with more memory", ErrorCode::kResource);
  // What lies in shared memory is checked once for all processes.
  CheckMachine(DevicesOf(1, 1, kTooMuch), {0, 1}, kTooMuch - (1 << 20));
  CheckMachine(DevicesOf(4, 1, 1 << 20), {0, 4});
  ExpectRefused(DevicesOf(4, 1, kTooMuch), {0, 4}, "--devices cpu:1");
  Plan two = DevicesOf(300, 1, 1 << 10);
  two.programs.push_back({.streams = std::vector<Stream>(2)});
  two.entries.push_back({.ranks = std::vector<RankBinding>(300, RankBinding{.program = 1})});
  ExpectRefused(two, {0, 300}, "--devices cpu:256 ");
  // Each stream computes with threads of its own.
  Plan wide = DevicesOf(1, 256, 1 << 10);
  for (Stream& stream : wide.programs.Mutable(0).streams) stream.threads = 4096;
  ExpectRefused(wide, {0, 1}, "fewer --threads");
  // The devices of one stage share its constants.
  Plan placed = DevicesOf(4, 1, 1 << 20);
  placed.places[0].constants_bytes = 1 << 10;
  EXPECT_EQ(HostBytesOf(placed, {1, 4}), (3 << 20) + (1 << 10));
  placed.targets[0].device = DeviceKind::kCuda;
  EXPECT_EQ(HostBytesOf(placed, {0, 4}), 0);
  // Creating an executor checks the machine.
  EXPECT_THROW(Executor::Make(std::make_shared<const Plan>(DevicesOf(4, 1, kTooMuch))), Error);
}

TEST(Machine, OnlyTheUsedPartOfAnArenaIsNeeded) {
  constexpr int64_t kLarge = int64_t{1} << 39;
  const HostArena partly(kLarge, "state", 1 << 20);
  *partly.at(kLarge - 1) = std::byte{1};
  EXPECT_EQ(partly.bytes(), kLarge);
  EXPECT_THROW(HostArena(int64_t{1} << 50, "state", int64_t{1} << 49), Error);
}

TEST(Machine, SharedStateIsThatOfTheModel) {
  Plan plan = DevicesOf(1, 1, 0);
  for (const StateKind kind : {StateKind::kParameter, StateKind::kStatistic, StateKind::kWeightCopy, StateKind::kOptimizer}) {
    StateTensor state;
    state.kind = kind;
    state.bytes = int64_t{1} << plan.state.size();
    plan.state.push_back(state);
  }
  EXPECT_EQ(SharedStateBytes(plan), 1 + 2 + 4);
}

// Element i of member m, chosen so that the order of summation shows in the bits.
float Given(size_t m, size_t i) { return 1.0F / static_cast<float>(1 + m * 31 + i * 7) + (m % 2 == 0 ? 1e4F : -1e4F); }

float TreeSum(std::vector<float> values) {
  for (size_t stride = 1; stride < values.size(); stride *= 2) {
    for (size_t m = 0; m + stride < values.size(); m += 2 * stride) values[m] += values[m + stride];
  }
  return values[0];
}

class Collectives : public testing::TestWithParam<size_t> {};

template <typename T>
RankGroup::Operand OperandOf(const std::vector<T>& read, std::vector<T>& write) {
  return {std::is_same_v<T, float> ? DType::kFloat32 : DType::kInt64, read.data(), write.data(),
          static_cast<int64_t>(read.size() * sizeof(T)), static_cast<int64_t>(write.size() * sizeof(T))};
}

TEST_P(Collectives, MoveAndSum) {
  const size_t n = GetParam();
  const auto root = static_cast<int>(n / 2);
  for (size_t part : {size_t{0}, size_t{1}, size_t{3}, size_t{1000}}) {
    const size_t elements = part * n;
    LocalGroup group(static_cast<int>(n));
    std::vector<std::vector<float>> in_place(n), apart(n), scattered(n), gathered(n), sent(n);
    StreamThreads threads;
    threads.Run(static_cast<int>(n), [&](int member) {
      const auto m = static_cast<size_t>(member);
      std::vector<float> given(elements);
      for (size_t i = 0; i < elements; ++i) given[i] = Given(m, i);
      in_place[m] = given;
      apart[m].resize(elements);
      scattered[m].resize(part);
      gathered[m].resize(elements * n);
      sent[m] = given;
      const auto run = [&](Collective collective, const std::vector<float>& read, std::vector<float>& write) {
        const RankGroup::Operand operand = OperandOf(read, write);
        group.Run(member, collective, root, {&operand, 1}, false);
      };
      run(Collective::kAllReduceSum, in_place[m], in_place[m]);
      run(Collective::kAllReduceSum, given, apart[m]);
      run(Collective::kReduceScatterSum, given, scattered[m]);
      run(Collective::kAllGather, given, gathered[m]);
      run(Collective::kBroadcast, sent[m], sent[m]);
      // Several operands in one collective, with different types and sizes.
      std::vector<float> none, again(elements);
      std::vector<int64_t> numbers{member, 7}, sums(2);
      const RankGroup::Operand together[] = {OperandOf(given, again), OperandOf(none, none), OperandOf(numbers, sums)};
      group.Run(member, Collective::kAllReduceSum, 0, together, false);
      EXPECT_EQ(again, apart[m]);
      EXPECT_EQ(sums, (std::vector<int64_t>{static_cast<int64_t>(n * (n - 1) / 2), static_cast<int64_t>(7 * n)}));
      // A reduce of three operands, of which each has another root, one in place.
      std::vector<float> reduced = given, other(elements);
      std::vector<RankGroup::Operand> to_roots = {OperandOf(reduced, reduced), OperandOf(numbers, sums), OperandOf(given, other)};
      for (size_t k = 0; k < to_roots.size(); ++k) {
        to_roots[k].root = static_cast<int>(k % n);
        if (m != k % n) to_roots[k].write = nullptr, to_roots[k].write_bytes = 0;
      }
      std::fill(sums.begin(), sums.end(), -1);
      group.Run(member, Collective::kReduceSum, 0, to_roots, false);
      EXPECT_EQ(reduced, m == 0 ? apart[m] : given);
      EXPECT_EQ(sums[0], m == 1 % n ? static_cast<int64_t>(n * (n - 1) / 2) : -1);
      EXPECT_EQ(other, m == 2 % n ? apart[m] : std::vector<float>(elements));
    });
    for (size_t i = 0; i < elements; ++i) {
      std::vector<float> values(n);
      for (size_t m = 0; m < n; ++m) values[m] = Given(m, i);
      const float sum = TreeSum(values);
      for (size_t m = 0; m < n; ++m) {
        ASSERT_EQ(in_place[m][i], sum) << n << " members, element " << i;
        ASSERT_EQ(apart[m][i], sum);
        ASSERT_EQ(sent[m][i], Given(static_cast<size_t>(root), i));
        for (size_t from = 0; from < n; ++from) ASSERT_EQ(gathered[m][from * elements + i], Given(from, i));
      }
      ASSERT_EQ(scattered[i / part][i % part], sum);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Members, Collectives, testing::Values(1, 2, 3, 5, 8));

// Two ranks all-reduce their halves of the batch, and then exchange the halves.
std::shared_ptr<Plan> TwoRanks() {
  auto plan = std::make_shared<Plan>();
  plan->targets.push_back({});
  plan->groups.push_back({{0, 1}});
  for (int rank = 0; rank < 2; ++rank) {
    Program program;
    program.streams = {{StreamKind::kCompute}, {StreamKind::kComm}};
    program.num_events = 2;
    program.transient_bytes = 3 * kAlignmentBytes;
    const Shape shape{2, 3};
    program.buffers.push_back({"x", Arena::kFeed, 0, 24, DType::kFloat32, shape, {}, 0});
    for (int i = 0; i < 3; ++i) {
      program.buffers.push_back({"b" + std::to_string(i), Arena::kTransient, i * kAlignmentBytes, 24, DType::kFloat32, shape});
    }
    const auto add = [&](Instruction instruction) { program.instructions.push_back(std::move(instruction)); };
    add({.kind = InstructionKind::kCopy, .uses = {{0, Access::kRead}, {1, Access::kWrite}}});
    add({.kind = InstructionKind::kRecord, .event = 0});
    add({.kind = InstructionKind::kWait, .stream = 1, .event = 0});
    add({.kind = InstructionKind::kCollective, .stream = 1, .uses = {{1, Access::kRead}, {2, Access::kWrite}}, .group = 0});
    const Instruction send{.kind = InstructionKind::kSend, .stream = 1, .uses = {{1, Access::kRead}}, .peer = 0};
    const Instruction receive{.kind = InstructionKind::kRecv, .stream = 1, .uses = {{3, Access::kWrite}}, .peer = 0};
    add(rank == 0 ? send : receive);
    add(rank == 0 ? receive : send);
    add({.kind = InstructionKind::kRecord, .stream = 1, .event = 1});
    add({.kind = InstructionKind::kWait, .event = 1});
    plan->programs.push_back(std::move(program));
  }
  Entry entry{.kind = EntryKind::kPredict, .batch = 4};
  entry.feeds.push_back({"x", DType::kFloat32, {4, 3}, 0});
  entry.fetches = {{"sum", 2, -1}, {"others", 3, 0}};
  entry.ranks = {{0, {0}, {1}, 0, 2}, {1, {0}, {0}, 2, 2, {2, 3}}};
  plan->entries.push_back(std::move(entry));
  return plan;
}

TEST(Ranks, RunCollectivesAndTransfers) {
  const auto plan = TwoRanks();
  VerifyOrThrow(*plan);
  HostExecutor executor(plan);
  executor.SetChaos(1);
  Tensor x(DType::kFloat32, {4, 3});
  for (int step = 0; step < 200; ++step) {
    for (size_t i = 0; i < 12; ++i) x.as<float>()[i] = Given(i, static_cast<size_t>(step));
    const TensorView feed = x.view();
    executor.Run(0, {&feed, 1}, {});
    const auto* sum = static_cast<const float*>(executor.Fetched(0, 0).data);
    // What the first rank received from the second, then the reverse.
    const TensorView gathered = executor.Fetched(0, 1);
    ASSERT_EQ(gathered.shape, (Shape{4, 3}));
    const auto* others = static_cast<const float*>(gathered.data);
    for (size_t i = 0; i < 6; ++i) {
      ASSERT_EQ(sum[i], x.as<float>()[i] + x.as<float>()[6 + i]) << "step " << step;
      ASSERT_EQ(others[i], x.as<float>()[6 + i]);
      ASSERT_EQ(others[6 + i], x.as<float>()[i]);
    }
  }
}

class StreamsOfCase : public testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<const Plan> PlanWith(int streams) const {
    CompileOptions options;
    options.recipe = recorded_.recipe;
    options.recipe.threads = 1;
    options.recipe.streams = streams;
    options.entries.push_back({EntryKind::kStep, recorded_.batch_sizes.front()});
    return std::make_shared<const Plan>(Compile(Model::Load(recorded_.model_path), options));
  }

  std::vector<TensorView> Feeds(const Plan& plan, int step) const {
    std::vector<TensorView> feeds;
    for (const Feed& feed : plan.entries[0].feeds) feeds.push_back(recorded_.batches.at(feed.name + std::to_string(step)).view());
    return feeds;
  }

  // All fetches of each step, and the final state.
  std::map<std::string, std::string> Run(const std::shared_ptr<const Plan>& plan, std::optional<uint64_t> chaos) const {
    HostExecutor executor(plan);
    if (chaos) executor.SetChaos(*chaos);
    std::map<std::string, std::string> bytes;
    const auto keep = [&](const std::string& name, const TensorView& view) {
      bytes[name].append(static_cast<const char*>(view.data), static_cast<size_t>(view.bytes()));
    };
    for (int step = 0; step < 2; ++step) {
      executor.Run(0, Feeds(*plan, step), {.lr = 0.01F, .step = step + 1, .batch = step, .seed = 7});
      for (size_t f = 0; f < plan->entries[0].fetches.size(); ++f) {
        keep(plan->entries[0].fetches[f].name, executor.Fetched(0, static_cast<int>(f)));
      }
    }
    for (const StateTensor& state : plan->state) keep("state " + state.name, executor.state().Get(state).view());
    return bytes;
  }

  TrainingCase recorded_ = ReadTrainingCase(std::string("tests/conformance/cases/") + GetParam());
};

TEST_P(StreamsOfCase, ChangeNoBit) {
  const char* given = std::getenv("GRADLOOM_CHAOS_SEEDS");
  const uint64_t seeds = given != nullptr ? std::strtoull(given, nullptr, 10) : 8;
  const auto wanted = Run(PlanWith(1), std::nullopt);
  for (int streams : {2, 4}) {
    const auto plan = PlanWith(streams);
    ASSERT_EQ(plan->programs[0].streams.size(), static_cast<size_t>(streams));
    EXPECT_GT(plan->programs[0].num_events, 0);
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      EXPECT_TRUE(Run(plan, seed) == wanted) << streams << " streams, chaos seed " << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, StreamsOfCase,
                         testing::Values("lenet", "resnet_cifar", "tiny_gpt", "lstm_classifier", "unet_small", "recommender"),
                         [](const auto& info) { return std::string(info.param); });

// A kernel on one of the streams finds a label for which the model has no class, while other streams wait for it.
TEST(Streams, AnErrorEndsOnlyItsStep) {
  const TrainingCase recorded = ReadTrainingCase("tests/conformance/cases/lenet");
  CompileOptions options;
  options.recipe = recorded.recipe;
  options.recipe.streams = 4;
  options.entries.push_back({EntryKind::kStep, recorded.batch_sizes.front()});
  const auto plan = std::make_shared<const Plan>(Compile(Model::Load(recorded.model_path), options));
  HostExecutor executor(plan);
  executor.SetChaos(3);
  std::vector<TensorView> right, wrong;
  Tensor labels;
  for (const Feed& feed : plan->entries[0].feeds) {
    const Tensor& given = recorded.batches.at(feed.name + "0");
    right.push_back(given.view());
    wrong.push_back(given.view());
    if (feed.dtype != DType::kInt64) continue;
    labels = Tensor::Copy(given.view());
    labels.as<int64_t>()[0] = 1000;
    wrong.back() = labels.view();
  }
  for (int step = 0; step < 20; ++step) {
    EXPECT_THROW(executor.Run(0, wrong, {}), Error);
    executor.Run(0, right, {});
  }
}

}  // namespace
}  // namespace gradloom
