#include "runtime/data/training_data.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "runtime/data/batches.h"
#include "runtime/data/npz.h"
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

// In memory at once, of large arrays when a row is read, in the same words.
TEST_F(TrainingDataTest, IndicesSelectRowsOfTheWeight) {
  const Tensor x(DType::kFloat32, {3, 2});
  const std::string path = folder_ / "ids.npz";
  const std::vector<Feed> feeds = {{"x", DType::kFloat32, {4, 2}, 0}, {"ids", DType::kInt64, {4, 2}, 0, 0, 50}};
  const auto load = [&](std::vector<int64_t> ids, bool on_demand) {
    WriteNpz(path, {{"x", x}, {"ids", Tensor::From(ids, {3, 2})}});
    return LoadTrainingData({.train = path, .on_demand = on_demand, .large_bytes = 1}, feeds, 1);
  };
  const std::string says = "row 1 (counted from 0) has 50 in 'ids'; the model has a weight of 50 rows for it: 0 to 49";
  const Error at_once = ErrorOf([&] { load({0, 49, 1, 50, 2, 3}, false); });
  EXPECT_EQ(at_once.code(), ErrorCode::kData);
  EXPECT_EQ(at_once.message(), says);
  EXPECT_EQ(at_once.where(), path);
  const TrainingData stays = load({0, 49, 1, 50, 2, 3}, true);
  ASSERT_TRUE(stays.train.is_lazy("ids"));
  const std::vector<int64_t> order{0, 1, 2};
  EXPECT_EQ(ErrorOf([&] { Batches(stays.train, order, 3).Get(0); }).message(), says);
  EXPECT_EQ(ErrorOf([&] { load({0, 0, 0, 0, 0, -51}, false); }).code(), ErrorCode::kData);
  // ONNX counts them from the end, which is hardly meant.
  const TrainingData negative = load({0, 49, 1, -50, 2, 3}, false);
  ASSERT_EQ(negative.notes.size(), 1u);
  EXPECT_EQ(
      negative.notes[0],
      "warning 'ids' has -50 in row 1, which selects row 0 of a weight: ONNX counts negative numbers from the end (PyTorch's Embedding "
      "refuses them)");
  EXPECT_TRUE(load({0, 49, 1, 2, 3, 4}, false).notes.empty());
}

TEST_F(TrainingDataTest, DoubtsTargetsThatTheirLossIsNotMeantFor) {
  const std::string path = folder_ / "t.npz";
  const std::vector<Feed> feeds = {{"x", DType::kFloat32, {4, 2}, 0}, {"t", DType::kFloat32, {4, 1}, 0}};
  const auto notes = [&](std::vector<float> t, const std::string& loss, const std::vector<std::string>& transforms = {}) {
    WriteNpz(path, {{"x", Tensor(DType::kFloat32, {2, 2})}, {"t", Tensor::From(t, {2, 1})}});
    DataOptions options{.train = path, .domains = {{"t", *DomainOf({.type = loss})}}};
    if (!transforms.empty()) options.transforms["t"] = transforms;
    return LoadTrainingData(options, feeds, 1).notes;
  };
  const std::vector<std::string> bce = notes({0.5, 5}, "bce");
  ASSERT_EQ(bce.size(), 1u);
  EXPECT_EQ(bce[0].find("warning 't' has 5, but bce is meant for targets between 0 and 1: "), 0u) << bce[0];
  // What the loss gets counts.
  EXPECT_TRUE(notes({0.5, 5}, "bce", {"scale 1/5"}).empty());
  EXPECT_EQ(notes({0.5, 1}, "bce", {"scale 2"}).size(), 1u);
  EXPECT_EQ(notes({1, 0}, "hinge").size(), 1u);
  EXPECT_TRUE(notes({1, -1}, "hinge").empty());
  EXPECT_EQ(notes({1, -2}, "hinge").size(), 1u);
  EXPECT_TRUE(notes({1e9, 0}, "poisson_nll").empty());
  EXPECT_FALSE(DomainOf({.type = "mse"}));
  EXPECT_FALSE(DomainOf({.type = "cross_entropy", .classes = true}));
}

TEST_F(TrainingDataTest, TransformsSayWhatTheyCannotDo) {
  const std::string table = Write("a.csv", "a,b,c\n1,2,0\n3,4,1\n");
  const auto refused = [&](const std::string& feed, const std::string& transform) {
    const Error error = ErrorOf([&] { LoadTrainingData({.train = table, .transforms = {{feed, {transform}}}}, kFeeds, 1); });
    EXPECT_EQ(error.where(), "--transform") << error.message();
    EXPECT_NE(error.help(), "") << error.message();
    return error.message();
  };
  EXPECT_EQ(refused("y", "scale 2"), "'y': a transform needs float32 values, but the model takes int64 there");
  EXPECT_EQ(refused("x", "random_flip"), "the transform 'random_flip' is for images, but 'x' is read from an array or a table");
  EXPECT_EQ(refused("x", "normalize 1,2,3 1,1,1"),
            "the transform 'normalize 1,2,3 1,1,1' has 3 numbers in a list, but rows of shape [2] have 2 channels");
  EXPECT_EQ(refused("x", "normalize 1 0"), "the transform 'normalize 1 0' divides by 0");
  EXPECT_EQ(refused("x", "normalize 1"), "the transform 'normalize 1' needs a mean and a standard deviation");
  EXPECT_EQ(refused("x", "scale 1/0"), "the transform 'scale 1/0' divides by 0");
  EXPECT_EQ(refused("x", "scale big"), "the transform 'scale big' has 'big' where a number belongs");
}

TEST_F(TrainingDataTest, RandomDataHasALimit) {
  const Error error = ErrorOf([&] { LoadTrainingData({.train = "random:40000000"}, kFeeds, 1); });
  EXPECT_EQ(error.message(), "40000000 samples are too many random ones: at most 16777216 can be made");
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
