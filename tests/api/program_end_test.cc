// Programs that end while threads still train or sessions are still there.
#include <gradloom/gradloom.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/api/housing.h"

// A sanitizer looks at threads that still run at the end.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {

// Daemon threads, as of Python, are not waited for.
TEST(ProgramEndDeathTest, MayEndWhileThreadsTrain) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto end = [] {
    for (const char* threads : {"1", "2"}) {
      std::thread([threads] {
        const Samples samples(8);
        gradloom::CompileOptions options;
        options.loss = gradloom::Loss::CrossEntropy("logits", "label");
        options.batch = 8;
        options.settings = {{"devices.threads", threads}};
        const std::vector<float> image(8 * 64, 0.5F);
        const std::vector<int64_t> label(8);
        gradloom::Session session(gradloom::Compile(gradloom::Model("models/digits_cnn.onnx"), options));
        while (true) session.Step({{"image", TensorView(image.data(), {8, 1, 8, 8})}, {"label", TensorView(label.data(), {8})}});
      }).detach();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    std::exit(0);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(0), "");
}

// As in the destructor of a global object.
TEST(ProgramEndDeathTest, MayUseASessionInItsLastHandlers) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto end = [] {
    static std::unique_ptr<gradloom::Session> session;
    std::atexit([] {
      alarm(60);  // ends a step that waits for ever
      const Samples samples(9);
      for (const bool async : {false, true}) {
        try {
          async ? session->StepAsync(samples.feeds()) : static_cast<void>(session->Step(samples.feeds()));
        } catch (const gradloom::Error& error) {
          std::fprintf(stderr, "%s, %d parameters\n", error.what(), static_cast<int>(session->FlatParameters().size()));
        }
      }
      session.reset();
    });
    session = std::make_unique<gradloom::Session>(CompileHousing());
    session->Step(Samples(9).feeds());
    std::exit(0);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(0),
              "(E-CONFIG: the program has called exit, after which no step can begin(.|\n)*, 801 parameters\n){2}");
}

// A step of that thread which waits for the end of the process holds nothing of the session.
TEST(ProgramEndDeathTest, MayReleaseASessionThatAnotherThreadTrains) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto end = [](bool async) {
    static std::unique_ptr<gradloom::Session> session;
    std::atexit([] {
      alarm(60);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the other thread begins another step
      session.reset();
    });
    session = std::make_unique<gradloom::Session>(CompileHousing());
    static std::atomic<int> steps{0};
    std::thread([async] {
      const Samples samples(9);
      for (;; ++steps) {
        async ? session->StepAsync(samples.feeds()) : static_cast<void>(session->Step(samples.feeds()));
        if (async) session->Wait();
      }
    }).detach();
    while (steps < 100) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::exit(0);
  };
  EXPECT_EXIT(end(false), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(end(true), testing::ExitedWithCode(0), "");
}

// An update of several batches is two runs, between which nobody may save.
TEST(ProgramEndDeathTest, MaySaveInItsLastHandlersWhatAnotherThreadTrains) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  static const std::string path = TemporaryFile("at_exit.safetensors");
  static const gradloom::CompileOptions options{.optimizer = gradloom::Adam{.lr = 0.01}, .settings = {{"train.accumulate", "2"}}};
  const auto end = [] {
    static gradloom::Session* session = nullptr;  // never deleted: the thread uses it until the process has ended
    static std::atomic<int> steps{0};
    std::atexit([] {
      alarm(60);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // a step may end, and another one begin
      session->SaveCheckpoint(path);
    });
    session = new gradloom::Session(CompileHousing(options));
    std::thread([] {
      const Samples samples(9);
      for (;; ++steps) session->Step(samples.feeds());
    }).detach();
    while (steps < 101) std::this_thread::yield();
    std::exit(0);
  };
  const gradloom::Plan plan = CompileHousing(options);
  const Samples samples(9);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EXIT(end(), testing::ExitedWithCode(0), "");
    gradloom::Session saved(plan, gradloom::Checkpoint::Load(path)), whole(plan);
    while (whole.batch() < saved.batch()) whole.Step(samples.feeds());
    for (gradloom::Session* session : {&saved, &whole}) {
      for (int more = 0; more < 4; ++more) session->Step(samples.feeds());
    }
    EXPECT_EQ(saved.FlatParameters(), whole.FlatParameters()) << saved.batch();
  }
}

// As the destructor of a global object that has a thread.
TEST(ProgramEndDeathTest, MayJoinAThreadThatTrains) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto end = [] {
    static std::atomic<int> steps{0};
    static std::thread trains;
    std::atexit([] {
      alarm(60);
      trains.join();
    });
    trains = std::thread([] {
      gradloom::Session session(CompileHousing());
      const Samples samples(9);
      try {
        for (;; ++steps) session.Step(samples.feeds());
      } catch (const gradloom::Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
    });
    while (steps < 100) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::exit(0);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(0), "E-CONFIG: the program has called exit, after which no step can begin");
}

}  // namespace
#endif
