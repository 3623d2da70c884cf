// Data that stays on disk gives the batches of data in memory.
#include <gtest/gtest.h>
#include <zlib.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/batches.h"
#include "runtime/data/data_files.h"
#include "runtime/data/npz.h"
#include "runtime/data/training_data.h"
#include "tests/base/bytes_read.h"
#include "tests/base/written_files.h"
#include "tests/data/write_arrays.h"

namespace gradloom {
namespace {

class ReadOnDemandTest : public WrittenFilesTest {};

// Arbitrary elements that every dtype can represent.
Tensor SomeElements(DType dtype, const Shape& shape, std::mt19937& random) {
  Tensor values(DType::kInt64, shape);
  for (int64_t& value : values.as<int64_t>()) value = static_cast<int64_t>(random() % (dtype == DType::kBool ? 2 : 100));
  return Converted(values.view(), dtype);
}

// Checks that both have the same batches. Only the first half of each batch is read from `other`.
void ExpectSameBatches(const Dataset& data, const Dataset& other, unsigned seed) {
  ASSERT_EQ(data.rows(), other.rows());
  const std::vector<int64_t> order = ShuffledRows(data.rows(), seed, 0);
  const auto half = [](int64_t rows) { return std::pair<int64_t, int64_t>(0, (rows + 1) / 2); };
  Batches ours(data, order, 7), theirs(other, order, 7, {.reads = half});
  for (int64_t i = 0; i < ours.count(); ++i) {
    const auto wanted = ours.Get(i), got = theirs.Get(i);
    ASSERT_EQ(wanted.size(), got.size());
    for (const auto& [name, view] : wanted) {
      const TensorView& same = got.at(name);
      ASSERT_EQ(same.dtype, view.dtype) << name;
      ASSERT_EQ(same.shape, view.shape) << name;
      const auto bytes = static_cast<size_t>(view.bytes() / view.shape[0] * half(view.shape[0]).second);
      ASSERT_EQ(std::memcmp(same.data, view.data, bytes), 0) << name << ", batch " << i;
    }
  }
}

std::string BigEndian(int64_t value, int bytes) {
  std::string text;
  while (bytes-- > 0) text.push_back(static_cast<char>(value >> (8 * bytes)));
  return text;
}

std::string Packed(const std::string& text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

TEST_F(ReadOnDemandTest, RowsReadOnDemandHaveTheSameBits) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  constexpr int64_t kRows = 61, kClasses = 9;
  const std::vector<Feed> feeds = {{"x", DType::kFloat32, {4, 3, 16, 16}, 0}, {"y", DType::kInt64, {4}, 0}};
  const auto load = [&](const std::string& path, const std::string& transform, bool on_demand, int64_t large_bytes) {
    DataOptions options{
        .train = path, .eval_split = "30%", .classes = {{"y", {kClasses, -1}}}, .on_demand = on_demand, .large_bytes = large_bytes};
    if (KindOfDataFile(path) == DataFileKind::kTable) options.columns = {{"x", "0..767"}, {"y", "-1"}};
    if (!transform.empty()) options.transforms["x"] = {transform, "normalize 0.5,1,2 0.25,4,3"};
    return LoadTrainingData(options, feeds, seed);
  };
  const auto check = [&](const std::string& path, const std::string& transform, bool stays, int64_t large_bytes = kLargeBytes) {
    SCOPED_TRACE(path + " " + transform);
    const TrainingData at_once = load(path, transform, false, large_bytes), on_demand = load(path, transform, true, large_bytes);
    EXPECT_FALSE(at_once.train.is_lazy("x"));
    EXPECT_EQ(on_demand.train.is_lazy("x"), stays);
    EXPECT_FALSE(on_demand.train.is_lazy("y")) << "rows of a few bytes";
    EXPECT_EQ(DataToJson(on_demand), DataToJson(at_once));
    const int64_t before = BytesRead();
    ExpectSameBatches(at_once.train, on_demand.train, seed);
    const int64_t read = BytesRead() - before, file = static_cast<int64_t>(std::filesystem::file_size(path));
    // Training uses 43 of the 61 rows, of which this reads about half.
    if (stays && before >= 0 && large_bytes == kLargeBytes) {
      EXPECT_LT(read, file / 2);
    }
    ExpectSameBatches(at_once.eval, on_demand.eval, seed);
  };
  Tensor labels = SomeElements(DType::kInt64, {kRows}, random);
  for (int64_t& label : labels.as<int64_t>()) label %= kClasses;
  for (const DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kUint8, DType::kInt16, DType::kUint64, DType::kBool}) {
    const std::map<std::string, Tensor> arrays{{"x", SomeElements(dtype, {kRows, 3, 16, 16}, random)}, {"y", labels}};
    const std::string path = folder_ / (std::string(DTypeName(dtype)) + ".npz");
    WriteNpz(path, arrays);
    check(path, dtype == DType::kUint8 ? "scale 1/255" : "", true);
  }
  const Tensor pixels = SomeElements(DType::kUint8, {kRows, 16, 48}, random);
  std::map<std::string, TensorView> views{{"x", pixels.view()}, {"y", labels.view()}};
  views.at("x").shape = {kRows, 3, 16, 16};
  WriteNpz(folder_ / "packed.npz", views, true);
  check(folder_ / "packed.npz", "scale 2", false);
  WriteNpz(folder_ / "plain.npz", views);
  check(folder_ / "plain.npz", "standardize", false);

  // Large columns stay out of memory in every case: standardized, compressed, as text, and in rows of a few bytes. The labels do not.
  constexpr int64_t kLarge = kRows * 8 + 1;
  check(folder_ / "plain.npz", " standardize", true, kLarge);
  check(folder_ / "packed.npz", "standardize", true, kLarge);
  std::string table;
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < 768; ++j) table += std::to_string(random() % 1000) + "." + std::to_string(random() % 1000) + ",";
    table += std::to_string(labels.as<int64_t>()[static_cast<size_t>(i)]) + "\n";
  }
  check(Write("table.csv", table), "standardize", true, kLarge);
  check(Write("table.csv", table), "", true, kLarge);
  check(Write("table.csv", table), "scale 1/9", false);

  // Big-endian float32, and the label file next to it.
  std::string images = std::string("\0\0\x0d\x04", 4), classes = std::string("\0\0\x08\x01", 4) + BigEndian(kRows, 4);
  for (const int64_t extent : {kRows, int64_t{3}, int64_t{16}, int64_t{16}}) images += BigEndian(extent, 4);
  for (const uint8_t pixel : pixels.as<uint8_t>()) images += BigEndian(std::bit_cast<int32_t>(static_cast<float>(pixel) / 3), 4);
  for (const int64_t label : labels.as<int64_t>()) classes += BigEndian(label, 1);
  Write("set-labels-idx1-ubyte", classes);
  const DataOptions set{.train = folder_ / "set", .classes = {{"y", {kClasses, -1}}}};
  Write("set-images-idx4-ubyte", images);
  DataOptions set_on_demand = set;
  set_on_demand.on_demand = true;
  const TrainingData at_once = LoadTrainingData(set, feeds, seed), on_demand = LoadTrainingData(set_on_demand, feeds, seed);
  EXPECT_TRUE(on_demand.train.is_lazy("x"));
  EXPECT_FALSE(on_demand.train.is_lazy("y"));
  ExpectSameBatches(at_once.train, on_demand.train, seed);
  set_on_demand.large_bytes = kLarge;
  std::filesystem::remove(folder_ / "set-images-idx4-ubyte");
  const std::string packed = Packed(images);
  Write("set-images-idx4-ubyte.gz", packed);
  const TrainingData unpacked = LoadTrainingData(set_on_demand, feeds, seed);
  EXPECT_TRUE(unpacked.train.is_lazy("x"));
  EXPECT_FALSE(unpacked.train.is_lazy("y"));
  ExpectSameBatches(at_once.train, unpacked.train, seed);
  Write("set-images-idx4-ubyte.gz", Packed(images + "x"));
  EXPECT_EQ(ErrorOf([&] { LoadTrainingData(set_on_demand, feeds, seed); }).message(),
            ErrorOf([&] { LoadTrainingData(set, feeds, seed); }).message());
  std::filesystem::remove(folder_ / "set-images-idx4-ubyte.gz");
  set_on_demand.large_bytes = kLargeBytes;
  Write("set-images-idx4-ubyte", images + "x");
  EXPECT_EQ(ErrorOf([&] { LoadTrainingData(set_on_demand, feeds, seed); }).message(),
            ErrorOf([&] { LoadTrainingData(set, feeds, seed); }).message());
}

// What is wrong with a number is said when its row is read, in the same words.
TEST_F(ReadOnDemandTest, NumbersOfLargeArraysAreCheckedWhenTheyAreRead) {
  const std::string path = folder_ / "a.npz";
  struct Case {
    Tensor labels;
    DType wanted;
    std::string says;  // empty: all fit
  };
  const Case cases[] = {{Tensor::From<double>({0, 2, 1}, {3}), DType::kInt64, ""},
                        {Tensor::From<double>({0, 1.5, 1}, {3}), DType::kInt64, "row 1 of column 'y' is 1.5, but the model expects int64"},
                        {Tensor::From<float>({0, 1, NAN}, {3}), DType::kInt32, "row 2 of column 'y' is nan, but the model expects int32"},
                        {Tensor::From<int64_t>({0, 300, 1}, {3}), DType::kUint8, "row 1 of column 'y' is 300, but the model expects uint8"},
                        {Tensor::From<int64_t>({0, 2, 1}, {3}), DType::kInt8, ""}};
  for (const Case& c : cases) {
    WriteNpz(path, {{"x", Tensor(DType::kFloat32, {3, 2})}, {"y", c.labels}});
    const std::vector<Feed> feeds = {kFeeds[0], {"y", c.wanted, {4}, 0}};
    const auto load = [&](bool on_demand) {
      return LoadTrainingData({.train = path, .on_demand = on_demand, .large_bytes = 1}, feeds, 1).train;
    };
    const Dataset stays = load(true);
    ASSERT_TRUE(stays.is_lazy("y"));
    if (c.says.empty()) {
      ExpectSameBatches(load(false), stays, 1);
      continue;
    }
    const std::vector<int64_t> order{0, 1, 2};
    const Error at_once = ErrorOf([&] { load(false); }), late = ErrorOf([&] { Batches(stays, order, 3).Get(0); });
    EXPECT_EQ(at_once.message(), c.says);
    EXPECT_EQ(late.message(), c.says);
    EXPECT_EQ(late.code(), ErrorCode::kData);
  }
}

// Tables too large for memory: errors in them are reported as usual, and whole numbers are converted to the model's type.
TEST_F(ReadOnDemandTest, LargeTablesReadLikeSmallOnes) {
  std::string text = "a,b,c\n";
  for (int i = 0; i < 50; ++i) text += std::to_string(i) + ".5," + std::to_string(2 * i) + "," + std::to_string(i % 3) + "\n";
  const auto load = [&](const std::string& path, const std::vector<Feed>& feeds, bool large) {
    return LoadTrainingData({.train = path, .classes = {{"y", {3, -1}}}, .on_demand = large, .large_bytes = 1}, feeds, 1);
  };
  const std::string path = Write("a.csv", text);
  const TrainingData small = load(path, kFeeds, false), large = load(path, kFeeds, true);
  EXPECT_TRUE(large.train.is_lazy("x") && large.train.is_lazy("y"));
  ExpectSameBatches(small.train, large.train, 3);
  const std::vector<Feed> bytes = {kFeeds[0], {"y", DType::kUint8, {4}, 0}};
  ExpectSameBatches(load(path, bytes, false).train, load(path, bytes, true).train, 3);
  const std::string nan = Write("nan.csv", text + "nan,1,1\n");
  EXPECT_EQ(load(nan, kFeeds, true).notes, load(nan, kFeeds, false).notes);
  const std::vector<Feed> wide = {{"x", DType::kFloat32, {4, 3}, 0}, kFeeds[1]};
  for (const auto& [file, feeds] : {std::pair(path, wide), std::pair(Write("word.csv", text + "1,word,1\n"), kFeeds),
                                    std::pair(Write("short.csv", text + "1,1\n"), kFeeds)}) {
    const Error wanted = ErrorOf([&] { load(file, feeds, false); }), error = ErrorOf([&] { load(file, feeds, true); });
    EXPECT_EQ(error.code(), wanted.code());
    EXPECT_EQ(error.message(), wanted.message());
    EXPECT_EQ(error.where(), wanted.where());
  }
  const TrainingData classes = load(Write("class.csv", text + "1,1,3\n"), kFeeds, true);
  const std::vector<int64_t> last{50};
  const Error error = ErrorOf([&] { Batches(classes.train, last, 1).Get(0); });
  EXPECT_NE(error.message().find("row 50 (counted from 0) has class 3 in 'y'"), std::string::npos) << error.message();
  EXPECT_EQ(ErrorOf([&] {
              LoadTrainingData({.train = path, .transforms = {{"y", {"scale 2"}}}, .on_demand = true, .large_bytes = 1}, kFeeds, 1);
            }).code(),
            ErrorCode::kData);
}

TEST_F(ReadOnDemandTest, TokensReadOnDemandHaveTheSameBits) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  constexpr int64_t kWindow = 150, kClasses = 500;
  const std::vector<Feed> feeds = {{"ids", DType::kInt64, {4, kWindow}, 0}, {"following", DType::kInt64, {4, kWindow}, 0}};
  std::vector<uint16_t> tokens(8000);
  for (uint16_t& token : tokens) token = static_cast<uint16_t>(random() % kClasses);
  const std::string path = folder_ / "text.bin";
  WriteTokens(path, tokens);
  DataOptions options{.train = path, .classes = {{"following", {kClasses, -1}}}};
  const TrainingData at_once = LoadTrainingData(options, feeds, seed);
  options.on_demand = true;
  const TrainingData on_demand = LoadTrainingData(options, feeds, seed);
  EXPECT_TRUE(on_demand.train.is_lazy("ids") && on_demand.train.is_lazy("following"));
  ExpectSameBatches(at_once.train, on_demand.train, seed);
  // A class that the model does not have is reported with the row that is read.
  tokens[static_cast<size_t>(7 * kWindow + 3)] = kClasses;
  WriteTokens(path, tokens);
  const TrainingData wrong = LoadTrainingData(options, feeds, seed);
  const std::vector<int64_t> rows{6, 7};
  Batches batches(wrong.train, rows, 1);
  batches.Get(0);
  const Error error = ErrorOf([&] { batches.Get(1); });
  EXPECT_EQ(error.code(), ErrorCode::kData);
  EXPECT_NE(error.message().find("row 7 (counted from 0) has class 500 in 'following'"), std::string::npos) << error.message();
}

// The transforms of a run that was trained on images, applied to an array.
TEST_F(ReadOnDemandTest, TransformsOfImagesApplyToArrays) {
  const std::string path = folder_ / "a.npz";
  WriteNpz(path, {{"x", Tensor::From<float>({1, 2, 3, 4}, {2, 2})}, {"y", Tensor::From<int64_t>({0, 1}, {2})}});
  std::vector<std::string> notes;
  const Dataset data = LoadFeeds(path, kFeeds, {}, {{"x", {Transform{.row_transform = "scale 3"}}}}, notes);
  EXPECT_EQ(data.column("x").as<float>()[3], 12);
  // What changes sizes, or is random, is nothing to it.
  for (const char* step : {"resize_crop", "random_flip", "random_crop 4", "color_jitter 0.1 0.2"}) {
    const Dataset same = LoadFeeds(path, kFeeds, {}, {{"x", {Transform{.row_transform = step}}}}, notes);
    EXPECT_EQ(same.column("x").as<float>()[3], 4) << step;
    EXPECT_EQ(ErrorOf([&] { LoadTrainingData({.train = path, .transforms = {{"x", {step}}}}, kFeeds, 1); }).code(), ErrorCode::kConfig);
  }
  const Error error = ErrorOf([&] { LoadFeeds(path, kFeeds, {}, {{"x", {Transform{.row_transform = "blur"}}}}, notes); });
  EXPECT_EQ(error.code(), ErrorCode::kConfig);
  // Rows that stay in the file.
  const std::vector<Feed> wide = {{"x", DType::kFloat32, {1, 3, 8, 8}, 0}, kFeeds[1]};
  std::vector<float> values(2 * 192);
  std::iota(values.begin(), values.end(), 0.0f);
  const std::string large = folder_ / "large.npz";
  WriteNpz(large, {{"x", Tensor::From<float>(values, {2, 3, 8, 8})}, {"y", Tensor::From<int64_t>({0, 1}, {2})}});
  const std::map<std::string, std::vector<Transform>> transforms{
      {"x", {Transform{.row_transform = "scale 3"}, Transform{.row_transform = "normalize 1,2,3 1,1,2"}}}};
  const Dataset stays = LoadFeeds(large, wide, {}, transforms, notes, {.on_demand = true}),
                read = LoadFeeds(large, wide, {}, transforms, notes);
  EXPECT_TRUE(stays.is_lazy("x"));
  ExpectSameBatches(read, stays, 1);
  ExpectSameBatches(LoadFeeds(large, wide, {}, {}, notes),
                    LoadFeeds(large, wide, {}, {{"x", {Transform{.row_transform = "random_flip"}}}}, notes, {.on_demand = true}), 1);
  EXPECT_EQ(ErrorOf([&] {
              LoadFeeds(large, wide, {}, {{"x", {Transform{.row_transform = "blur"}}}}, notes, {.on_demand = true});
            }).code(),
            ErrorCode::kConfig);
}

}  // namespace
}  // namespace gradloom
