// Tests of the C++ interface as programs use it: the caller's buffers, names, asynchronous steps, several sessions and threads,
// checkpoints.
#include <gradloom/gradloom.h>
#include <gtest/gtest.h>
#include <omp.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <exception>
#include <fstream>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/api/housing.h"

namespace {

TEST(Session, RejectsUnknownFeedsByName) {
  gradloom::Session session(Plain());
  const std::vector<float> features(kBatch * 13), target(kBatch);
  try {
    session.Step({{"featurez", TensorView(features.data(), {kBatch, 13})}, {"target", TensorView(target.data(), {kBatch, 1})}});
    FAIL();
  } catch (const gradloom::Error& error) {
    EXPECT_NE(error.message().find("'features' is missing; the plan has no input 'featurez'"), std::string::npos) << error.message();
  }
}

// The target is fed and the output is read, under one name.
TEST(Session, TargetNamedLikeItsOutput) {
  gradloom::CompileOptions options;
  options.loss = gradloom::Loss::Mse("value", "value");
  options.optimizer = gradloom::Sgd{.lr = 0};
  options.batch = kBatch;
  options.outputs = true;
  const gradloom::Model model("models/housing_mlp.onnx");
  gradloom::Session same(gradloom::Compile(model, options), {.seed = 1});
  options.loss = gradloom::Loss::Mse("value", "target");
  gradloom::Session other(gradloom::Compile(model, options), {.seed = 1});
  const Samples samples(3);
  gradloom::Feeds feeds = samples.feeds();
  const auto values = [](const gradloom::Session& session) {
    const std::span<const float> value = session.Output("value").as<float>();
    return std::vector<float>(value.begin(), value.end());
  };
  const double loss = other.Step(feeds).loss;
  const std::vector<float> trained = values(other);
  feeds[1].first = "value";
  EXPECT_EQ(same.Step(feeds).loss, loss);
  EXPECT_EQ(values(same), trained);
  EXPECT_EQ(same.Evaluate(feeds).loss, loss);
  EXPECT_EQ(values(same), trained);
  same.Predict(gradloom::Feeds{feeds[0]});
  EXPECT_EQ(values(same), trained);
  const gradloom::Dataset data(feeds);
  for (const gradloom::Batch& batch : data.Batches({.size = kBatch, .in_order = true})) EXPECT_EQ(same.Step(batch).loss, loss);
}

// The child has neither the threads of the session nor, perhaps, its locks, and must not wait for them.
TEST(Session, IsRefusedInAChildProcess) {
  gradloom::Session session(CompileHousing({.settings = {{"devices.threads", "2"}}}));
  const Samples samples(3);
  session.Step(samples.feeds());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    int code = 1;
    try {
      session.Step(samples.feeds());
    } catch (const gradloom::Error& error) {
      code = error.name() == "E-CONFIG" && error.message().find("before a fork") != std::string::npos ? 0 : 2;
    }
    { const gradloom::Session released = std::move(session); }
    _exit(code);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(session.Step(samples.feeds()).step, 2);
}

// The message compares with the closest compiled batch size, however many there are. An empty batch is reported as such.
TEST(Session, ExplainsFeedsThatFitNoCompiledSize) {
  gradloom::Session session(Plain());
  const std::vector<float> features(kBatch * 13), target(kBatch);
  const auto feeds = [&](int64_t rows, int64_t targets) {
    return gradloom::Feeds{{"features", TensorView(features.data(), {rows, 13})}, {"target", TensorView(target.data(), {targets, 1})}};
  };
  for (int64_t rows = 1; rows <= 6; ++rows) session.Step(feeds(rows, rows));
  const auto expect = [&](const gradloom::Feeds& given, const std::string& why) {
    try {
      session.Step(given);
      FAIL() << why;
    } catch (const gradloom::Error& error) {
      EXPECT_EQ(error.name(), "E-DATA");
      EXPECT_EQ(error.message(), "the feeds do not match any training step of the plan: " + why);
      EXPECT_TRUE(error.help().ends_with("target float32[3,1], and 3 more")) << error.help();
    }
  };
  expect({feeds(3, 3)[0]}, "'target' is missing");
  expect(feeds(3, 5), "'features' has 3 samples, but 'target' has 5");
  expect(feeds(0, 0), "'features' is [0,13], but the plan expects [32,13]");
  EXPECT_EQ(session.step(), 6);
}

// A size that is not compiled yet is not the mistake, so the message is not about it.
TEST(Session, ExplainsFeedsOfASizeThatIsNotCompiled) {
  gradloom::Session session(Plain());
  const std::vector<float> values(kBatch * 13);
  const std::vector<int32_t> integers(kBatch);
  const TensorView features(values.data(), {2, 13}), target(values.data(), {2, 1});
  const auto expect = [&](const gradloom::Feeds& given, const std::string& why) {
    try {
      session.Step(given);
      FAIL() << why;
    } catch (const gradloom::Error& error) {
      EXPECT_EQ(error.message(), "the feeds do not match any training step of the plan: " + why);
    }
  };
  expect({{"features", features}}, "'target' is missing");
  expect({{"features", features}, {"target", TensorView(integers.data(), {2, 1})}}, "'target' is int32, but the model expects float32");
  expect({{"features", features}, {"target", TensorView(values.data(), {2})}}, "'target' is [2], but the plan expects [32,1]");
  expect({{"features", features}, {"target", TensorView(values.data(), {2, 3})}}, "'target' is [2,3], but the plan expects [32,1]");
  expect({{"features", TensorView(values.data(), {1, 13})}, {"target", target}}, "'features' has 1 sample, but 'target' has 2");
  EXPECT_EQ(session.Step({{"features", features}, {"target", target}}).step, 1);
}

TEST(Session, RejectsMoreDevicesThanTheMachineSupports) {
  const gradloom::Plan plan = CompileHousing({.devices = "cpu:600"});
  EXPECT_EQ(plan.device_count(), 600u);
  try {
    const gradloom::Session session(plan);
    FAIL() << "600 devices of one process were taken";
  } catch (const gradloom::Error& error) {
    EXPECT_EQ(error.code(), GRADLOOM_E_LIMIT) << error.what();
    EXPECT_NE(error.message().find("600 CPU devices need "), std::string::npos) << error.what();
  }
}

TEST(Session, DoesNotModifyItsFeeds) {
  const Samples samples(2), copy = samples;
  gradloom::Session session(WithGradients());
  session.Step(samples.feeds());
  session.Backward(samples.feeds());
  session.Update();
  session.Evaluate(samples.feeds());
  session.StepAsync(samples.feeds());
  session.Wait();
  EXPECT_EQ(samples.features, copy.features);
  EXPECT_EQ(samples.target, copy.target);
}

TEST(Session, StepsOnNamedFeeds) {
  const Samples samples(3);
  gradloom::Session by_call(Plain()), by_name(Plain());
  by_name.Feed("target", TensorView(samples.target.data(), {kBatch, 1}, gradloom::kFloat32));
  by_name.Feed("features", TensorView(samples.features.data(), {kBatch, 13}, gradloom::kFloat32));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(by_call.Step(samples.feeds()).loss, by_name.Step().loss);
  EXPECT_EQ(by_call.FlatParameters(), by_name.FlatParameters());
  // This replaces the buffer that was fed before.
  by_name.Feed("features", TensorView(samples.features.data(), {kBatch, 12}));
  EXPECT_THROW(by_name.Step(), gradloom::Error);
}

TEST(Session, SaysWhatIsWrongWithNamedFeeds) {
  const auto said = [](const auto& call) {
    try {
      call();
    } catch (const gradloom::Error& error) {
      return error.message();
    }
    return std::string("no error");
  };
  const Samples samples(3);
  gradloom::Session session(Plain()), separate(WithGradients());
  EXPECT_EQ(said([&] { session.Feed("nope", TensorView(samples.target.data(), {kBatch, 1})); }), "the plan has no input 'nope'");
  // Nothing is fed, but that is not what is wrong.
  EXPECT_EQ(said([&] { session.Backward(); }), "the plan computes gradients and update only as one step");
  EXPECT_EQ(said([&] { separate.Backward(); }), "the feeds do not match any accumulation step of the plan: 'features' is missing");
  EXPECT_EQ(said([&] { session.Step(); }), "the feeds do not match any training step of the plan: 'features' is missing");
}

TEST(Session, OutputsAndGradientsByName) {
  const Samples samples(4);
  gradloom::Session session(WithGradients());
  const auto result = session.Backward(samples.feeds());
  const auto value = session.Output("value").as<float>();
  double loss = 0;
  for (size_t i = 0; i < value.size(); ++i) loss += std::pow(value[i] - samples.target[i], 2) / kBatch;
  EXPECT_NEAR(result.loss, loss, 1e-5 * loss);
  EXPECT_EQ(session.Output("loss").as<float>()[0], static_cast<float>(result.loss));
  EXPECT_THROW(session.Output("value").as<int64_t>(), gradloom::Error);
  EXPECT_THROW(session.Output("no such thing"), gradloom::Error);
  // The last bias is added to every value alike, so its gradient is twice the mean error.
  double error = 0;
  for (size_t i = 0; i < value.size(); ++i) error += 2.0 * (value[i] - samples.target[i]) / kBatch;
  const gradloom::Tensor gradient = session.Gradient("layer3.bias");
  EXPECT_EQ(gradient.shape(), session.Parameter("layer3.bias").shape());
  EXPECT_NEAR(gradient.as<float>()[0], error, 1e-5 * kBatch);
  // A second batch is added to the sum, and the update applies all of it.
  session.Backward(samples.feeds());
  EXPECT_NEAR(session.Gradient("layer3.bias").as<float>()[0], 2 * error, 2e-5 * kBatch);
  session.Update();
  EXPECT_EQ(session.Gradient("layer3.bias").as<float>()[0], 0);
}

// Steps with and without the search have the same bits, and each NaN or infinity is named where it began: in the data or in the update.
TEST(Session, NamesWhereANaNBegan) {
  for (const char* devices : {"cpu", "cpu:2"}) {
    const gradloom::Plan plan = CompileHousing({.optimizer = gradloom::Sgd{.lr = 0.01}, .devices = devices});
    gradloom::Session quick(plan), session(plan, {.check_numerics = true});
    Samples samples(5);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(session.Step(samples.feeds()).loss, quick.Step(samples.feeds()).loss);
    EXPECT_EQ(session.FlatParameters(), quick.FlatParameters());
    EXPECT_EQ(session.NonFiniteOrigin(), "");
    const auto expect = [&](std::initializer_list<const char*> parts) {
      const std::string origin = session.NonFiniteOrigin();
      for (const char* part : parts) EXPECT_NE(origin.find(part), std::string::npos) << part << " in: " << origin;
    };
    session.set_learning_rate(1e38);
    session.Step(samples.feeds());
    EXPECT_TRUE(std::isfinite(quick.Step(samples.feeds()).loss));
    while (session.NonFiniteOrigin().empty()) session.Step(samples.feeds());
    expect({" of step ", "; of its inputs, "});

    gradloom::Session fresh(plan, {.check_numerics = true});
    std::swap(session, fresh);
    samples.features[4 * 13 + 3] = std::nanf("");
    EXPECT_TRUE(std::isnan(session.Step(samples.feeds()).loss));
    expect({"input 'features' of step 1 has 1 NaN of ", "in sample 4 of the batch"});
    try {
      static_cast<void>(quick.NonFiniteOrigin());
      FAIL();
    } catch (const gradloom::Error& error) {
      EXPECT_EQ(error.name(), "E-CONFIG");
      EXPECT_NE(error.help().find("check_numerics"), std::string::npos) << error.help();
    }
  }
}

// Separate backward and update calls on four devices, each of which keeps its own partial sums, match one device.
TEST(Session, AccumulatesOnSeveralDevices) {
  gradloom::Session one(WithGradients()), four(CompileHousing({.devices = "cpu:4", .gradients = true}));
  for (unsigned i = 0; i < 4; ++i) {
    const Samples a(10 + i), b(20 + i);
    for (gradloom::Session* session : {&one, &four}) {
      session->Backward(a.feeds());
      session->Backward(b.feeds());
    }
    const auto expected = one.Gradient("layer1.weight"), got = four.Gradient("layer1.weight");
    double largest = 0;
    for (const float g : expected.as<float>()) largest = std::max<double>(largest, std::abs(g));
    for (int64_t k = 0; k < expected.elements(); ++k)
      ASSERT_NEAR(got.as<float>()[static_cast<size_t>(k)], expected.as<float>()[static_cast<size_t>(k)], 1e-4 * largest);
    EXPECT_EQ(four.GradientLocation("layer1.weight").num_devices, 4);
    one.Update();
    four.Update();
  }
  const auto expected = one.FlatParameters(), got = four.FlatParameters();
  for (size_t k = 0; k < expected.size(); ++k) ASSERT_NEAR(got[k], expected[k], 1e-3);
}

// Loss scaling is invisible to the caller. float16 has an 11-bit significand, and a gradient here is a sum of 32 rounded terms.
TEST(Session, GradientsAreUnscaled) {
  const auto plan = CompileHousing({.gradients = true, .settings = {{"train.precision", "fp16"}, {"train.loss_scale", "1024"}}});
  gradloom::Session whole(WithGradients()), half(plan);
  const Samples samples(9);
  whole.Backward(samples.feeds());
  half.Backward(samples.feeds());
  const auto expected = whole.Gradient("layer3.bias"), got = half.Gradient("layer3.bias");
  EXPECT_NEAR(got.as<float>()[0], expected.as<float>()[0], 0.02);
  const auto before = half.FlatParameters();
  EXPECT_TRUE(half.Update().updated);
  EXPECT_NE(before, half.FlatParameters());
}

TEST(Session, SetsParametersByNameAndAsOneVector) {
  gradloom::Session session(Plain()), other(Plain());
  std::vector<std::string> names;
  for (const auto& info : session.Parameters()) names.push_back(info.name);
  EXPECT_EQ(names.size(), 6u);
  std::vector<float> bias(16);
  std::iota(bias.begin(), bias.end(), 1.0f);
  session.SetParameter("layer1.bias", TensorView(bias.data(), {16}));
  const gradloom::Tensor read = session.Parameter("layer1.bias");
  EXPECT_TRUE(std::equal(bias.begin(), bias.end(), read.as<float>().begin()));
  EXPECT_THROW(session.SetParameter("layer1.bias", TensorView(bias.data(), {4, 4})), gradloom::Error);
  EXPECT_THROW(session.SetParameter("no such thing", TensorView(bias.data(), {16})), gradloom::Error);
  EXPECT_NE(session.FlatParameters(), other.FlatParameters());
  other.SetFlatParameters(session.FlatParameters());
  EXPECT_EQ(session.FlatParameters(), other.FlatParameters());
  EXPECT_THROW(other.SetFlatParameters(std::vector<float>(3)), gradloom::Error);
}

// A temporary tensor lives as long as the elements that were asked of it.
TEST(Session, ElementsOfTemporariesStay) {
  const gradloom::Session session(Plain());
  const gradloom::Tensor kept = session.Parameter("layer1.bias");
  const auto elements = session.Parameter("layer1.bias").as<float>();
  size_t i = 0;
  for (const float value : session.Parameter("layer1.bias").as<float>()) {
    const std::vector<float> other(16, 7.0f);  // takes memory that was just freed
    EXPECT_EQ(value, kept.as<float>()[i]);
    EXPECT_EQ(elements[i++], value);
  }
  EXPECT_EQ(i, 16u);
  EXPECT_THROW(session.Parameter("layer1.bias").as<double>(), gradloom::Error);
}

// Other layers are trained from now on. A checkpoint has no values of frozen weights, and a plan takes none.
TEST(Session, UnfreezesAndFreezesLayers) {
  const gradloom::Plan head = CompileHousing({.settings = {{"model.freeze", "layer1.*"}}});
  const Samples samples(3);
  gradloom::Session first(head);
  EXPECT_EQ(first.Parameters().size(), 4u);
  first.Step(samples.feeds());
  const auto weights_of = [](const gradloom::Session& session) {
    const std::string bytes = session.CheckpointBytes(/*with_optimizer=*/false);
    return gradloom::Checkpoint::FromBytes(std::as_bytes(std::span(bytes)));
  };
  gradloom::Session all(Plain(), weights_of(first));
  EXPECT_EQ(all.Evaluate(samples.feeds()).loss, first.Evaluate(samples.feeds()).loss);
  EXPECT_NO_THROW(gradloom::Session(head, weights_of(all)));  // layer 1 is as it was
  all.Step(samples.feeds());
  try {
    gradloom::Session(head, weights_of(all));
    FAIL() << "a model with the weights of two was made";
  } catch (const gradloom::Error& error) {
    EXPECT_EQ(error.name(), "E-CHECKPOINT");
    EXPECT_EQ(error.message(), "the plan has other values of weights that it does not train: 'layer1.weight'; 'layer1.bias'");
  }
  const std::string path = TemporaryFile("unfrozen.onnx");
  all.ExportOnnx(path);
  gradloom::Session again(gradloom::Compile(gradloom::Model(path), {.loss = gradloom::Loss::Mse("value", "target"),
                                                                    .optimizer = gradloom::Adam{.lr = 0.01},
                                                                    .batch = kBatch,
                                                                    .devices = "cpu",
                                                                    .settings = {{"model.freeze", "layer1.*"}}}));
  EXPECT_EQ(again.Parameters().size(), 4u);
  EXPECT_EQ(again.Evaluate(samples.feeds()).loss, all.Evaluate(samples.feeds()).loss);
}

TEST(Session, ResetsGradients) {
  const Samples samples(11), dropped(12);
  gradloom::Session session(WithGradients()), plain(WithGradients());
  session.Backward(dropped.feeds());
  session.ResetGradients();
  EXPECT_THROW(session.Update(), gradloom::Error);
  for (gradloom::Session* each : {&session, &plain}) {
    each->Backward(samples.feeds());
    EXPECT_TRUE(each->Update().updated);
  }
  EXPECT_EQ(session.FlatParameters(), plain.FlatParameters());
}

TEST(Session, StopsSharing) {
  const std::string name = "gradloom-session-test-" + std::to_string(getpid());
  gradloom::Session session(Plain());
  session.ShareParameters(name);
  const gradloom::AttachedParameters attached(name);
  EXPECT_EQ(attached.views().size(), session.Parameters(false).size());
  session.StopSharing();
  EXPECT_THROW(gradloom::AttachedParameters{name}, gradloom::Error);
  // What is attached stays valid, and the session trains on.
  session.Step(Samples(13).feeds());
  EXPECT_EQ(attached.Copy("layer1.bias").shape(), (std::vector<int64_t>{16}));
}

TEST(Session, StepsAsynchronously) {
  const Samples samples(5);
  gradloom::Session plain(Plain()), async(Plain());
  for (int i = 0; i < 20; ++i) {
    const auto expected = plain.Step(samples.feeds());
    async.StepAsync(samples.feeds());
    // A call in the meantime waits for the step.
    if (i % 2 == 0) {
      EXPECT_EQ(async.step(), i + 1);
    }
    if (i == 7) {
      EXPECT_THROW(async.StepAsync(samples.feeds()), gradloom::Error);
    }
    const auto result = async.Wait();
    EXPECT_EQ(result.loss, expected.loss);
    EXPECT_EQ(result.step, i + 1);
  }
  EXPECT_THROW(async.Wait(), gradloom::Error);
  EXPECT_EQ(plain.FlatParameters(), async.FlatParameters());
  // Wait reports an error, and reports it once.
  async.StepAsync({{"features", TensorView(samples.features.data(), {kBatch, 13})}});
  EXPECT_THROW(async.Wait(), gradloom::Error);
  EXPECT_NO_THROW(async.Step(samples.feeds()));
  // The destructor runs while a step is under way.
  gradloom::Session ends(Plain());
  ends.StepAsync(samples.feeds());
}

// Sessions in threads of their own share one plan. Each gives the same results as when it runs alone.
TEST(Session, SessionsRunConcurrently) {
  constexpr int kThreads = 4, kSteps = 10;
  std::vector<std::vector<float>> expected, got(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    gradloom::Session session(Plain(), {.seed = t});
    const Samples samples(static_cast<unsigned>(t));
    for (int i = 0; i < kSteps; ++i) session.Step(samples.feeds());
    expected.push_back(session.FlatParameters());
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&got, t] {
      gradloom::Session session(Plain(), {.seed = t});
      const Samples samples(static_cast<unsigned>(t));
      for (int i = 0; i < kSteps; ++i) session.Step(samples.feeds());
      got[static_cast<size_t>(t)] = session.FlatParameters();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, expected);
}

// ThreadSanitizer would report the caller's own team.
#if !defined(__SANITIZE_THREAD__)
// The parameters of a small image classifier after a few steps. Its kernels have scratch memory for each thread of their team.
std::vector<float> TrainedDigits(const gradloom::Plan& plan, int seed) {
  gradloom::Session session(plan, {.seed = seed});
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<float> image(8 * 64);
  std::vector<int64_t> label(8);
  for (int step = 0; step < 3; ++step) {
    for (float& value : image) value = std::normal_distribution<float>()(random);
    for (int64_t& value : label) value = static_cast<int64_t>(random() % 10);
    session.Step({{"image", TensorView(image.data(), {8, 1, 8, 8})}, {"label", TensorView(label.data(), {8})}});
  }
  return session.FlatParameters();
}

// The caller's teams of OpenMP and the session's own: a session that runs in a team has the same bits, and the size of the caller's teams
// stays what it was.
TEST(Session, RunsInTheCallersParallelRegion) {
  constexpr int kTeam = 4;
  for (const char* threads : {"1", "2"}) {
    gradloom::CompileOptions options;
    options.loss = gradloom::Loss::CrossEntropy("logits", "label");
    options.optimizer = gradloom::Adam{.lr = 0.01};
    options.batch = 8;
    options.devices = "cpu";
    options.settings = {{"devices.threads", threads}};
    const gradloom::Plan plan = gradloom::Compile(gradloom::Model("models/digits_cnn.onnx"), options);
    std::vector<std::vector<float>> expected, got(kTeam);
    omp_set_num_threads(3);
    for (int t = 0; t < kTeam; ++t) expected.push_back(TrainedDigits(plan, t));
    EXPECT_EQ(omp_get_max_threads(), 3);
    std::vector<std::string> failed(kTeam);
#pragma omp parallel num_threads(kTeam)
    {
      const auto t = static_cast<size_t>(omp_get_thread_num());
      try {
        got[t] = TrainedDigits(plan, static_cast<int>(t));
      } catch (const std::exception& error) {
        failed[t] = error.what();
      }
    }
    EXPECT_EQ(failed, std::vector<std::string>(kTeam));
    EXPECT_EQ(got, expected) << threads;
  }
}
#endif

// Calls to one session from several threads are serialized.
TEST(Session, SerializesCallsFromSeveralThreads) {
  constexpr int kThreads = 4, kSteps = 8;
  gradloom::Session session(WithGradients());
  std::atomic<int> updated{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&session, &updated, t] {
      const Samples samples(static_cast<unsigned>(t));
      for (int i = 0; i < kSteps; ++i) {
        if (t == 0) {
          session.FlatParameters();
          session.CheckpointBytes();
          session.learning_rate();
        } else if (t == 1) {
          session.Evaluate(samples.feeds());
          session.ParameterLocation("layer1.bias");
        } else {
          updated += session.Step(samples.feeds()).updated ? 1 : 0;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(updated, 2 * kSteps);
  EXPECT_EQ(session.step(), 2 * kSteps);
  for (const float value : session.FlatParameters()) ASSERT_TRUE(std::isfinite(value));
}

TEST(Checkpoint, ResumesToTheSameBits) {
  const Samples samples(6);
  gradloom::Session session(Plain(), {.seed = 7});
  for (int i = 0; i < 5; ++i) session.Step(samples.feeds());
  session.AddProperty("data", "samples 6");
  session.set_learning_rate(0.125);
  session.SaveCheckpoint(TemporaryFile("checkpoint"));
  gradloom::Session resumed(Plain(), gradloom::Checkpoint::Load(TemporaryFile("checkpoint")));
  EXPECT_EQ(resumed.step(), 5);
  EXPECT_EQ(resumed.learning_rate(), 0.125);
  EXPECT_EQ(resumed.Property("data"), "samples 6");
  EXPECT_EQ(resumed.Property("no such thing"), std::nullopt);
  EXPECT_EQ(gradloom::Checkpoint::Load(TemporaryFile("checkpoint")).Skipped(), "");
  session.Step(samples.feeds());
  resumed.Step(samples.feeds());
  EXPECT_EQ(session.FlatParameters(), resumed.FlatParameters());
  // The state of another optimizer does not fit.
  const auto other = CompileHousing({.optimizer = gradloom::Sgd{.lr = 0.1}});
  EXPECT_THROW(gradloom::Session(other, gradloom::Checkpoint::Load(TemporaryFile("checkpoint"))), gradloom::Error);
  // Weights alone fit any optimizer.
  const std::string weights = session.CheckpointBytes(false);
  gradloom::Session fresh(other, gradloom::Checkpoint::FromBytes(std::as_bytes(std::span(weights))));
  EXPECT_EQ(fresh.FlatParameters(), session.FlatParameters());
  EXPECT_EQ(fresh.step(), 0);
  // So do those that an index names.
  session.SaveCheckpoint(TemporaryFile("weights.safetensors"), false);
  std::string map;
  for (const gradloom::TensorInfo& parameter : session.Parameters(false))
    map += (map.empty() ? "\"" : ", \"") + parameter.name + "\": \"weights.safetensors\"";
  std::ofstream(TemporaryFile("weights.safetensors.index.json")) << "{\"weight_map\": {" << map << "}}";
  gradloom::Session indexed(other, gradloom::Checkpoint::Load(TemporaryFile("weights.safetensors.index.json")));
  EXPECT_EQ(indexed.FlatParameters(), session.FlatParameters());
  EXPECT_EQ(indexed.step(), 0);
}

// Each device holds a part of the accumulated gradients. A session that continues after a save and one restored from the checkpoint end
// with the same bits.
TEST(Checkpoint, ResumesMidUpdateOnSeveralDevices) {
  const auto plan = CompileHousing({.devices = "cpu:3", .settings = {{"train.accumulate", "4"}}});
  const auto step = [](gradloom::Session& session, unsigned i) { return session.Step(Samples(30 + i).feeds()).updated; };
  gradloom::Session session(plan), one(CompileHousing({.settings = {{"train.accumulate", "4"}}}));
  for (unsigned i = 0; i < 6; ++i) step(session, i), step(one, i);
  session.SaveCheckpoint(TemporaryFile("parts"));
  gradloom::Session resumed(plan, gradloom::Checkpoint::Load(TemporaryFile("parts")));
  for (unsigned i = 6; i < 12; ++i) {
    const bool updates = i % 4 == 3;
    for (gradloom::Session* each : {&session, &resumed, &one}) EXPECT_EQ(step(*each, i), updates);
  }
  EXPECT_EQ(session.FlatParameters(), resumed.FlatParameters());
  const auto expected = one.FlatParameters(), several = session.FlatParameters();
  for (size_t k = 0; k < expected.size(); ++k) ASSERT_NEAR(several[k], expected[k], 1e-3);
}

TEST(Checkpoint, FitsThePlanAfterOtherBatchSizesWereCompiled) {
  const Samples samples(7);
  gradloom::Session session(Plain());
  session.Step(samples.feeds());
  session.Step({{"features", TensorView(samples.features.data(), {9, 13})}, {"target", TensorView(samples.target.data(), {9, 1})}});
  const std::string bytes = session.CheckpointBytes();
  gradloom::Session resumed(Plain(), gradloom::Checkpoint::FromBytes(std::as_bytes(std::span(bytes))));
  EXPECT_EQ(resumed.step(), 2);
  session.Step(samples.feeds());
  resumed.Step(samples.feeds());
  EXPECT_EQ(session.FlatParameters(), resumed.FlatParameters());
}

}  // namespace
