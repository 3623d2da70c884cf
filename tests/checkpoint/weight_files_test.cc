#include "runtime/checkpoint/weight_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "runtime/checkpoint/shard_index.h"
#include "tests/base/temporary_folder.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

ShardIndex Parse(const std::string& text) { return ParseShardIndex(text, 4, "index"); }

TEST(ShardIndexTest, NameOfAnIndex) {
  EXPECT_TRUE(IsShardIndex("model.safetensors.index.json"));
  EXPECT_TRUE(IsShardIndex("a/model.safetensors.index.fp16.json"));
  for (const char* other : {"model.safetensors", "model.json", "a.index.b/model.json", "model.index.safetensors", "", "index.json"})
    EXPECT_FALSE(IsShardIndex(other)) << other;
}

TEST(ShardIndexTest, ReadsOnlyTheWeightMap) {
  const ShardIndex wanted = {{"a", "1.st"}, {"b", "low/2.st"}};
  const std::string map = R"("weight_map": {"b": "low/2.st", "a": "1.st"})";
  for (const std::string& text : {"{" + map + "}", R"({"metadata": {"total_size": 1e99, "weight_map": {"c": 3}}, )" + map + "}",
                                  "{" + map + R"(, "x": [[{"weight_map": []}], null, true, -1, ""]})"})
    EXPECT_EQ(Parse(text), wanted) << text;
  EXPECT_TRUE(Parse(R"({"weight_map": {}})").empty());
}

TEST(ShardIndexTest, RefusesOtherForms) {
  for (const char* text :
       {"", "{", "[]", "1", "null", "{}", R"({"weight_map": null})", R"({"weight_map": [{"a": "b"}]})", R"({"weight_map": {"a": ["b"]}})",
        R"({"weight_map": {"a": {"b": "c"}}})", R"({"weight_map": {"a": true}})", R"({"weight_map": {"a": "b", "a": "b"}})",
        R"({"weight_map": {}, "weight_map": {}})", "{\"weight_map\": {}}x", "{\"weight_map\": {\"a\": \"\xFF\"}}"}) {
    const Error error = ErrorOf([&] { Parse(text); });
    EXPECT_EQ(error.code(), ErrorCode::kCheckpoint) << text;
    EXPECT_EQ(error.where(), "index") << text;
  }
  const Error error = ErrorOf([&] { Parse(R"({"weight_map": {"t": "../a"}})"); });
  EXPECT_EQ(error.code(), ErrorCode::kPath);
  EXPECT_EQ(error.where(), "index tensor 't'  file \"../a\"");
  EXPECT_EQ(ErrorOf([&] { Parse(R"({"weight_map": {"a":"f","b":"f","c":"f","d":"f","e":"f"}})"); }).code(), ErrorCode::kLimit);
}

class WeightFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(folder_ / "w");
    WriteSafetensors(Shard(1), {{"a", Tensor::From<float>({1, 2}, {2})}, {"c", Tensor::From<int64_t>({7}, {1, 1})}});
    WriteSafetensors(Shard(2), {{"b", Tensor::From<double>({3}, {})}});
    WriteIndex({{"a", "1.st"}, {"b", "2.st"}, {"c", "1.st"}});
  }

  std::string Shard(int number) const { return folder_ / ("w/" + std::to_string(number) + ".st"); }

  void WriteIndex(const ShardIndex& index) {
    std::string map;
    for (const auto& [tensor, shard] : index) map += (map.empty() ? "\"" : ", \"") + tensor + "\": \"" + shard + "\"";
    WriteWithoutSync(path_, "{\"weight_map\": {" + map + "}}");
  }

  Error Refused() {
    return ErrorOf([&] { WeightFiles files(path_); });
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_ / "w/m.safetensors.index.json";
};

TEST_F(WeightFilesTest, ReadsAllShards) {
  const WeightFiles files(path_);
  EXPECT_EQ(files.count(), 2);
  EXPECT_TRUE(files.metadata().empty());
  ASSERT_EQ(files.types().size(), 3u);
  EXPECT_EQ(files.types().at("c").dtype, DType::kInt64);
  EXPECT_EQ(files.types().at("c").shape, Shape({1, 1}));
  EXPECT_EQ(files.Read("a").as<float>()[1], 2);
  EXPECT_EQ(files.Read("b").as<double>()[0], 3);
  EXPECT_EQ(files.Read("c").as<int64_t>()[0], 7);
  EXPECT_EQ(ErrorOf([&] { files.Read("d"); }).code(), ErrorCode::kCheckpoint);
}

TEST_F(WeightFilesTest, ReadsOneFile) {
  WriteSafetensors(Shard(3), {{"a", Tensor::From<float>({5}, {1})}}, {{"step", "7"}});
  const WeightFiles files(Shard(3));
  EXPECT_EQ(files.count(), 1);
  EXPECT_EQ(files.metadata().at("step"), "7");
  EXPECT_EQ(files.Read("a").as<float>()[0], 5);
}

TEST_F(WeightFilesTest, HashDependsOnEveryShard) {
  const uint64_t hash = WeightFiles(path_).ContentHash();
  EXPECT_EQ(WeightFiles(path_).ContentHash(), hash);
  WriteSafetensors(Shard(2), {{"b", Tensor::From<double>({4}, {})}});
  EXPECT_NE(WeightFiles(path_).ContentHash(), hash);
}

TEST_F(WeightFilesTest, LimitsHoldForAllShardsTogether) {
  const int64_t bytes = static_cast<int64_t>(fs::file_size(Shard(1)) + fs::file_size(Shard(2)));
  EXPECT_EQ(WeightFiles(path_, bytes, 3).count(), 2);
  EXPECT_EQ(ErrorOf([&] { WeightFiles files(path_, bytes - 1); }).code(), ErrorCode::kLimit);
  EXPECT_EQ(ErrorOf([&] { WeightFiles files(path_, bytes, 2); }).code(), ErrorCode::kLimit);
}

// Random indexes for random divisions, with at most one difference between them.
TEST_F(WeightFilesTest, EveryDifferenceBetweenIndexAndShardsIsFound) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (int round = 0; round < 60; ++round) {
    const size_t shards = 1 + below(4), tensors = shards + below(5);
    std::vector<std::map<std::string, Tensor>> parts(shards);
    ShardIndex index;
    for (size_t i = 0; i < tensors; ++i) {
      const size_t shard = i < shards ? i : below(shards);
      const std::string name = "t" + std::to_string(i);
      parts[shard].emplace(name, Tensor::From<float>({static_cast<float>(i)}, {1}));
      index.emplace(name, std::to_string(shard + 1) + ".st");
    }
    const size_t shard = below(shards), other = below(shards);
    const std::string mine = parts[shard].begin()->first;
    const auto kind = below(5);
    bool differs = true;
    if (kind == 0)
      parts[shard].emplace("more", Tensor::From<float>({0}, {1}));
    else if (kind == 1)
      parts[shard].erase(mine);
    else if (kind == 2)
      index.emplace("more", std::to_string(shard + 1) + ".st");
    else if (kind == 3)
      differs = parts[other].emplace(mine, Tensor::From<float>({0}, {1})).second;
    else
      differs = false;
    for (size_t i = 0; i < shards; ++i) WriteSafetensors(Shard(static_cast<int>(i) + 1), parts[i]);
    WriteIndex(index);
    if (differs) {
      EXPECT_EQ(Refused().code(), ErrorCode::kCheckpoint) << "round " << round;
      continue;
    }
    const WeightFiles files(path_);
    ASSERT_EQ(files.types().size(), tensors);
    for (size_t i = 0; i < tensors; ++i) EXPECT_EQ(files.Read("t" + std::to_string(i)).as<float>()[0], static_cast<float>(i));
  }
}

TEST_F(WeightFilesTest, ShardsStayInTheFolder) {
  fs::create_directory(folder_ / "w2");
  fs::rename(Shard(2), folder_ / "w2/2.st");
  fs::create_symlink("../w2/2.st", Shard(2));
  // What a link hides is not quoted.
  for (const bool safetensors : {true, false}) {
    if (!safetensors) WriteWithoutSync(folder_ / "w2/2.st", "secret");
    const Error error = Refused();
    EXPECT_EQ(error.code(), ErrorCode::kPath);
    EXPECT_EQ(error.where(), path_ + " tensor 'b'  file \"2.st\"");
  }
  fs::remove(Shard(2));
  EXPECT_EQ(Refused().code(), ErrorCode::kIo);
}

TEST_F(WeightFilesTest, CacheOfLinks) {
  fs::create_directory(folder_ / "blobs");
  for (const std::string& file : {path_, Shard(1), Shard(2)}) {
    const fs::path blob = fs::path("../blobs") / fs::path(file).filename();
    fs::rename(file, fs::path(file).parent_path() / blob);
    fs::create_symlink(blob, file);
  }
  EXPECT_EQ(WeightFiles(path_).Read("b").as<double>()[0], 3);
  // The folder itself may be reached through a link.
  fs::create_directory_symlink("w", folder_ / "linked");
  EXPECT_EQ(WeightFiles(folder_ / "linked/m.safetensors.index.json").Read("b").as<double>()[0], 3);
  fs::remove(folder_ / "blobs/2.st");
  EXPECT_EQ(Refused().code(), ErrorCode::kIo);
}

TEST_F(WeightFilesTest, FolderOfTheProcess) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_ / "w");
  EXPECT_EQ(WeightFiles("m.safetensors.index.json").Read("b").as<double>()[0], 3);
  fs::current_path(before);
}

}  // namespace
}  // namespace gradloom
