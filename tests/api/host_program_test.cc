// What a program may do to its own process without changing what the library computes, and what it finds as it was after each call: its
// floating-point state, OpenMP, signals, locale, small stacks, exceptions in callbacks, threads that share handles.
#include <fenv.h>
#include <gradloom/gradloom.h>
#include <gtest/gtest.h>
#include <locale.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <locale>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include "tests/api/housing.h"

namespace {

// Small inputs, and an optimizer that looks at the squares of their gradients, which are subnormal numbers.
struct SmallSamples : Samples {
  SmallSamples() : Samples(3) {
    for (float& value : features) value *= 1e-18F;
  }
};

gradloom::Plan CompileForThreads(const char* threads) {
  return CompileHousing({.optimizer = gradloom::Adam{.lr = 0.01, .eps = 1e-30}, .settings = {{"devices.threads", threads}}});
}

std::vector<float> Trained(const gradloom::Plan& plan, const Samples& samples) {
  gradloom::Session session(plan);
  for (int step = 0; step < 5; ++step) session.Step(samples.feeds());
  return session.FlatParameters();
}

// ThreadSanitizer does not know the barriers of the test's own teams.
#if !defined(__SANITIZE_THREAD__)
int ThreadsOfTeam(int wanted) {
  int found = 0;
#pragma omp parallel num_threads(wanted)
  {
#pragma omp single
    found = omp_get_num_threads();
  }
  return found;
}

TEST(HostProgram, MayComputeWithFloatingPointNumbersInItsOwnWay) {
  const SmallSamples samples;
  for (const char* threads : {"1", "2"}) {
    const std::vector<float> expected = Trained(CompileForThreads(threads), samples);
    const std::pair<const char*, std::function<void()>> ways[] = {
        {"rounded up", [] { fesetround(FE_UPWARD); }},
        {"traps", [] { feenableexcept(FE_ALL_EXCEPT); }},
#ifdef __SSE__
        {"without subnormal numbers", [] { _mm_setcsr(_mm_getcsr() | 0x8040); }},
#endif
    };
    for (const auto& [name, set] : ways) {
      std::vector<float> got;
      std::string failed;
      int rounding[2] = {}, traps[2] = {};
      unsigned control[2] = {};
      const auto note = [&](int at) {
        rounding[at] = fegetround();
        traps[at] = fegetexcept();
#ifdef __SSE__
        control[at] = _mm_getcsr() & 0xffc0U;
#endif
      };
      std::thread([&, &set = set] {
        set();
        ThreadsOfTeam(2);  // the threads of the caller's team have the same state
        note(0);
        try {
          got = Trained(CompileForThreads(threads), samples);
        } catch (const std::exception& error) {
          failed = error.what();
        }
        note(1);
      }).join();
      EXPECT_EQ(failed, "") << name;
      EXPECT_EQ(got, expected) << name << ", " << threads << " threads";
      EXPECT_EQ(rounding[0], rounding[1]) << name;
      EXPECT_EQ(traps[0], traps[1]) << name;
      EXPECT_EQ(control[0], control[1]) << name;
    }
  }
}

gradloom::Plan CompileDigits(const std::string& threads) {
  gradloom::CompileOptions options;
  options.loss = gradloom::Loss::CrossEntropy("logits", "label");
  options.optimizer = gradloom::Adam{.lr = 0.01};
  options.batch = 64;
  options.devices = "cpu";
  if (!threads.empty()) options.settings = {{"devices.threads", threads}};
  return gradloom::Compile(gradloom::Model("models/digits_cnn.onnx"), options);
}

std::vector<float> TrainedDigits(const gradloom::Plan& plan) {
  gradloom::Session session(plan);
  std::mt19937 random(5);
  // The second size is compiled when it occurs.
  for (const int64_t size : {int64_t{64}, int64_t{17}, int64_t{64}}) {
    std::vector<float> image(static_cast<size_t>(size) * 64);
    std::vector<int64_t> label(static_cast<size_t>(size));
    for (float& value : image) value = std::normal_distribution<float>()(random);
    for (int64_t& value : label) value = static_cast<int64_t>(random() % 10);
    session.Step({{"image", TensorView(image.data(), {size, 1, 8, 8})}, {"label", TensorView(label.data(), {size})}});
  }
  return session.FlatParameters();
}

// More threads than OpenMP would use. oneDNN's convolutions are made for a number of threads.
TEST(HostProgram, MayLetOpenMPAdjustItsTeams) {
  const gradloom::Plan plan = CompileDigits(std::to_string(2 * std::thread::hardware_concurrency()));
  const std::vector<float> expected = TrainedDigits(plan);
  omp_set_num_threads(7);
  omp_set_dynamic(1);
  EXPECT_EQ(TrainedDigits(plan), expected);
  EXPECT_NE(omp_get_dynamic(), 0);
  omp_set_dynamic(0);
  EXPECT_EQ(omp_get_max_threads(), 7);
}

// What a plan computes in smaller teams than it was made for would be wrong.
TEST(HostProgramDeathTest, MayLimitTheThreadsOfOpenMP) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto train = [] {
    try {
      TrainedDigits(CompileDigits("4"));
    } catch (const gradloom::Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    for (const float value : TrainedDigits(CompileDigits(""))) {
      if (!std::isfinite(value)) std::exit(1);
    }
    std::exit(0);
  };
  setenv("OMP_THREAD_LIMIT", "3", 1);
  EXPECT_EXIT(train(), testing::ExitedWithCode(0), "E-LIMIT: OpenMP allows teams of 3 threads, but the plan computes with 4");
  setenv("OMP_THREAD_LIMIT", "1", 1);
  EXPECT_EXIT(train(), testing::ExitedWithCode(0), "E-LIMIT: OpenMP allows teams of 1 thread, but the plan computes with 4");
  unsetenv("OMP_THREAD_LIMIT");
}

// A child has none of the threads of the team that the parent's thread has had.
TEST(HostProgram, MayTrainInAChildProcess) {
  const gradloom::Plan plan = CompileDigits("2");
  const std::vector<float> expected = TrainedDigits(plan);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    int code = 2;
    try {
      code = TrainedDigits(plan) == expected && TrainedDigits(CompileDigits("2")) == expected ? 0 : 1;
    } catch (const gradloom::Error&) {
      // The code says it.
    }
    _exit(code);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(TrainedDigits(plan), expected);
}

// oneDNN decides layouts and scratch memory at compile time.
TEST(HostProgram, MayCompileInAParallelRegion) {
  // First, since what the library learns about a convolution is kept.
  std::string inside, failed;
  std::vector<float> got;
#pragma omp parallel num_threads(2)
  {
#pragma omp single
    try {
      const gradloom::Plan plan = CompileDigits("2");
      inside = plan.Text();
      got = TrainedDigits(plan);
    } catch (const std::exception& error) {
      failed = error.what();
    }
  }
  EXPECT_EQ(failed, "");
  const gradloom::Plan plan = CompileDigits("2");
  EXPECT_EQ(inside, plan.Text());
  EXPECT_EQ(got, TrainedDigits(plan));
}
#endif

std::atomic<int> signals = 0;

// Signals that the program handles, without SA_RESTART, arrive all the time: system calls end early.
TEST(HostProgram, MayHandleSignals) {
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) { ++signals; };
  sigaction(SIGALRM, &action, &before);
  const itimerval often{{0, 100}, {0, 100}}, never{};
  setitimer(ITIMER_REAL, &often, nullptr);
  const Samples samples(4);
  const std::string name = "host-program-" + std::to_string(getpid()), path = TemporaryFile("signals.ckpt");
  std::string failed;
  try {
    gradloom::Session session(CompileHousing());
    session.ShareParameters(name);
    for (int i = 0; i < 200; ++i) {
      session.StepAsync(samples.feeds());
      session.Wait();
      const gradloom::AttachedParameters attached(name);
      if (attached.views().empty()) failed = "nothing is attached";
    }
    session.SaveCheckpoint(path);
    gradloom::Session resumed(session.plan(), gradloom::Checkpoint::Load(path));
    if (resumed.FlatParameters() != session.FlatParameters()) failed = "the checkpoint has other parameters";
  } catch (const gradloom::Error& error) {
    failed = error.what();
  }
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  EXPECT_EQ(failed, "");
  EXPECT_GT(signals, 0);
}

// The child has the socket as well, and nobody listens to it there.
TEST(HostProgram, MayForkWhileItSharesParameters) {
  const std::string name = "forked-program-" + std::to_string(getpid());
  gradloom::Session session(CompileHousing());
  session.ShareParameters(name);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    pause();
    _exit(0);
  }
  EXPECT_FALSE(gradloom::AttachedParameters(name).views().empty());
  session.StopSharing();
  std::string said;
  try {
    const gradloom::AttachedParameters attached(name);
  } catch (const gradloom::Error& error) {
    said = error.message();
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(said, "no parameters are shared under the name '" + name + "'");
}

// 1.234,5
class GroupedDigits : public std::numpunct<char> {
 protected:
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(HostProgram, MayHaveItsOwnLocale) {
  const Samples samples(5);
  const std::vector<float> expected = Trained(CompileHousing(), samples);
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new GroupedDigits));
  std::vector<float> got;
  std::string failed, table = TemporaryFile("locale.csv");
  try {
    const gradloom::Plan plan = CompileHousing({.config_text = "version = 1\n[optimizer]\nlr = 0.01\n"});
    got = Trained(plan, samples);
    const gradloom::Dataset data("models/data/boston.csv", plan,
                                 {.columns = {{"features", "CRIM..LSTAT"}, {"target", "MEDV"}}, .eval_split = "12.5%"});
    gradloom::Trainer(plan, {.train = data, .eval = data.Eval(), .metrics = {"rmse(value, target)"}}).Fit();
  } catch (const gradloom::Error& error) {
    failed = error.what();
  }
  std::locale::global(before);
  EXPECT_EQ(failed, "");
  EXPECT_EQ(got, expected);
}

// The C library's own, which it reads from a file: as the test before, but printf writes 1,5, and strtod reads no 1.5.
TEST(HostProgram, MayHaveItsOwnDecimalPoint) {
  // A locale of one category. After the magic number: the offsets of six fields, and these, of which the wide characters are aligned.
  constexpr uint32_t kHead[] = {0x20031115 ^ LC_NUMERIC, 6, 32, 34, 36, 40, 44, 48};
  constexpr char kFields[] = ",\0.\0\3\3\0\0,\0\0\0.\0\0\0UTF-8";
  const std::string folder = TemporaryFile("locales");
  std::filesystem::create_directories(folder + "/comma");
  std::ofstream(folder + "/comma/LC_NUMERIC", std::ios::binary)
      .write(reinterpret_cast<const char*>(kHead), sizeof kHead)
      .write(kFields, sizeof kFields);
  const Samples samples(5);
  const std::vector<float> expected = Trained(CompileHousing(), samples);
  setenv("LOCPATH", folder.c_str(), 1);
  const bool there = setlocale(LC_NUMERIC, "comma") != nullptr;
  char printed[8] = "";
  std::snprintf(printed, sizeof printed, "%.1f", 1.5);
  std::vector<float> got;
  std::string failed;
  try {
    const gradloom::Plan plan = CompileHousing({.config_text = "version = 1\n[optimizer]\nlr = 0.01\n"});
    got = Trained(plan, samples);
    const auto model = ModelOfText("comma", "g (float[N, 1] x) => (float[N, 1] p) <float[1, 1] w = {0.5}> { p = MatMul (x, w) }");
    const gradloom::Session session(gradloom::Compile(model, {.loss = gradloom::Loss::Mse("p", "y"), .batch = 1}));
    if (session.FlatParameters() != std::vector<float>{0.5F}) failed = "0.5 is read as another number";
    const gradloom::Dataset data("models/data/boston.csv", plan,
                                 {.columns = {{"features", "CRIM..LSTAT"}, {"target", "MEDV"}}, .eval_split = "12.5%"});
    gradloom::Trainer(plan, {.train = data, .eval = data.Eval(), .metrics = {"rmse(value, target)"}}).Fit();
  } catch (const gradloom::Error& error) {
    failed = error.what();
  }
  setlocale(LC_NUMERIC, "C");
  unsetenv("LOCPATH");
  if (!there) GTEST_SKIP() << "the C library reads locales from other files";
  EXPECT_STREQ(printed, "1,5");
  EXPECT_EQ(failed, "");
  EXPECT_EQ(got, expected);
}

// Instrumented code has larger frames.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kSmallStackBytes = size_t{8} << 20;
#else
constexpr size_t kSmallStackBytes = size_t{256} << 10;
#endif

// Calls of a thread with little room for its stack, as servers make thousands of.
TEST(HostProgram, MayCallWithASmallStack) {
  struct Result {
    std::vector<float> parameters;
    std::string failed;
  } result;
  const Samples samples(6);
  const auto everything = [&] {
    gradloom::Session session(CompileHousing());
    session.Step(samples.feeds());
    session.Evaluate(samples.feeds());
    const std::string checkpoint = session.CheckpointBytes();
    gradloom::Session resumed(session.plan(), gradloom::Checkpoint::FromBytes(std::as_bytes(std::span(checkpoint))));
    resumed.ExportOnnx(TemporaryFile("small_stack.onnx"));
    return resumed.FlatParameters();
  };
  struct Work {
    std::function<std::vector<float>()> run;
    Result* result;
  } work{everything, &result};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kSmallStackBytes), 0);
  pthread_t thread;
  const auto body = [](void* given) -> void* {
    auto& work = *static_cast<Work*>(given);
    try {
      work.result->parameters = work.run();
    } catch (const std::exception& error) {
      work.result->failed = error.what();
    }
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, body, &work), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(result.failed, "");
  EXPECT_EQ(result.parameters, everything());
}

// Fit of the C table with a callback after each step.
std::string FitWith(GradloomSession* session, int32_t (*on_step)(void*, const GradloomStepResult*), void* user = nullptr) {
  const Samples samples(7);
  const gradloom::Dataset data(samples.feeds());
  const GradloomApi& api = *GradloomGetApi(GRADLOOM_API_VERSION);
  GradloomCallbacks callbacks{};
  callbacks.size = sizeof callbacks;
  callbacks.user = user;
  callbacks.on_step = on_step;
  GradloomFitOptions options{};
  options.size = sizeof options;
  options.epochs = 3;
  GradloomStatus* const status = api.Fit(session, data.c(), nullptr, &options, &callbacks, nullptr);
  const std::string said = status == nullptr ? "" : std::string(api.GetErrorName(status)) + " " + api.GetErrorMessage(status);
  api.ReleaseStatus(status);
  return said;
}

TEST(HostProgram, MayThrowInACallbackOfTheCTable) {
  gradloom::Session session(Plain());
  EXPECT_EQ(FitWith(session.c(), [](void*, const GradloomStepResult*) -> int32_t { throw std::runtime_error("a bad day"); }),
            "E-CONFIG the callback on_step of Fit has thrown: a bad day");
  EXPECT_EQ(FitWith(session.c(), [](void*, const GradloomStepResult*) -> int32_t { throw 7; }),
            "E-CONFIG the callback on_step of Fit has thrown: an exception that is not a std::exception");
  EXPECT_EQ(session.step(), 2);
  EXPECT_EQ(FitWith(session.c(), nullptr), "");
  EXPECT_EQ(session.step(), 3);
}

TEST(HostProgram, MayReleaseASessionWhileAnotherThreadsCallEnds) {
  const GradloomApi& api = *GradloomGetApi(GRADLOOM_API_VERSION);
  GradloomSession* session = nullptr;
  gradloom::internal::Check(api.CreateTrainingSession(Plain().c(), nullptr, nullptr, &session));
  struct Progress {
    std::atomic<bool> begun{false}, ended{false};
  } progress;
  std::thread fits([&] {
    FitWith(
        session,
        [](void* user, const GradloomStepResult*) -> int32_t {
          auto& told = *static_cast<Progress*>(user);
          told.begun = true;
          std::this_thread::sleep_for(std::chrono::milliseconds(200));
          told.ended = true;
          return 1;
        },
        &progress);
  });
  while (!progress.begun) std::this_thread::yield();
  api.ReleaseTrainingSession(session);
  EXPECT_TRUE(progress.ended);
  fits.join();
}

TEST(HostProgram, CannotReleaseASessionInItsOwnCallback) {
  gradloom::Session session(Plain());
  const auto release = [](void* user, const GradloomStepResult*) -> int32_t {
    GradloomGetApi(GRADLOOM_API_VERSION)->ReleaseTrainingSession(static_cast<GradloomSession*>(user));
    return 0;
  };
  EXPECT_EQ(FitWith(session.c(), release, session.c()), "");
  EXPECT_EQ(session.step(), 3);
}

TEST(HostProgram, MayReleaseTheDataInACallback) {
  const GradloomApi& api = *GradloomGetApi(GRADLOOM_API_VERSION);
  const Samples samples(4);
  std::vector<std::vector<float>> trained;
  for (const bool releases : {false, true}) {
    gradloom::Session session(Plain());
    const TensorView features(samples.features.data(), {kBatch, 13}), target(samples.target.data(), {kBatch, 1});
    const char* const names[] = {"features", "target"};
    const GradloomTensor tensors[] = {features.c(), target.c()};
    GradloomDataset* data = nullptr;
    ASSERT_EQ(api.CreateDataset(names, tensors, 2, &data), nullptr);
    struct User {
      const GradloomApi& api;
      GradloomDataset*& data;
      bool releases;
    } user{api, data, releases};
    GradloomCallbacks callbacks{};
    callbacks.size = sizeof callbacks;
    callbacks.user = &user;
    callbacks.on_step = [](void* given, const GradloomStepResult*) -> int32_t {
      auto& of = *static_cast<User*>(given);
      if (!of.releases || of.data == nullptr) return 0;
      of.api.ReleaseDataset(of.data);
      of.data = nullptr;
      std::vector<std::vector<char>> others(100, std::vector<char>(64, 'x'));  // takes memory that was just freed
      return others.size() == 100 ? 0 : 1;
    };
    GradloomFitOptions options{};
    options.size = sizeof options;
    options.epochs = 4;
    options.batch = 8;
    GradloomFitResult result{};
    result.size = sizeof result;
    GradloomStatus* const status = api.Fit(session.c(), data, nullptr, &options, &callbacks, &result);
    EXPECT_EQ(status, nullptr);
    api.ReleaseStatus(status);
    if (data != nullptr) api.ReleaseDataset(data);
    EXPECT_EQ(result.step, 16);
    trained.push_back(session.FlatParameters());
  }
  EXPECT_EQ(trained[0], trained[1]);
}

// A run ends within a batch of an evaluation, which takes longer than all of the training.
TEST(HostProgram, MayStopAFitFromAnotherThread) {
  std::vector<float> x(200000), y(200000);
  const auto model = ModelOfText("stopped", "g (float[N, 1] x) => (float[N, 1] p) <float[1, 1] w = {1}> { p = MatMul (x, w) }");
  const gradloom::Plan plan = gradloom::Compile(model, {.loss = gradloom::Loss::Mse("p", "y"), .batch = 1});
  const gradloom::Dataset all(gradloom::Feeds{{"x", TensorView(x.data(), {200000, 1})}, {"y", TensorView(y.data(), {200000, 1})}});
  const gradloom::Dataset few(gradloom::Feeds{{"x", TensorView(x.data(), {4, 1})}, {"y", TensorView(y.data(), {4, 1})}});
  gradloom::Trainer trainer(plan, {.train = few, .eval = all, .epochs = 1000000, .batch = 1});
  trainer.session().StopFit();  // does nothing: no run is under way
  std::atomic<int> steps = 0, evaluations = 0;
  std::vector<int64_t> epochs;
  std::thread stops([&] {
    while (steps < 4) std::this_thread::yield();
    trainer.session().StopFit();
  });
  const auto result = trainer.Fit({.on_step = [&](const gradloom::StepResult&) { return ++steps, true; },
                                   .on_evaluation = [&](const gradloom::Evaluation&) { return ++evaluations, true; },
                                   .on_epoch = [&](const gradloom::Epoch& epoch) { return epochs.push_back(epoch.epoch), true; }});
  stops.join();
  EXPECT_TRUE(result.stopped_by_callback);
  EXPECT_EQ(steps, 4);
  EXPECT_EQ(evaluations, 0);
  EXPECT_EQ(trainer.session().step(), 4);
  // Its steps are done, and the next Fit begins with the next epoch.
  EXPECT_EQ(epochs, std::vector<int64_t>{1});
  EXPECT_TRUE(std::isfinite(result.train_loss));
  // A callback's stop waits for an evaluation that is due, whose result it may want.
  gradloom::Trainer judged(plan, {.train = few, .eval = few, .batch = 1, .evaluate_every = "1"});
  judged.Fit({.on_step = [](const gradloom::StepResult&) { return false; },
              .on_evaluation = [&](const gradloom::Evaluation&) { return ++evaluations, true; }});
  EXPECT_EQ(evaluations, 1);
}

// The first of them reads the file.
TEST(HostProgram, SharesADataSetAmongThreads) {
  const gradloom::Plan plan = CompileHousing();
  const gradloom::Dataset data("models/data/boston.csv", {.columns = {{"features", "CRIM..LSTAT"}, {"target", "MEDV"}}});
  std::vector<std::vector<float>> trained(4);
  std::vector<std::thread> threads;
  for (std::vector<float>& parameters : trained) {
    threads.emplace_back([&] {
      gradloom::Session session(plan);
      for (const gradloom::Batch& batch : data.Batches({.size = kBatch})) session.Step(batch);
      parameters = session.FlatParameters();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& parameters : trained) EXPECT_EQ(parameters, trained[0]);
}

}  // namespace
