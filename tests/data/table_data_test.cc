// Training data from tables: their separators, headers and columns.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "runtime/data/batches.h"
#include "runtime/data/npz.h"
#include "runtime/data/training_data.h"
#include "tests/base/written_files.h"

namespace gradloom {
namespace {

class TableDataTest : public WrittenFilesTest {};

TEST_F(TableDataTest, LastColumnIsTheDefaultTarget) {
  const std::string path = Write("a.csv", "a,b,c\n1,2,0\n3,4,1\n5,6,2\n");
  const TrainingData guessed = LoadTrainingData({.train = path}, kFeeds, 1);
  EXPECT_EQ(guessed.columns, (ColumnMap{{"x", "a..b"}, {"y", "c"}}));
  EXPECT_EQ(guessed.train.column("x").shape(), (Shape{3, 2}));
  EXPECT_EQ(guessed.train.column("y").as<int64_t>()[2], 2);
  ASSERT_EQ(guessed.notes.size(), 1u);
  const TrainingData said = LoadTrainingData({.train = path, .columns = {{"x", "b..c"}, {"y", "a"}}}, kFeeds, 1);
  EXPECT_EQ(said.train.column("y").as<int64_t>()[2], 5);
  EXPECT_TRUE(said.notes.empty());
}

TEST_F(TableDataTest, TellsWhatAModelIsFedOtherwise) {
  const auto load = [&](const std::string& text, const ColumnMap& columns, const std::vector<std::string>& transforms = {"standardize"}) {
    return LoadTrainingData({.train = Write("a.csv", text), .columns = columns, .transforms = {{"x", transforms}}}, kFeeds, 1);
  };
  const std::string text = "a,b,c\n1,2,0\n3,5,1\n";
  const std::string json = DataToJson(load(text, {{"x", "a..b"}, {"y", "c"}}));
  const auto changes = [&](const TrainingData& data) { return ChangesOfFeeds(json, "", data); };
  // The same columns, however they are named or placed.
  EXPECT_EQ(changes(load(text, {{"x", "0..1"}, {"y", "c"}})), "");
  EXPECT_EQ(changes(load(text, {})), "");
  EXPECT_EQ(changes(load("c,a,b,d\n0,1,2,9\n1,3,5,9\n", {{"x", "a..b"}, {"y", "c"}})), "");
  EXPECT_EQ(changes(load("b,a,c\n2,1,0\n5,3,1\n", {{"x", "b..a"}, {"y", "c"}})), "the columns of 'x', the transforms of 'x'");
  EXPECT_EQ(changes(load("a,c,b\n1,0,2\n3,1,5\n", {{"x", "a,b"}, {"y", "b"}})), "the columns of 'y'");
  // The same transform of other numbers, more of them, and none.
  EXPECT_EQ(changes(load("a,b,c\n1,2,0\n3,6,1\n", {})), "the transforms of 'x'");
  EXPECT_EQ(changes(load(text, {}, {"standardize", "scale 2"})), "the transforms of 'x'");
  EXPECT_EQ(changes(load(text, {}, {})), "the transforms of 'x'");
  EXPECT_EQ(ErrorOf([&] { ChangesOfFeeds("{", "data.json", load(text, {})); }).where(), "data.json");
}

// As many rows may be others, of which some have been trained on.
TEST_F(TableDataTest, TellsWhichRowsAreHeldBack) {
  const std::string path = Write("a.csv", "a,b,c\n0,10,0\n2,30,1\n100,50,0\n7,8,1\n");
  const auto held = [&](const std::string& split, int64_t seed = 1) {
    return LoadTrainingData({.train = path, .eval_split = split}, kFeeds, seed);
  };
  const std::string json = DataToJson(held("tail:25%"));
  EXPECT_EQ(DifferenceOfData(json, "", held("tail:0.26")), "");
  int64_t seed = 0;
  while (held("25%", seed).eval.column("x").as<float>()[0] == 7) ++seed;
  EXPECT_EQ(DifferenceOfData(json, "", held("25%", seed)), "other rows were held back for evaluation than now");
  // Earlier releases did not record it.
  EXPECT_EQ(DifferenceOfData(R"({"columns":{},"transforms":{},"rows":4})", "", held("25%", seed)), "");
  const DataOptions again{.train = path, .eval_split = "tail:25%", .columns = {{"x", "a..b"}, {"y", "c"}}};
  EXPECT_EQ(DifferenceOfData(json, "", LoadEvaluationData(again, kFeeds, 1, {}, held("tail:25%").names)), "");
}

// Each format has its own defaults, also for data that is read later.
TEST_F(TableDataTest, GuessedColumnsAreThoseOfTablesOnly) {
  const std::string table = Write("a.csv", "a,b,c\n1,2,0\n3,4,1\n"), arrays = folder_ / "a.npz";
  const Tensor x = Tensor::From<float>({5, 6}, {1, 2}), y = Tensor::From<int64_t>({1}, {1});
  WriteNpz(arrays, {{"x", x.view()}, {"y", y.view()}});
  for (const bool guessed : {true, false}) {
    const TrainingData data =
        LoadTrainingData({.train = table, .columns = guessed ? ColumnMap() : ColumnMap{{"x", "a..b"}, {"y", "c"}}}, kFeeds, 1);
    ColumnMap columns;
    std::map<std::string, std::vector<Transform>> fitted;
    TrainingNames names;
    DataFromJson(DataToJson(data), "test", columns, fitted, names);
    std::vector<std::string> notes;
    EXPECT_EQ(LoadFeeds(table, kFeeds, columns, fitted, notes, {}, names).column("x").as<float>()[3], 4);
    const auto load_arrays = [&] { return LoadFeeds(arrays, kFeeds, columns, fitted, notes, {}, names).column("x").as<float>()[1]; };
    if (guessed) {
      EXPECT_EQ(load_arrays(), 6);
    } else {
      EXPECT_EQ(ErrorOf([&] { load_arrays(); }).code(), ErrorCode::kData);
    }
  }
}

TEST_F(TableDataTest, GuessesColumnsWithNamesThatNoSelectionCanHave) {
  for (const char* header : {"\"a, m\",b,c", "a,\"b, m\",c", "a,b,\"c, m\"", "a,a,c", "a,c,c"}) {
    const TrainingData data = LoadTrainingData({.train = Write("a.csv", header + std::string("\n1,2,0\n3,4,1\n"))}, kFeeds, 1);
    EXPECT_EQ(data.train.column("x").as<float>()[3], 4) << header;
    EXPECT_EQ(data.train.column("y").as<int64_t>()[1], 1) << header;
  }
}

TEST_F(TableDataTest, FindsTheSeparator) {
  for (const char* text :
       {"a;b;c\n1;2;0\n", "a\tb\tc\n1\t2\t0\n", "\xEF\xBB\xBF\"a,x\";\"b\ny\";c\n1;2;0\n", "\"a;x\",b,c\n1,2,0\n", "1;2;0"}) {
    const TrainingData data = LoadTrainingData({.train = Write("a.csv", text)}, kFeeds, 1);
    EXPECT_EQ(data.train.column("x").as<float>()[1], 2) << text;
  }
}

TEST_F(TableDataTest, ReportsOtherSeparatorsAndEncodings) {
  const auto refused = [&](const std::string& text, const std::string& name = "a.csv") {
    const Error error = ErrorOf([&] { LoadTrainingData({.train = Write(name, text)}, kFeeds, 1); });
    return error.message() + " " + error.help();
  };
  EXPECT_NE(refused("a,b,c\n1,2,0\n", "a.tsv").find("commas"), std::string::npos);
  EXPECT_NE(refused("a;b;c\n1;2;0\n", "a.tsv").find("semicolons"), std::string::npos);
  EXPECT_NE(refused("a;b;c\n1,5;2;0\n").find("decimal point"), std::string::npos);
  // Single carriage returns are valid line ends.
  EXPECT_EQ(LoadTrainingData({.train = Write("r.csv", "a,b,c\r1,2,0\r3,4,1\r")}, kFeeds, 1).train.rows(), 2);
  EXPECT_NE(refused(std::string("\xFF\xFE\x31\0", 4)).find("UTF-16"), std::string::npos);
  EXPECT_EQ(ErrorOf([&] { LoadTrainingData({.train = Write("e.csv", "")}, kFeeds, 1); }).message(), "the table has no rows");
}

// A range selects the columns that lay between its ends in the training data.
TEST_F(TableDataTest, OtherTablesMayReorderColumns) {
  const std::vector<Feed> feeds = {{"x", DType::kFloat32, {4, 3}, 0}, {"y", DType::kInt64, {4}, 0}};
  const std::string path = Write("a.csv", "a,b,c,y\n1,2,3,0\n"), other = Write("b.csv", "y,a,c,more,b\n1,1,3,9,2\n");
  const TrainingData data = LoadTrainingData({.train = path, .eval = other}, feeds, 1);
  EXPECT_EQ(data.columns, (ColumnMap{{"x", "a..c"}, {"y", "y"}}));
  ColumnMap columns;
  std::map<std::string, std::vector<Transform>> fitted;
  TrainingNames names;
  DataFromJson(DataToJson(data), "test", columns, fitted, names);
  std::vector<std::string> notes;
  const Dataset later = LoadFeeds(Write("c.csv", "c,b,a\n3,2,1\n"), {feeds[0]}, columns, fitted, notes, {}, names);
  for (const Dataset* read : {&data.eval, &later}) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(read->column("x").as<float>()[static_cast<size_t>(i)], static_cast<float>(i + 1));
  }
  EXPECT_EQ(data.eval.column("y").as<int64_t>()[0], 1);
  const Error error = ErrorOf([&] { LoadFeeds(Write("d.csv", "c,a\n3,1\n"), {feeds[0]}, columns, fitted, notes, {}, names); });
  EXPECT_EQ(error.message(), "no column 'b'");
}

// Also by names that have a comma, look like an index or a range, or begin with a quote.
TEST_F(TableDataTest, OtherTablesMayReorderColumnsOfAllNames) {
  const std::vector<Feed> feeds = {{"x", DType::kFloat32, {4, 3}, 0}, {"y", DType::kInt64, {4}, 0}};
  for (const std::string name : {"size, cm", "0", "1", "-1", "b..c", "\"\"a\"\"", "5\"\" pipe", ""}) {
    const std::string path = Write("a.csv", "\"" + name + "\",b,c,y\n1,2,3,0\n");
    for (const std::string selection : {"", "0..2", "-4,b,c", "0..b,-2"}) {
      if (!selection.empty() && name == "0") continue;  // selects a name there
      DataOptions options{.train = path, .eval = Write("b.csv", "y,c,\"" + name + "\",more,b\n1,3,1,9,2\n")};
      if (!selection.empty()) options.columns = {{"x", selection}, {"y", "y"}};
      const TrainingData data = LoadTrainingData(options, feeds, 1);
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(data.eval.column("x").as<float>()[static_cast<size_t>(i)], static_cast<float>(i + 1)) << name << " " << selection;
      }
      // Without the column, no other one takes its place.
      options.eval = Write("c.csv", "y,c,k,more,b\n1,3,1,9,2\n");
      EXPECT_EQ(ErrorOf([&] { LoadTrainingData(options, feeds, 1); }).code(), ErrorCode::kData) << name << " " << selection;
    }
  }
  // Two columns of one name cannot be told apart in another table.
  const DataOptions twice{
      .train = Write("t.csv", "a,a,c,y\n1,2,3,0\n"), .eval = Write("u.csv", "y,c,a\n0,3,1\n"), .columns = {{"x", "0..2"}, {"y", "y"}}};
  EXPECT_NE(ErrorOf([&] { LoadTrainingData(twice, feeds, 1); }).message().find("two columns of the training data are named 'a'"),
            std::string::npos);
  // A selection of one column.
  const std::vector<Feed> one = {{"x", DType::kFloat32, {4}, 0}, {"y", DType::kInt64, {4}, 0}};
  for (const std::string selection : {"0", "0..0", "\"a, b\""}) {
    const DataOptions options{.train = Write("d.csv", "\"a, b\",y\n1,0\n"),
                              .eval = Write("e.csv", "y,\"a, b\"\n0,1\n"),
                              .columns = {{"x", selection}, {"y", "y"}}};
    EXPECT_EQ(LoadTrainingData(options, one, 1).eval.column("x").as<float>()[0], 1) << selection;
  }
}

// In all ways in which tables mark a missing number, in memory and on demand; other data is filled with what was measured on the training
// data, before or after it was written down.
TEST_F(TableDataTest, FillsInMissingNumbers) {
  const std::string path = Write("a.csv", "a,b,c\n1,,0\n?,4,1\n3,NA,2\n5, null ,0\n"), other = Write("b.csv", "a,b,c\n,8,1\nnan,N/A,0\n");
  const auto rows = [](const Dataset& data) {
    std::vector<int64_t> order(static_cast<size_t>(data.rows()));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
    Batches batches(data, order, data.rows());
    const auto batch = batches.Get(0);
    const auto x = batch.at("x").as<float>();
    return std::vector<float>(x.begin(), x.end());
  };
  for (const bool on_demand : {false, true}) {
    const DataOptions options{
        .train = path, .eval = other, .transforms = {{"x", {"fill mean", "scale 2"}}}, .on_demand = on_demand, .large_bytes = 1};
    const TrainingData data = LoadTrainingData(options, kFeeds, 1);
    EXPECT_EQ(rows(data.train), (std::vector<float>{2, 8, 6, 8, 6, 8, 10, 8}));
    EXPECT_EQ(rows(data.eval), (std::vector<float>{6, 16, 6, 8}));
    for (const std::string& note : data.notes) EXPECT_EQ(note.find("NaN"), std::string::npos) << note;
    ColumnMap columns;
    std::map<std::string, std::vector<Transform>> fitted;
    TrainingNames names;
    DataFromJson(DataToJson(data), "test", columns, fitted, names);
    std::vector<std::string> notes;
    EXPECT_EQ(rows(LoadFeeds(other, kFeeds, columns, fitted, notes, {.on_demand = on_demand}, names)), (std::vector<float>{6, 16, 6, 8}));
    EXPECT_TRUE(notes.empty()) << notes.front();
  }
  // Without a transform it is an error, which names the remedy; infinity is not a missing number.
  const Error error = ErrorOf([&] { LoadTrainingData({.train = path}, kFeeds, 1); });
  EXPECT_EQ(error.code(), ErrorCode::kData);
  EXPECT_EQ(error.where(), path + ":2:2");
  EXPECT_NE(error.help().find("fill mean"), std::string::npos);
  const TrainingData infinite =
      LoadTrainingData({.train = Write("c.csv", "a,b,c\n1,inf,0\n2,,1\n"), .transforms = {{"x", {"fill 0"}}}}, kFeeds, 1);
  EXPECT_EQ(infinite.notes.back(), "warning 1 value of column 'x' is NaN or infinite, at " + (folder_ / "c.csv") + ":2:2");
  // Classes are not filled in.
  EXPECT_EQ(ErrorOf([&] {
              LoadTrainingData({.train = Write("d.csv", "a,b,c\n1,2,\n"), .transforms = {{"y", {"fill 0"}}}}, kFeeds, 1);
            }).code(),
            ErrorCode::kData);
}

// What is recorded for later can be read again.
TEST_F(TableDataTest, TransformsWithNumbersThatAreNotFiniteAreRefused) {
  for (const char* text : {"scale 1e300", "normalize 0 1e-300", "fill 1e300", "standardize"}) {
    // The deviation of the second column is as small as floating-point numbers get.
    const std::string path = Write("a.csv", "a,b,c\n1,0,0\n2,1e-45,1\n3,0,1\n");
    const TrainingData data = LoadTrainingData({.train = path, .transforms = {{"x", {text}}}}, kFeeds, 1);
    const Error error = ErrorOf([&] { DataToJson(data); });
    EXPECT_EQ(error.code(), ErrorCode::kConfig) << text;
    EXPECT_EQ(error.message(), "a transform of 'x' needs a number that is too large for float32") << text;
  }
}

TEST_F(TableDataTest, NumbersForFloat64KeepTheirBits) {
  std::vector<Feed> feeds = kFeeds;
  feeds[0].dtype = DType::kFloat64;
  const std::string path = Write("a.csv", "a,b,c\n0.1,20000000001,0\n3.3,1e300,1\n");
  for (const bool on_demand : {false, true}) {
    const TrainingData data = LoadTrainingData({.train = path, .on_demand = on_demand, .large_bytes = 1}, feeds, 1);
    const std::vector<int64_t> order{0, 1};
    Batches batches(data.train, order, 2);
    const auto batch = batches.Get(0);
    const auto x = batch.at("x").as<double>();
    EXPECT_EQ(std::vector<double>(x.begin(), x.end()), (std::vector<double>{0.1, 20000000001, 3.3, 1e300}));
  }
}

// A table that pandas wrote without names of its own for the columns.
TEST_F(TableDataTest, WarnsOfAFirstLineThatNumbersTheColumns) {
  const auto warns = [&](const std::string& text) {
    const std::vector<std::string> notes = LoadTrainingData({.train = Write("numbered.csv", text)}, kFeeds, 1).notes;
    return std::any_of(notes.begin(), notes.end(), [](const std::string& note) { return note.find("header=False") != std::string::npos; });
  };
  EXPECT_TRUE(warns("0,1,2\n3,4,0\n5,6,1\n"));
  EXPECT_FALSE(warns("0,1,3\n3,4,0\n5,6,1\n"));
  EXPECT_FALSE(warns("a,b,c\n0,1,2\n5,6,1\n"));
}

TEST_F(TableDataTest, WarnsOfAHeaderThatMayBeARow) {
  const auto warns = [&](const std::string& text) {
    const DataOptions options{.train = Write("rows.csv", text), .columns = {{"x", "0,2"}, {"y", "-1"}}};
    const std::vector<std::string> notes = LoadTrainingData(options, kFeeds, 1).notes;
    return std::any_of(notes.begin(), notes.end(),
                       [](const std::string& note) { return note.find("names of the columns") != std::string::npos; });
  };
  EXPECT_TRUE(warns("5,a,7,b,c,d,12\n6,e,8,f,g,h,1\n"));
  EXPECT_FALSE(warns("5,a,7,b,c,d,12\n6,e,8,f,c,h,1\n"));
  EXPECT_FALSE(warns("id,a,7,b,c,d,y\n6,e,8,f,c,h,1\n"));
}

}  // namespace
}  // namespace gradloom
