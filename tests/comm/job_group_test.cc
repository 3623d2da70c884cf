// Groups of ranks in several real processes give the same bits as the same number of ranks in one process, for any sizes and timing.
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <thread>

#include "gtest/gtest.h"
#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local_group.h"
#include "runtime/comm/mpi_library.h"
#include "runtime/comm/tree_sum.h"
#include "tests/comm/forked_job.h"

namespace gradloom {
namespace {

constexpr Collective kAll[] = {Collective::kAllReduceSum, Collective::kBroadcast, Collective::kReduceScatterSum, Collective::kAllGather,
                               Collective::kReduceSum};

// One collective of a random program, the same in all processes.
struct Operation {
  Collective collective{};
  int root = 0;
  bool in_place = false;
  struct Size {
    DType dtype;
    int64_t part;  // in elements; a reduce-scatter reads this many per member
    int root;      // of a reduce
  };
  std::vector<Size> sizes;
};

std::vector<Operation> Program(uint64_t seed, int members, int count) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  std::vector<Operation> program(static_cast<size_t>(count));
  for (Operation& operation : program) {
    operation.collective = kAll[below(std::size(kAll))];
    operation.root = static_cast<int>(below(static_cast<uint64_t>(members)));
    operation.in_place = below(2) == 0;
    constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64};
    // Most operands are small; some are transferred in several pieces.
    const int64_t most = below(8) == 0 ? 200000 : below(2) == 0 ? 3000 : 9;
    // All operands of a reduce may have one root.
    const auto roots = static_cast<uint64_t>(below(2) == 0 ? 1 : members);
    for (int64_t k = below(3) + 1; k > 0; --k) {
      const auto root = static_cast<int>((operation.root + below(roots)) % members);
      operation.sizes.push_back({kTypes[below(4)], below(static_cast<uint64_t>(most)), root});
    }
  }
  return program;
}

// The operands of one member.
struct MemberData {
  std::vector<std::vector<double>> read, write;  // as storage for elements of any type
  std::vector<RankGroup::Operand> operands;
};

MemberData MakeMemberData(const Operation& operation, int member, int members, uint64_t seed) {
  std::mt19937_64 random(seed * 1000 + static_cast<uint64_t>(member));
  MemberData member_data;
  for (const Operation::Size& size : operation.sizes) {
    const bool scatter = operation.collective == Collective::kReduceScatterSum, gather = operation.collective == Collective::kAllGather;
    const int64_t bytes = DTypeBytes(size.dtype), read = size.part * (scatter ? members : 1), write = size.part * (gather ? members : 1);
    auto& given = member_data.read.emplace_back(static_cast<size_t>(read) + 1);
    for (int64_t i = 0; i < read; ++i) {
      const auto drawn = static_cast<int64_t>(random());
      // The magnitudes differ widely, so that the order of summation shows in the bits.
      const double real = std::ldexp(static_cast<double>(drawn >> 11), static_cast<int>(drawn & 31) - 60);
      auto* const at = reinterpret_cast<char*>(given.data()) + i * bytes;
      const auto put = [&](auto value) { std::memcpy(at, &value, sizeof value); };
      switch (size.dtype) {
        case DType::kFloat32: put(static_cast<float>(real)); break;
        case DType::kFloat64: put(real); break;
        case DType::kInt32: put(static_cast<int32_t>(drawn >> 36)); break;
        default: put(drawn >> 8); break;
      }
    }
    auto& got = member_data.write.emplace_back(static_cast<size_t>(std::max(read, write)) + 1);
    member_data.operands.push_back({size.dtype, given.data(), got.data(), read * bytes, write * bytes, size.root});
  }
  for (size_t k = 0; operation.in_place && k < operation.sizes.size(); ++k) {
    RankGroup::Operand& operand = member_data.operands[k];
    // The offset of a member's part in the larger of its two operands.
    const int64_t mine = member * std::min(operand.read_bytes, operand.write_bytes);
    auto* const whole = reinterpret_cast<char*>(member_data.write[k].data());
    const int64_t read_at = operand.write_bytes > operand.read_bytes ? mine : 0,
                  write_at = operand.read_bytes > operand.write_bytes ? mine : 0;
    std::memcpy(whole + read_at, operand.read, static_cast<size_t>(operand.read_bytes));
    operand.read = whole + read_at;
    operand.write = whole + write_at;
  }
  for (RankGroup::Operand& operand : member_data.operands) {
    if (operation.collective == Collective::kReduceSum && operand.root != member) operand.write = nullptr, operand.write_bytes = 0;
  }
  return member_data;
}

std::string Written(const MemberData& member_data) {
  std::string bytes;
  for (const RankGroup::Operand& operand : member_data.operands) {
    if (operand.write != nullptr) bytes.append(static_cast<const char*>(operand.write), static_cast<size_t>(operand.write_bytes));
  }
  return bytes;
}

// The results of the members of `group` in `own` for each collective. Each member runs on a thread of its own.
std::vector<std::vector<std::string>> RunMembers(RankGroup& group, const std::vector<Operation>& program, int members, RankRange own,
                                                 uint64_t seed, bool delays) {
  std::vector<std::vector<std::string>> got(static_cast<size_t>(members));
  std::vector<std::exception_ptr> errors(static_cast<size_t>(members));
  std::vector<std::thread> threads;
  for (int m = own.first; m < own.last; ++m) {
    threads.emplace_back([&, m] {
      std::mt19937_64 random(seed + static_cast<uint64_t>(m) * 77);
      try {
        for (size_t i = 0; i < program.size(); ++i) {
          const Operation& operation = program[i];
          MemberData member_data = MakeMemberData(operation, m, members, seed + i);
          if (delays && random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
          group.Run(m, operation.collective, operation.root, member_data.operands, false);
          got[static_cast<size_t>(m)].push_back(Written(member_data));
        }
      } catch (...) {
        errors[static_cast<size_t>(m)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return got;
}

void Compare(const std::vector<std::vector<std::string>>& got, const std::vector<std::vector<std::string>>& wanted, RankRange own,
             uint64_t seed) {
  for (int m = own.first; m < own.last; ++m) {
    for (size_t i = 0; i < wanted[static_cast<size_t>(m)].size(); ++i) {
      if (got[static_cast<size_t>(m)][i] == wanted[static_cast<size_t>(m)][i]) continue;
      throw std::runtime_error("seed " + std::to_string(seed) + ": member " + std::to_string(m) + " got other bits in operation " +
                               std::to_string(i) + " than among threads");
    }
  }
}

TEST(TreeParts, SumToTheWholeTree) {
  for (int leaves = 1; leaves <= 40; ++leaves) {
    std::vector<float> values;
    std::vector<const void*> all;
    for (int i = 0; i < leaves; ++i) values.push_back(1.0F / static_cast<float>(1 + i * 31) + (i % 2 == 0 ? 1e4F : -1e4F));
    for (const float& value : values) all.push_back(&value);
    std::vector<double> scratch(static_cast<size_t>(SumTreeScratchBytes(all.size())) / sizeof(double));
    float whole = 0;
    SumTree(DType::kFloat32, all, 1, scratch.data(), &whole);
    for (int first = 0; first <= leaves; ++first) {
      for (int second = first; second <= leaves; ++second) {
        // Three processes, some of them without members.
        std::vector<float> sums(all.size());
        std::vector<const void*> addends(all.size());
        const int ends[] = {0, first, second, leaves};
        for (int process = 0; process < 3; ++process) {
          int at = ends[process];
          for (const TreePart& part : TreePartsOf(ends[process], ends[process + 1], leaves)) {
            ASSERT_EQ(part.first, at);
            ASSERT_GT(part.last, part.first);
            at = part.last;
            const auto begin = static_cast<size_t>(part.first);
            SumTree(DType::kFloat32, std::span(all).subspan(begin, static_cast<size_t>(part.last - part.first)), 1, scratch.data(),
                    &sums[begin]);
            addends[begin] = &sums[begin];
          }
          ASSERT_EQ(at, ends[process + 1]);
        }
        float sum = 0;
        SumTree(DType::kFloat32, addends, 1, scratch.data(), &sum);
        ASSERT_EQ(std::memcmp(&sum, &whole, sizeof sum), 0) << leaves << " leaves, " << first << ", " << second;
      }
    }
  }
}

// Level by level, over more elements than are summed at a time, into the memory of an addend. Each member of a group has its own scratch
// memory, so it must not grow with the number of members.
TEST(SumTree, SumsLevelByLevelInLittleMemory) {
  constexpr size_t kElements = 700;
  for (const size_t leaves : {1, 2, 3, 7, 64, 65, 100, 255, 256, 1000}) {
    std::vector<std::vector<float>> values(leaves);
    for (size_t m = 0; m < leaves; ++m) {
      for (size_t i = 0; i < kElements; ++i) values[m].push_back(1.0F / static_cast<float>(1 + m * 31 + i) + (m % 2 == 0 ? 1e4F : -1e4F));
    }
    std::vector<std::vector<float>> wanted = values;
    for (size_t stride = 1; stride < leaves; stride *= 2) {
      for (size_t m = 0; m + stride < leaves; m += 2 * stride) {
        for (size_t i = 0; i < kElements; ++i) wanted[m][i] += wanted[m + stride][i];
      }
    }
    std::vector<const void*> all;
    for (const std::vector<float>& value : values) all.push_back(value.data());
    std::vector<double> scratch(static_cast<size_t>(SumTreeScratchBytes(leaves)) / sizeof(double));
    std::vector<float>& sum = values[leaves / 2];
    SumTree(DType::kFloat32, all, kElements, scratch.data(), sum.data());
    EXPECT_EQ(std::memcmp(sum.data(), wanted[0].data(), kElements * sizeof(float)), 0) << leaves << " leaves";
  }
  EXPECT_LT(SumTreeScratchBytes(4096), 64 << 10);
}

struct Job {
  int processes, ranks;
  enum Transport { kMemory, kTcp, kMpi } transport = kMemory;
};

class JobGroups : public testing::TestWithParam<Job> {};

// One group of all ranks, and at the same time a second group of the ranks of the first and last process only.
void CompareWithThreads(const Job& job, const JobTopology& topology, uint64_t seed) {
  const int ranks = job.ranks;
  const auto communicator = Communicator::Connect(
      topology, {.timeout = std::chrono::seconds(100), .shared_memory = job.transport == Job::kMemory, .mpi = job.transport == Job::kMpi});
  const std::string wanted_transport = job.transport == Job::kMemory ? "shared memory" : job.transport == Job::kTcp ? "TCP" : "MPI (";
  if (!communicator->transport().starts_with(wanted_transport)) throw std::runtime_error("another transport: " + communicator->transport());
  // What many processes do in another way are small sums; and each of them has a thread for each rank.
  const bool many = job.processes > 16;
  auto program = Program(seed, ranks, many ? 8 : 30);
  for (size_t i = 0; many && i < program.size(); ++i)
    program[i].collective = i % 2 == 0 ? Collective::kAllReduceSum : Collective::kReduceSum;
  const auto pair = Program(seed + 1, 2, 30);
  std::vector<int> all(static_cast<size_t>(ranks));
  for (int i = 0; i < ranks; ++i) all[static_cast<size_t>(i)] = i;
  const RankRange own = communicator->OwnRanks(all.size());
  LocalGroup among_threads(ranks), pair_of_threads(2);
  const auto wanted = RunMembers(among_threads, program, ranks, {0, ranks}, seed, false);
  const auto wanted_pair = RunMembers(pair_of_threads, pair, 2, {0, 2}, seed + 9, false);
  const auto group = communicator->MakeGroup(0, all, 2, all.size());
  std::exception_ptr error;
  std::jthread beside;
  const bool outer = topology.rank == 0 || topology.rank == topology.world - 1;
  const RankRange half = topology.rank == 0 ? RankRange{0, 1} : RankRange{1, 2};
  std::unique_ptr<RankGroup> ends;
  if (outer) ends = communicator->MakeGroup(1, {0, ranks - 1}, 2, all.size());
  if (outer) {
    beside = std::jthread([&] {
      try {
        Compare(RunMembers(*ends, pair, 2, half, seed + 9, true), wanted_pair, half, seed);
      } catch (...) {
        error = std::current_exception();
      }
    });
  }
  const auto got = RunMembers(*group, program, ranks, own, seed, true);
  if (outer) beside.join();
  if (error) std::rethrow_exception(error);
  Compare(got, wanted, own, seed);
  communicator->Leave();
}

constexpr char kSeedVariable[] = "GRADLOOM_TEST_SEED";

// Runs this program again as every process of an mpirun job. Returns its output if that failed.
std::string RunByMpi(int processes, const std::string& test, uint64_t seed) {
  // Oversubscribes cores, permits running as root, and disables reading each other's memory, which containers forbid. Under
  // ThreadSanitizer, which reads TSAN_OPTIONS, lock-order checks are off: Open MPI's TCP component takes two of its locks in both orders.
  const std::string command =
      std::string(kSeedVariable) + "=" + std::to_string(seed) +
      " TSAN_OPTIONS=\"$TSAN_OPTIONS detect_deadlocks=0\" TMPDIR=/tmp OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
      "OMPI_MCA_btl_vader_single_copy_mechanism=none mpirun --oversubscribe --bind-to none -n " +
      std::to_string(processes) + " /proc/" + std::to_string(getpid()) + "/exe --gtest_filter=" + test + " 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "no process for mpirun";
  std::string printed;
  char text[4096];
  for (size_t n; (n = fread(text, 1, sizeof text, pipe)) > 0;) printed.append(text, n);
  return pclose(pipe) == 0 ? "" : printed + "(no success)";
}

TEST_P(JobGroups, MatchThreadsBitForBit) {
  const Job job = GetParam();
  if (const char* seed = std::getenv(kSeedVariable)) {
    CompareWithThreads(job, ResolveJobTopology({}, ThisProcessesVariables()), std::stoull(seed));
    return;
  }
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  if (job.transport == Job::kMpi) {
    std::string why;
    if (OpenMpiLibrary(why) == nullptr) GTEST_SKIP() << why;
    if (std::system("mpirun --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no mpirun here (Debian: openmpi-bin)";
    const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
    EXPECT_EQ(RunByMpi(job.processes, std::string(info->test_suite_name()) + "." + info->name(), seed), "");
    return;
  }
  const auto ended = RunForked(job.processes, [&](const JobTopology& topology) { CompareWithThreads(job, topology, seed); });
  for (size_t i = 0; i < ended.size(); ++i) EXPECT_EQ(ended[i].code, 0) << "rank " << i << ": " << ended[i].words;
}

// A ring for each two of them, of which the first messages fill every byte.
TEST(SharedMemoryRings, OfManyProcessesTakeLittleMemory) {
  constexpr int kProcesses = 24, kMessages = 12;
  constexpr size_t kBytes = 100000;
  const auto ended = RunForked(kProcesses, [](const JobTopology& topology) {
    const auto communicator = Communicator::Connect(topology);
    if (communicator->reached_by_memory() != kProcesses - 1) throw std::runtime_error("not all are reached through memory");
    for (int i = 0; i < kMessages; ++i) {
      const std::vector<std::string> all = communicator->AllGather(std::string(kBytes, static_cast<char>('a' + topology.rank)));
      for (int other = 0; other < kProcesses; ++other) {
        if (all[static_cast<size_t>(other)] != std::string(kBytes, static_cast<char>('a' + other)))
          throw std::runtime_error("another message was sent by " + std::to_string(other));
      }
    }
    int64_t bytes = 0;
    for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      struct stat status {};
      const bool rings = std::filesystem::read_symlink(file, error).string().starts_with("/memfd:gradloom-messages");
      if (rings && stat(file.path().c_str(), &status) == 0) bytes += status.st_blocks * 512;
    }
    if (bytes == 0 || bytes > 17 << 20) throw std::runtime_error("the rings have " + std::to_string(bytes) + " bytes");
    communicator->Leave();
  });
  for (size_t i = 0; i < ended.size(); ++i) EXPECT_EQ(ended[i].code, 0) << "rank " << i << ": " << ended[i].words;
}

// The names of their hosts do not matter: there are so many that their number decides how large rings are.
TEST(SharedMemoryRings, ReachProcessesOfContainersWithOtherHostNames) {
  constexpr int kProcesses = 20;
  const auto rename = [] {
    if (unshare(CLONE_NEWUTS) != 0 || sethostname("elsewhere", 9) != 0) throw std::runtime_error("no host name of its own");
  };
  if (RunForked(1, [&](const JobTopology&) { rename(); })[0].code != 0) GTEST_SKIP() << "a process may not have its own host name here";
  const auto ended = RunForked(kProcesses, [&](const JobTopology& topology) {
    if (topology.rank == 3) rename();
    const auto communicator = Communicator::Connect(topology);
    if (communicator->name(3).find("(host elsewhere, ") == std::string::npos) throw std::runtime_error(communicator->name(3));
    if (communicator->reached_by_memory() != kProcesses - 1) throw std::runtime_error("not all are reached through memory");
    communicator->Leave();
  });
  for (size_t i = 0; i < ended.size(); ++i) EXPECT_EQ(ended[i].code, 0) << "rank " << i << ": " << ended[i].words;
}

std::string NameOf(const Job& job) {
  constexpr const char* kBy[] = {"Memory", "Tcp", "Mpi"};
  return std::to_string(job.processes) + "Processes" + std::to_string(job.ranks) + "RanksBy" + kBy[job.transport];
}

INSTANTIATE_TEST_SUITE_P(Jobs, JobGroups,
                         testing::Values(Job{2, 2}, Job{2, 3, Job::kTcp}, Job{2, 8}, Job{3, 3, Job::kTcp}, Job{3, 7}, Job{4, 4},
                                         Job{4, 6, Job::kTcp}, Job{5, 5, Job::kTcp}, Job{5, 13}, Job{17, 17, Job::kTcp}, Job{19, 23},
                                         Job{2, 3, Job::kMpi}, Job{3, 3, Job::kMpi}, Job{4, 6, Job::kMpi}, Job{5, 7, Job::kMpi}),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace gradloom
