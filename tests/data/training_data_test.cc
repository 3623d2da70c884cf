#include "runtime/data/training_data.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>

#include "runtime/data/batches.h"
#include "runtime/data/data_files.h"
#include "runtime/data/npz.h"
#include "tests/base/bytes_read.h"
#include "tests/base/written_files.h"
#include "tests/data/write_arrays.h"

namespace gradloom {
namespace {

class TrainingDataTest : public WrittenFilesTest {};

TEST_F(TrainingDataTest, PatternSelectsOneTable) {
  Write("b.csv", "a,b,c\n7,8,0\n");
  Write("B.csv", "a,b,c\n5,6,2\n");
  Write("a10.csv", "a,b,c\n1,2,0\n3,4,1\n");
  Write("a9.csv", "a,b,c\n9,9,1\n");
  Write("other.txt", "nothing");
  // Sorted by the bytes of the names, regardless of the locale's rules for case and digits.
  const TrainingData data = LoadTrainingData({.train = folder_ / "*.csv"}, kFeeds, 1);
  EXPECT_EQ(data.files, (std::vector<FileRows>{{"B.csv", 1}, {"a10.csv", 2}, {"a9.csv", 1}, {"b.csv", 1}}));
  ASSERT_EQ(data.train.rows(), 5);
  const std::span<const float> x = data.train.column("x").as<float>();
  EXPECT_EQ(std::vector<float>(x.begin(), x.end()), (std::vector<float>{5, 6, 1, 2, 3, 4, 9, 9, 7, 8}));
  EXPECT_EQ(data.train.column("y").as<int64_t>()[0], 2);
  std::vector<std::string> notes;
  EXPECT_EQ(LoadFeeds(folder_ / "{b,a9}.csv", {kFeeds[0]}, data.columns, {}, notes).column("x").as<float>()[0], 9);
  // The name of an existing file that looks like a pattern.
  EXPECT_EQ(LoadTrainingData({.train = Write("a[1].csv", "1,2,0\n")}, kFeeds, 1).train.rows(), 1);
  const Error none = ErrorOf([&] { LoadTrainingData({.train = folder_ / "*.npz"}, kFeeds, 1); });
  EXPECT_EQ(none.code(), ErrorCode::kData);
  EXPECT_EQ(none.message(), "no file matches this pattern");
  const Error mixed = ErrorOf([&] { LoadTrainingData({.train = folder_ / "*"}, kFeeds, 1); });
  EXPECT_NE(mixed.message().find("B.csv"), std::string::npos) << mixed.message();
}

TEST_F(TrainingDataTest, RejectsFilesOfAPatternThatDiffer) {
  const auto refused = [&](const std::string& second) {
    Write("2.csv", second);
    const Error error = ErrorOf([&] { LoadTrainingData({.train = folder_ / "?.csv"}, kFeeds, 1); });
    EXPECT_EQ(error.code(), ErrorCode::kData);
    EXPECT_NE(error.where().find("2.csv"), std::string::npos) << error.where();
    return error.message();
  };
  const std::string first = "'" + Write("1.csv", "a,b,c\n1,2,0\n") + "' of the same data";
  EXPECT_EQ(refused("b,a,c\n1,2,0\n"), "column 0 (counted from 0) is 'b'; in " + first + " it is 'a'");
  EXPECT_EQ(refused("a,b,c,d\n1,2,0,0\n"), "4 columns; " + first + " has 3");
  EXPECT_EQ(refused("1,2,0\n"), "column 0 (counted from 0) is '0'; in " + first + " it is 'a'");
  EXPECT_EQ(refused("a,b,c\n"), "the table has no rows");
  Write("2.csv", "a,b,c\n1,2,5\n");
  const Error label = ErrorOf([&] { LoadTrainingData({.train = folder_ / "?.csv", .classes = {{"y", {3, -1}}}}, kFeeds, 1); });
  EXPECT_NE(label.where().find("2.csv"), std::string::npos) << label.where();

  WriteNpz(folder_ / "1.npz", std::map<std::string, Tensor>{{"x", Tensor(DType::kFloat32, {2, 2})}, {"y", Tensor(DType::kInt64, {2})}});
  WriteNpz(folder_ / "2.npz", std::map<std::string, Tensor>{{"x", Tensor(DType::kUint8, {2, 2})}, {"y", Tensor(DType::kInt64, {2})}});
  const Error types = ErrorOf([&] { LoadTrainingData({.train = folder_ / "?.npz"}, kFeeds, 1); });
  EXPECT_EQ(types.message(), "the rows for 'x' are uint8[2]; in '" + (folder_ / "1.npz") + "' of the same data they are float32[2]");
  EXPECT_NE(types.where().find("2.npz"), std::string::npos);
}

TEST_F(TrainingDataTest, FilesOfAPatternCanStayOnDisk) {
  for (int64_t file = 0; file < 3; ++file) {
    Tensor x(DType::kFloat32, {4 + file, 2}), y(DType::kInt64, {4 + file});
    for (int64_t i = 0; i < x.elements(); ++i) x.as<float>()[static_cast<size_t>(i)] = static_cast<float>(100 * file + i);
    for (int64_t i = 0; i < y.elements(); ++i) y.as<int64_t>()[static_cast<size_t>(i)] = file;
    WriteNpz(folder_ / (std::to_string(file) + ".npz"), std::map<std::string, Tensor>{{"x", std::move(x)}, {"y", std::move(y)}});
  }
  for (const char* transform : {"standardize", "scale 1/4"}) {
    DataOptions options{.train = folder_ / "*.npz", .eval_split = "tail:25%", .transforms = {{"x", {transform}}}};
    const TrainingData at_once = LoadTrainingData(options, kFeeds, 1);
    options.on_demand = true;
    // Only the last file is large, so its rows stay on disk and those of the others do not.
    options.large_bytes = 3 * 47;
    const TrainingData on_demand = LoadTrainingData(options, kFeeds, 1);
    EXPECT_TRUE(on_demand.train.is_lazy("x"));
    for (const Dataset TrainingData::*part : {&TrainingData::train, &TrainingData::eval}) {
      std::vector<int64_t> order(static_cast<size_t>((at_once.*part).rows()));
      std::iota(order.begin(), order.end(), 0);
      Batches memory(at_once.*part, order, 64), disk(on_demand.*part, order, 64);
      const auto& some = disk.Get(0);
      for (const auto& [name, value] : memory.Get(0)) {
        const TensorView other = some.find(name)->second;
        ASSERT_EQ(value.shape, other.shape);
        EXPECT_EQ(std::memcmp(value.data, other.data, static_cast<size_t>(value.elements() * DTypeBytes(value.dtype))), 0) << name;
      }
    }
  }
  // An error in a row that is read later names its file.
  WriteNpz(folder_ / "2.npz",
           std::map<std::string, Tensor>{{"x", Tensor(DType::kFloat32, {1, 2})}, {"y", Tensor::From<int64_t>({9}, {1})}});
  const TrainingData data =
      LoadTrainingData({.train = folder_ / "*.npz", .classes = {{"y", {3, -1}}}, .on_demand = true, .large_bytes = 1}, kFeeds, 1);
  const Dataset::LazyColumn& y = data.train.lazy_columns().at("y");
  int64_t label = 0;
  const Error error = ErrorOf([&] { y.source->Read(9, {}, &label); });
  EXPECT_NE(error.where().find("2.npz"), std::string::npos) << error.Describe();
  EXPECT_NE(error.message().find("row 0 "), std::string::npos) << error.message();
}

TEST_F(TrainingDataTest, ReportsTooManyFilesInAdvance) {
  constexpr rlim_t kAllowed = 128;
  constexpr int64_t kFiles = 150;
  for (int64_t file = 0; file < kFiles; ++file) {
    WriteNpz(folder_ / (std::to_string(file) + ".npz"),
             std::map<std::string, Tensor>{{"x", Tensor(DType::kFloat32, {2, 2})}, {"y", Tensor(DType::kInt64, {2})}});
  }
  const DataOptions stay_open{.train = folder_ / "*.npz", .on_demand = true, .large_bytes = 1};
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_GT(before.rlim_max, 2 * kAllowed);
  const rlimit few{kAllowed, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  // Up to the hard limit of the system, the process raises its own limit.
  EXPECT_EQ(LoadTrainingData(stay_open, kFeeds, 1).train.rows(), 2 * kFiles);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  const auto limited = [&] {
    const rlimit hard{kAllowed, kAllowed};
    if (::setrlimit(RLIMIT_NOFILE, &hard) != 0) ::_exit(1);
    // Files that are read immediately are closed again.
    DataOptions at_once = stay_open;
    at_once.on_demand = false;
    if (LoadTrainingData(at_once, kFeeds, 1).train.rows() != 2 * kFiles) ::_exit(1);
    const Error error = ErrorOf([&] { LoadTrainingData(stay_open, kFeeds, 1); });
    std::fprintf(stderr, "%s\n", error.Describe().c_str());
    ::_exit(ExitCode(error.code()));
  };
  EXPECT_EXIT(limited(), ::testing::ExitedWithCode(ExitCode(ErrorCode::kResource)),
              "150 data files must stay open .*the limit of a process is 128\n  --> .*/0.npz");
}

TEST_F(TrainingDataTest, TokenWindowsDoNotCrossFiles) {
  WriteTokens(folder_ / "a.bin", {1, 2, 3, 4, 5, 6});
  WriteTokens(folder_ / "b.bin", {11, 12, 13});
  const std::vector<Feed> feeds = {{"x", DType::kInt64, {4, 2}, 0}, {"y", DType::kInt64, {4, 2}, 0}};
  const TrainingData data = LoadTrainingData({.train = folder_ / "*.bin"}, feeds, 1);
  const std::span<const int64_t> x = data.train.column("x").as<int64_t>(), y = data.train.column("y").as<int64_t>();
  EXPECT_EQ(std::vector<int64_t>(x.begin(), x.end()), (std::vector<int64_t>{1, 2, 3, 4, 11, 12}));
  EXPECT_EQ(std::vector<int64_t>(y.begin(), y.end()), (std::vector<int64_t>{2, 3, 4, 5, 12, 13}));
}

TEST_F(TrainingDataTest, ReportsAChangedListOfFiles) {
  Write("1.csv", "a,b,c\n1,2,0\n");
  Write("2.csv", "a,b,c\n1,2,0\n3,4,1\n");
  const TrainingData data = LoadTrainingData({.train = folder_ / "*.csv"}, kFeeds, 1);
  const std::string json = DataToJson(data);
  const auto difference = [&](std::vector<FileRows> files) { return DifferenceOfData(json, "", {.files = std::move(files)}); };
  EXPECT_EQ(difference(data.files), "");
  EXPECT_EQ(difference({}), "");
  const std::string then = ": the rows would be in a different order";
  EXPECT_EQ(difference({{"1.csv", 1}, {"3.csv", 2}}), "file 2 of the data was '2.csv' with 2 rows, now it is '3.csv' with 2 rows" + then);
  EXPECT_EQ(difference({{"1.csv", 3}}), "file 1 of the data was '1.csv' with 1 rows, now it is '1.csv' with 3 rows" + then);
  const TrainingData one = LoadTrainingData({.train = folder_ / "1.csv"}, kFeeds, 1);
  EXPECT_EQ(DataToJson(one).find("files"), std::string::npos);
}

TEST_F(TrainingDataTest, FormatOverridesTheName) {
  const std::string tabs = Write("table.dat", "a\tb\tc\n1\t2\t0\n");
  EXPECT_EQ(LoadTrainingData({.train = tabs, .format = "tsv"}, kFeeds, 1).train.column("x").as<float>()[1], 2);
  const std::string commas = Write("table.tsv", "a,b,c\n1,2,0\n");
  EXPECT_EQ(LoadTrainingData({.train = commas, .format = "csv"}, kFeeds, 1).train.column("x").as<float>()[1], 2);
  const Error unnamed = ErrorOf([&] { LoadTrainingData({.train = tabs}, kFeeds, 1); });
  EXPECT_NE(unnamed.help().find("--data-format csv"), std::string::npos) << unnamed.help();
  EXPECT_EQ(ErrorOf([&] { LoadTrainingData({.train = tabs, .format = "npz"}, kFeeds, 1); }).code(), ErrorCode::kData);
  EXPECT_EQ(ErrorOf([&] { LoadTrainingData({.train = tabs, .format = "parquet"}, kFeeds, 1); }).code(), ErrorCode::kConfig);
  WriteTokens(folder_ / "tokens", {1, 2, 3});
  const std::vector<Feed> feeds = {{"x", DType::kInt64, {4, 2}, 0}, {"y", DType::kInt64, {4, 2}, 0}};
  EXPECT_EQ(LoadTrainingData({.train = folder_ / "tokens", .format = "tokens"}, feeds, 1).train.rows(), 1);
}

TEST_F(TrainingDataTest, ColumnsFeedInputsOfTheSameName) {
  const auto columns_of = [&](const std::string& text, ColumnMap said = {}) {
    return LoadTrainingData({.train = Write("a.csv", text), .columns = std::move(said)}, kFeeds, 1).columns;
  };
  EXPECT_EQ(columns_of("1,2,0\n3,4,1\n"), (ColumnMap{{"x", "0..1"}, {"y", "2"}}));
  EXPECT_EQ(columns_of("y,b,c\n0,1,2\n"), (ColumnMap{{"x", "b..c"}, {"y", "y"}}));
  EXPECT_EQ(columns_of("a,y,c\n1,0,2\n"), (ColumnMap{{"x", "a,c"}, {"y", "y"}}));
  // The same for a feed without a map.
  const TrainingData data = LoadTrainingData({.train = Write("a.csv", "a,y,c\n1,0,2\n"), .columns = {{"x", "a,c"}}}, kFeeds, 1);
  EXPECT_EQ(data.train.column("y").as<int64_t>()[0], 0);
  const std::vector<Feed> scalars = {{"x", DType::kFloat32, {4}, 0}, {"w", DType::kFloat32, {4}, 0}, {"y", DType::kInt64, {4}, 0}};
  const TrainingData named = LoadTrainingData({.train = Write("a.csv", "y,w,other,x\n1,2,9,3\n")}, scalars, 1);
  EXPECT_EQ(named.train.column("x").as<float>()[0], 3);
  EXPECT_EQ(named.train.column("w").as<float>()[0], 2);
}

TEST_F(TrainingDataTest, TablesForPredictionsMayHaveATarget) {
  for (const char* text : {"a,b\n1,2\n", "a,b,c\n1,2,0\n"}) {
    std::vector<std::string> notes;
    const Dataset data = LoadFeeds(Write("a.csv", text), {kFeeds[0]}, {}, {}, notes);
    EXPECT_EQ(data.column("x").shape(), (Shape{1, 2}));
  }
}

TEST_F(TrainingDataTest, EvaluationDataMayBeOfAnotherKind) {
  const std::string table = Write("a.csv", "a,b,c\n1,2,0\n3,4,1\n");
  Tensor x = Tensor::From(std::vector<float>{5, 6}, {1, 2}), y = Tensor::From(std::vector<int64_t>{1}, {1});
  const std::string arrays = folder_ / "e.npz";
  WriteNpz(arrays, {{"x", x.view()}, {"y", y.view()}});
  EXPECT_EQ(LoadTrainingData({.train = table, .eval = arrays}, kFeeds, 1).eval.column("x").as<float>()[1], 6);
  EXPECT_EQ(LoadTrainingData({.train = arrays, .eval = table}, kFeeds, 1).eval.column("y").as<int64_t>()[1], 1);
}

// Infinity would silently turn the training into NaN.
TEST_F(TrainingDataTest, RejectsNumbersOutOfRange) {
  Tensor x = Tensor::From(std::vector<double>{1, 2, 3, -1e300}, {2, 2}), y = Tensor::From(std::vector<int64_t>{0, 1}, {2});
  const std::string path = folder_ / "wide.npz";
  WriteNpz(path, {{"x", x.view()}, {"y", y.view()}});
  const Error error = ErrorOf([&] { LoadTrainingData({.train = path}, kFeeds, 1); });
  EXPECT_EQ(error.code(), ErrorCode::kData);
  EXPECT_EQ(error.message(), "row 1 (counted from 0) of column 'x' is -1e+300, which does not fit float32");
  const TrainingData stored = LoadTrainingData({.train = path, .on_demand = true, .large_bytes = 1}, kFeeds, 1);
  const std::vector<int64_t> last{1};
  EXPECT_EQ(ErrorOf([&] { Batches(stored.train, last, 1).Get(0); }).message(), error.message());
}

TEST_F(TrainingDataTest, RejectsUnknownFeedsAndSuggestsTheNearest) {
  const std::string path = Write("a.csv", "a,b,c\n1,2,0\n");
  for (const DataOptions& options :
       {DataOptions{.train = path, .columns = {{"yy", "a"}}}, DataOptions{.train = path, .transforms = {{"yy", {"scale 2"}}}}}) {
    const Error error = ErrorOf([&] { LoadTrainingData(options, kFeeds, 1); });
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_NE(error.help().find("did you mean 'y'"), std::string::npos) << error.help();
  }
  const Error missing = ErrorOf([&] { LoadTrainingData({.train = path, .columns = {{"x", "a..b"}}}, kFeeds, 1); });
  EXPECT_EQ(missing.help(), "--map y=COLUMNS");
}

// The numbers of a table have no shape, but an array has one. Inputs may be given as flat rows, targets may not.
TEST_F(TrainingDataTest, TargetsKeepTheirShape) {
  const std::vector<Feed> feeds = {{"x", DType::kFloat32, {4, 2, 2}, 0}, {"y", DType::kFloat32, {4, 2, 2}, 0}};
  const Tensor flat(DType::kFloat32, {3, 4}), square(DType::kFloat32, {3, 2, 2});
  const std::string wrong = folder_ / "wrong.npz", right = folder_ / "right.npz";
  WriteNpz(wrong, {{"x", flat}, {"y", flat}});
  WriteNpz(right, {{"x", flat}, {"y", square}});
  const Error error = ErrorOf([&] { LoadTrainingData({.train = wrong, .targets = {"y"}}, feeds, 1); });
  EXPECT_EQ(error.code(), ErrorCode::kShape);
  EXPECT_NE(error.message().find("'y' has rows of shape [4], but the model expects [2,2]"), std::string::npos) << error.message();
  EXPECT_EQ(LoadTrainingData({.train = right, .targets = {"y"}}, feeds, 1).train.column("x").shape(), (Shape{3, 2, 2}));
  const std::string table = Write("a.csv", "a,b,c,d,e,f,g,h\n1,2,3,4,5,6,7,8\n");
  const DataOptions options{.train = table, .columns = {{"x", "a..d"}, {"y", "e..h"}}, .targets = {"y"}};
  EXPECT_EQ(LoadTrainingData(options, feeds, 1).train.column("y").shape(), (Shape{1, 2, 2}));
}

TEST_F(TrainingDataTest, TransformsAreFittedOnTheTrainingPartAndUsedOnTheRest) {
  const std::string path = Write("a.csv", "a,b,c\n0,10,0\n2,30,1\n100,50,0\n");
  const TrainingData data =
      LoadTrainingData({.train = path, .eval_split = "tail:34%", .transforms = {{"x", {"standardize", "scale 2"}}}}, kFeeds, 1);
  ASSERT_EQ(data.train.rows(), 2);
  EXPECT_EQ(data.train.column("x").as<float>()[0], -2);
  EXPECT_EQ(data.train.column("x").as<float>()[2], 2);
  // The mean of 1 and the deviation of 1 are those of the first two rows.
  EXPECT_EQ(data.eval.column("x").as<float>()[0], 198);
  std::vector<std::string> notes;
  const Dataset again = LoadFeeds(path, {kFeeds[0]}, data.columns, data.fitted, notes);
  EXPECT_EQ(again.column("x").as<float>()[4], 198);
  EXPECT_FALSE(again.has("y"));
}

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

TEST_F(TrainingDataTest, RowsReadOnDemandHaveTheSameBits) {
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
TEST_F(TrainingDataTest, NumbersOfLargeArraysAreCheckedWhenTheyAreRead) {
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
TEST_F(TrainingDataTest, LargeTablesReadLikeSmallOnes) {
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

// Columns that were given by index are those of the training table, wherever they are in another one.
TEST_F(TrainingDataTest, ColumnsByIndexKeepTheirNames) {
  const std::string trained = Write("trained.csv", "a,b,label\n1,2,0\n3,4,1\n"), other = Write("other.csv", "label,b,more,a\n1,6,9,5\n");
  for (const auto& [x, y] : {std::pair("0..1", "-1"), std::pair("0,1", "2"), std::pair("a,1", "label")}) {
    SCOPED_TRACE(std::string(x) + " " + y);
    const TrainingData data = LoadTrainingData({.train = trained, .eval = other, .columns = {{"x", x}, {"y", y}}}, kFeeds, 1);
    ColumnMap used;
    std::map<std::string, std::vector<Transform>> fitted;
    TrainingNames names;
    DataFromJson(DataToJson(data), "", used, fitted, names);
    std::vector<std::string> notes;
    const Dataset loaded = LoadFeeds(other, kFeeds, used, fitted, notes, {}, names);
    for (const Dataset* each : {&data.eval, &loaded}) {
      EXPECT_EQ(each->column("x").as<float>()[0], 5);
      EXPECT_EQ(each->column("x").as<float>()[1], 6);
      EXPECT_EQ(each->column("y").as<int64_t>()[0], 1);
    }
  }
}

// The transforms of a run that was trained on images, applied to an array.
TEST_F(TrainingDataTest, TransformsOfImagesApplyToArrays) {
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

// The channels of Keras models.
TEST_F(TrainingDataTest, NormalizesTheLastDimensionOfImages) {
  const std::string path = folder_ / "last.npz";
  std::vector<float> values(2 * 4 * 5 * 3);
  std::iota(values.begin(), values.end(), 0.0f);
  WriteNpz(path, {{"x", Tensor::From<float>(values, {2, 4, 5, 3})}, {"y", Tensor::From<int64_t>({0, 1}, {2})}});
  const std::vector<Feed> feeds = {{"x", DType::kFloat32, {1, 4, 5, 3}, 0}, kFeeds[1]};
  const TrainingData data = LoadTrainingData({.train = path, .transforms = {{"x", {"normalize 1,2,3 1,2,4"}}}}, feeds, 1);
  const Tensor& x = data.train.column("x");
  for (size_t i = 0; i < values.size(); ++i) {
    const float mean[] = {1, 2, 3}, deviation[] = {1, 2, 4};
    ASSERT_EQ(x.as<float>()[i], (values[i] - mean[i % 3]) / deviation[i % 3]) << i;
  }
}

TEST_F(TrainingDataTest, TokensReadOnDemandHaveTheSameBits) {
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

TEST_F(TrainingDataTest, RejectsTwoSourcesOfEvaluationData) {
  const std::string path = Write("a.csv", "a,b,c\n1,2,0\n3,4,1\n");
  EXPECT_EQ(ErrorOf([&] { LoadTrainingData({.train = path, .eval = path, .eval_split = "50%"}, kFeeds, 1); }).code(), ErrorCode::kConfig);
  EXPECT_EQ(LoadTrainingData({.train = path, .eval = path}, kFeeds, 1).eval.rows(), 2);
}

TEST_F(TrainingDataTest, ErrorsNameTheFile) {
  const std::string wide = Write("wide.csv", "a,b,c,d\n1,2,3,0\n");
  const Error shape = ErrorOf([&] { LoadTrainingData({.train = wide}, kFeeds, 1); });
  EXPECT_EQ(shape.code(), ErrorCode::kData);
  EXPECT_EQ(shape.where(), wide);
  WriteNpz(folder_ / "a.npz", {{"x", Tensor(DType::kFloat32, {3, 2})}});
  const Error array = ErrorOf([&] { LoadTrainingData({.train = folder_ / "a.npz"}, kFeeds, 1); });
  EXPECT_EQ(array.code(), ErrorCode::kData);
  EXPECT_NE(array.help().find("--map y=ARRAY"), std::string::npos);
}

TEST(ShareTest, PercentOrNumber) {
  EXPECT_EQ(ParseShare("20%"), 0.2);
  EXPECT_EQ(ParseShare("0.25"), 0.25);
  for (const char* bad : {"", "%", "20 %", "x", "nan", "20%%"})
    EXPECT_EQ(ErrorOf([&] { ParseShare(bad); }).code(), ErrorCode::kConfig) << bad;
}

}  // namespace
}  // namespace gradloom
