// Inputs reach emulated GPUs unchanged on every way: through pinned memory, in which they are neighbors, or directly from the caller's
// pinned memory or from a GPU, also ahead of their step and to several devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/device/device.h"
#include "tests/conformance/run_case.h"
#include "tests/cuda/emulated_runtime.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

constexpr int64_t kColumns = 1000;
constexpr int64_t kRows = 70;         // x has 280 KB
constexpr int64_t kManyRows = 2'100;  // x has 8.4 MB, which two threads copy

class InputCopies : public testing::Test {
 protected:
  void SetUp() override { emulated::Reset({.devices = 2, .seed = 3}); }
  void TearDown() override { emulated::Reset({}); }
};

// Where v and x are: in ordinary memory, in memory pinned by the caller, or on the first GPU.
enum class In : uint8_t { kOrdinary, kPinned, kDevice };

class Batches {
 public:
  explicit Batches(In in, int64_t rows = kRows) : in_(in), device_(in == In::kOrdinary ? nullptr : CudaPlatform()->Open(0)) {
    std::mt19937 random(8);
    for (int i = 0; i < 4; ++i) {
      Batch& batch = tensors_.emplace_back();
      batch.emplace("u", Random(random, Shape{rows, 1}));
      batch.emplace("v", Random(random, Shape{rows, 1}));
      batch.emplace("x", Random(random, Shape{rows, kColumns}));
      batch.emplace("y", Classes(random, rows, 3));
      Feeds feeds = Views(batch);
      for (const char* name : {"v", "x"}) {
        if (in != In::kOrdinary) feeds.at(name).data = Moved(feeds.at(name));
      }
      feeds_.push_back(std::move(feeds));
    }
  }
  ~Batches() {
    for (std::byte* memory : memory_) in_ == In::kPinned ? device_->FreePinned(memory) : device_->Free(memory);
  }

  const Feeds& operator[](size_t i) const { return feeds_[i]; }
  size_t size() const { return feeds_.size(); }
  int64_t rows() const { return feeds_.front().at("x").shape[0]; }
  // Overwrites v and x. The memory of an emulated GPU is the host's.
  static void Spoil(const Feeds& feeds) {
    for (const char* name : {"v", "x"}) {
      const TensorView& view = feeds.at(name);
      std::memset(const_cast<void*>(view.data), 0, static_cast<size_t>(view.bytes()));
    }
  }

 private:
  const void* Moved(const TensorView& view) {
    std::byte* const memory =
        memory_.emplace_back(in_ == In::kPinned ? device_->AllocatePinned(view.bytes()) : device_->Allocate(view.bytes()));
    std::memcpy(memory, view.data, static_cast<size_t>(view.bytes()));
    return memory;
  }

  const In in_;
  std::shared_ptr<Device> device_;
  std::vector<Batch> tensors_;
  std::vector<std::byte*> memory_;
  std::vector<Feeds> feeds_;
};

std::unique_ptr<Session> Trainer(const std::string& devices, int64_t rows = kRows, bool pin = true) {
  std::mt19937 random(5);
  const Model model = ModelOf("net (float[N,1] u, float[N,1] v, float[N," + std::to_string(kColumns) + "] x) => (float[N,3] z) <" +
                              Weights(random, "w", Shape{kColumns, 3}, 0.05F) + "> { s = Sub(x, u)\n t = Mul(s, v)\n z = MatMul(t, w) }");
  CompileOptions options = OptionsFor({{"cross_entropy", "z", "y", 1}}, 1, {rows});
  SessionOptions session;
  SetDevices({.devices = devices}, options.recipe, session);
  session.executor.pin_memory = pin;
  return std::make_unique<Session>(std::make_shared<const Plan>(Compile(model, options)), session);
}

int64_t Copies() {
  const auto& calls = emulated::Calls();
  return std::count_if(calls.begin(), calls.end(), [](const emulated::Call& call) { return call.what == "copy" && !call.captured; });
}

struct Outcome {
  std::vector<double> losses;
  int64_t copies = 0;  // enqueued outside of graphs
};

Outcome Train(const std::string& devices, const Batches& batches, bool ahead, bool pin = true) {
  const std::unique_ptr<Session> session = Trainer(devices, batches.rows(), pin);
  Outcome outcome;
  const int64_t before = Copies();
  for (size_t i = 0; i < batches.size() + 1; ++i) {
    const Feeds* const next = ahead ? &batches[(i + 1) % batches.size()] : nullptr;
    outcome.losses.push_back(session->Step(batches[i % batches.size()], [next] { return next; }).loss);
  }
  session->FinishPrefetch();
  outcome.copies = Copies() - before;
  return outcome;
}

TEST_F(InputCopies, AllWaysGiveTheSameBits) {
  // Each of two devices gets half of the large input, which is too small to be read in place.
  for (const char* devices : {"cuda:0", "cuda:0,1"}) {
    const Outcome staged = Train(devices, Batches(In::kOrdinary), false);
    for (const bool ahead : {false, true}) {
      for (const bool pin : {true, false}) {
        EXPECT_EQ(Train(devices, Batches(In::kOrdinary), ahead, pin).losses, staged.losses) << devices << ahead << pin;
        EXPECT_EQ(Train(devices, Batches(In::kPinned), ahead, pin).losses, staged.losses) << devices << ahead << pin;
      }
    }
  }
}

TEST_F(InputCopies, LargeInputsAreStagedByThreads) {
  EXPECT_EQ(Train("cuda:0", Batches(In::kOrdinary, kManyRows), true).losses,
            Train("cuda:0", Batches(In::kPinned, kManyRows), false).losses);
  EXPECT_EQ(Train("cuda:0,1", Batches(In::kPinned, kManyRows), true).losses,
            Train("cuda:0,1", Batches(In::kOrdinary, kManyRows), false).losses);
}

// The large one is a transfer of its own, between those of the inputs before and after it. v is too small.
TEST_F(InputCopies, OnlyLargePinnedInputsAreReadInPlace) {
  const Outcome staged = Train("cuda:0", Batches(In::kOrdinary), false), direct = Train("cuda:0", Batches(In::kPinned), false);
  EXPECT_EQ(direct.copies - staged.copies, 2 * static_cast<int64_t>(staged.losses.size()));
}

// Streams of the emulated GPU do nothing until somebody waits for them.
TEST_F(InputCopies, InputsHaveBeenReadOnceTheyAreFinished) {
  for (const In in : {In::kOrdinary, In::kPinned, In::kDevice}) {
    for (const bool pin : {true, false}) {
      SCOPED_TRACE(static_cast<int>(in) * 10 + (pin ? 1 : 0));
      const Batches batches(in), same(in);
      const std::unique_ptr<Session> session = Trainer("cuda:0", kRows, pin), other = Trainer("cuda:0");
      session->Step(batches[0]);
      session->Step(batches[1], [&] { return &batches[2]; });
      session->FinishPrefetch();
      Batches::Spoil(batches[2]);
      const double loss = session->Step(batches[2]).loss;
      for (const size_t i : {0, 1}) other->Step(same[i]);
      EXPECT_EQ(loss, other->Step(same[2]).loss);
      // A step with other inputs than announced.
      session->Step(batches[0], [&] { return &batches[3]; });
      session->Step(batches[1]);
      Batches::Spoil(batches[3]);
      for (const size_t i : {0, 1}) other->Step(same[i]);
      EXPECT_EQ(session->Step(batches[0]).loss, other->Step(same[0]).loss);
    }
  }
}

TEST_F(InputCopies, DroppedInputsAreCopiedAgain) {
  for (const In in : {In::kOrdinary, In::kPinned, In::kDevice}) {
    const Batches batches(in), same(In::kOrdinary);
    const std::unique_ptr<Session> session = Trainer("cuda:0"), other = Trainer("cuda:0");
    session->Step(batches[0]);
    session->Step(batches[1], [&] { return &batches[2]; });
    session->DropPrefetch();
    Batches::Spoil(batches[2]);
    Batches::Spoil(same[2]);
    for (const size_t i : {0, 1}) other->Step(same[i]);
    EXPECT_EQ(session->Step(batches[2]).loss, other->Step(same[2]).loss) << static_cast<int>(in);
  }
}

TEST_F(InputCopies, MemoryIsPinnedOnlyIfAllOfItIs) {
  const std::shared_ptr<Device> device = CudaPlatform()->Open(0);
  std::byte* const pinned = device->AllocatePinned(1000);
  std::byte* const own = device->Allocate(1000);
  const std::vector<std::byte> plain(1000);
  EXPECT_TRUE(CudaPlatform()->Pinned(pinned, 1000));
  EXPECT_TRUE(CudaPlatform()->Pinned(pinned + 10, 0));
  EXPECT_FALSE(CudaPlatform()->Pinned(pinned + 10, 1000));
  EXPECT_FALSE(CudaPlatform()->Pinned(plain.data(), 1000));
  EXPECT_FALSE(CudaPlatform()->Pinned(own, 1000));
  device->Free(own);
  device->FreePinned(pinned);
}

}  // namespace
}  // namespace gradloom
