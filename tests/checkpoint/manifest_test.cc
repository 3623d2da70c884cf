#include "runtime/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/base/temporary_folder.h"
#include "tests/checkpoint/sample_session.h"

namespace gradloom {
namespace {

Manifest Sample() {
  Manifest manifest;
  manifest.version = "1.2.3";
  manifest.sequence = 12;
  manifest.plan = IdentityOf(SamplePlan());
  manifest.seed = -7;
  manifest.step = 1 << 20;
  manifest.batch = int64_t{1} << 40;
  manifest.fixed_learning_rate = 0.1;
  manifest.loss_scale = 65536;
  manifest.cursor = {4, 28, 64, 1797};
  manifest.callbacks = {{"a", std::string("\0\xff", 2)}, {"b", ""}};
  manifest.files = {{RankFileName(0), 123456, 0xfedcba9876543210}};
  return manifest;
}

std::string Refusal(const Manifest& manifest) {
  const Error error = ErrorOf([&] { DecodeManifest(EncodeManifest(manifest), "here"); });
  EXPECT_EQ(error.code(), ErrorCode::kCheckpoint);
  EXPECT_EQ(error.where(), "here");
  return error.message();
}

TEST(ManifestTest, RoundTrip) {
  const Manifest there = Sample(), back = DecodeManifest(EncodeManifest(there), "");
  EXPECT_EQ(back.version, there.version);
  EXPECT_EQ(back.sequence, there.sequence);
  EXPECT_EQ(back.plan.hash, there.plan.hash);
  EXPECT_EQ(back.plan.model_name, there.plan.model_name);
  EXPECT_EQ(back.plan.model_hash, there.plan.model_hash);
  EXPECT_EQ(back.plan.parts, there.plan.parts);
  EXPECT_EQ(back.seed, there.seed);
  EXPECT_EQ(back.step, there.step);
  EXPECT_EQ(back.batch, there.batch);
  EXPECT_EQ(back.fixed_learning_rate, there.fixed_learning_rate);
  EXPECT_EQ(back.loss_scale, there.loss_scale);
  EXPECT_EQ(back.world_size, 1);
  EXPECT_EQ(back.cursor, there.cursor);
  EXPECT_EQ(back.callbacks, there.callbacks);
  EXPECT_EQ(back.files, there.files);
}

TEST(ManifestTest, DetectsDamage) {
  const std::string good = EncodeManifest(Sample());
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      ASSERT_EQ(ErrorOf([&] { DecodeManifest(bad, ""); }).code(), ErrorCode::kCheckpoint) << i;
    }
    ASSERT_EQ(ErrorOf([&] { DecodeManifest(good.substr(0, i), ""); }).code(), ErrorCode::kCheckpoint) << i;
  }
}

TEST(ManifestTest, RejectsImpossibleValues) {
  Manifest manifest = Sample();
  manifest.step = -1;
  EXPECT_EQ(Refusal(manifest), "the manifest's step is -1");
  manifest = Sample(), manifest.batch = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Refusal(manifest), "the manifest's batch is 9223372036854775807");
  manifest = Sample(), manifest.cursor.batch = 30;
  EXPECT_EQ(Refusal(manifest), "the manifest's batch within the epoch is 30");
  manifest = Sample(), manifest.cursor.batch_size = 0;
  EXPECT_EQ(Refusal(manifest), "the manifest's batch within the epoch is 28");
  manifest = Sample(), manifest.fixed_learning_rate = std::nan("");
  EXPECT_NE(Refusal(manifest).find("learning rate"), std::string::npos);
  manifest = Sample(), manifest.world_size = 2;
  EXPECT_EQ(Refusal(manifest), "the manifest lists 1 files of 2 ranks");
  for (const char* name : {"../rank-0.safetensors", "/etc/passwd", "", "rank-1.safetensors"}) {
    manifest = Sample(), manifest.files[0].name = name;
    EXPECT_NE(Refusal(manifest).find("instead of 'rank-0.safetensors'"), std::string::npos) << name;
  }
  manifest = Sample(), manifest.files[0].bytes = -1;
  EXPECT_EQ(Refusal(manifest), "the manifest's size of a file is -1");
}

}  // namespace
}  // namespace gradloom
