// Tables whose classes have names instead of numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "runtime/data/batches.h"
#include "runtime/data/training_data.h"
#include "tests/base/written_files.h"

namespace gradloom {
namespace {

class NamedClassesTest : public WrittenFilesTest {
 protected:
  TrainingData Load(const std::string& train, const std::string& eval = "", bool on_demand = false) {
    return LoadTrainingData({.train = train, .eval = eval, .classes = {{"y", {3, -100}}}, .on_demand = on_demand, .large_bytes = 1}, kFeeds,
                            1);
  }

  // Expects E-DATA at this place of the file (":line:column").
  std::string Refused(const std::string& path, const std::string& place, const std::string& train = "") {
    const Error error = ErrorOf([&] { train.empty() ? Load(path) : Load(train, path); });
    EXPECT_EQ(error.code(), ErrorCode::kData) << error.Describe();
    EXPECT_EQ(error.where(), path + place);
    return error.message();
  }

  static std::vector<int64_t> Labels(const Dataset& data) {
    std::vector<int64_t> rows(static_cast<size_t>(data.rows())), labels;
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
    Batches batches(data, rows, 1);
    for (int64_t i = 0; i < data.rows(); ++i) labels.push_back(batches.Get(i).at("y").as<int64_t>()[0]);
    return labels;
  }
};

TEST_F(NamedClassesTest, AreNumberedInTheOrderOfTheirNames) {
  const std::string train = Write("a.csv", "p,q,kind\n1,2,virginica\n3,4, setosa\n5,6,-100\n7,8,versicolor\n1,1,setosa\n");
  for (const bool on_demand : {false, true}) {
    const TrainingData data = Load(train, Write("b.csv", "p,q,kind\n1,2,versicolor\n3,4,-100\n"), on_demand);
    EXPECT_EQ(Labels(data.train), (std::vector<int64_t>{2, 0, -100, 1, 0}));
    EXPECT_EQ(Labels(data.eval), (std::vector<int64_t>{1, -100}));
    EXPECT_EQ(data.names.labels.at("y"), (std::vector<std::string>{"setosa", "versicolor", "virginica"}));
    EXPECT_NE(std::find(data.notes.begin(), data.notes.end(), "classes y: setosa, versicolor, virginica"), data.notes.end());
  }
  // Without a header, from columns by index, and in Latin-1.
  EXPECT_EQ(Labels(Load(Write("c.csv", "1,2,b\xE9\n3,4,a\n")).train), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(Labels(Load(Write("d.tsv", "1\t2\t\"b\tc\"\n3\t4\ta\n5\t6\t-100\n")).train), (std::vector<int64_t>{1, 0, -100}));
}

// The target of a binary cross entropy is 0 or 1 in floating point.
TEST_F(NamedClassesTest, MayBeTwoInFloatingPoint) {
  const std::vector<Feed> feeds = {kFeeds[0], {"y", DType::kFloat32, {4, 1}, 0}};
  const auto load = [&](const std::string& text) {
    return LoadTrainingData({.train = Write("a.csv", text), .classes = {{"y", {}}}}, feeds, 1);
  };
  const Tensor labels = load("a,b,c\n1,2,no\n1,2,yes\n1,2,no\n").train.column("y");
  EXPECT_EQ(labels.shape(), (Shape{3, 1}));
  EXPECT_EQ((std::vector<float>(labels.as<float>().begin(), labels.as<float>().end())), (std::vector<float>{0, 1, 0}));
  EXPECT_EQ(load("a,b,c\n1,2,0.25\n").train.column("y").as<float>()[0], 0.25F);
  EXPECT_EQ(ErrorOf([&] { load("a,b,c\n1,2,no\n1,2,yes\n1,2,maybe\n"); }).message(),
            "'maybe' is one name more than the model has classes, 2");
}

TEST_F(NamedClassesTest, OfSeveralFilesAreNumberedTogether) {
  Write("1.csv", "a,b,c\n1,2,cat\n");
  Write("2.csv", "a,b,c\n1,2,ant\n3,4,bee\n");
  EXPECT_EQ(Labels(Load(folder_ / "?.csv").train), (std::vector<int64_t>{2, 0, 1}));
  const std::string third = Write("3.csv", "a,b,c\n1,2,ant\n3,4,dog\n");
  const Error error = ErrorOf([&] { Load(folder_ / "?.csv"); });
  EXPECT_EQ(error.where(), third + ":3:3");
}

TEST_F(NamedClassesTest, AreThoseOfTheTrainingDataInOtherData) {
  const TrainingData data = Load(Write("a.csv", "a,b,c\n1,2,ant\n3,4,cat\n"));
  ColumnMap columns;
  std::map<std::string, std::vector<Transform>> fitted;
  TrainingNames names;
  DataFromJson(DataToJson(data), "", columns, fitted, names);
  EXPECT_EQ(names.labels, data.names.labels);
  std::vector<std::string> notes;
  const auto load = [&](const std::string& text, const TrainingNames& known) {
    return LoadFeeds(Write("b.csv", text), kFeeds, columns, fitted, notes, {.classes = {{"y", {3, -100}}}}, known);
  };
  EXPECT_EQ(Labels(load("a,b,c\n1,2,cat\n", names)), (std::vector<int64_t>{1}));
  // A name that was not trained on, and numbers in place of names.
  for (const char* text : {"a,b,c\n1,2,bee\n", "a,b,c\n1,2,0\n"}) {
    const Error error = ErrorOf([&] { load(text, names); });
    EXPECT_EQ(error.code(), ErrorCode::kData);
    EXPECT_NE(error.message().find("is not a class of the training data"), std::string::npos) << error.message();
    EXPECT_EQ(error.help(), "its classes are ant, cat");
  }
  columns["y"] = "b..c";
  EXPECT_EQ(ErrorOf([&] { load("a,b,c\n1,2,cat\n", names); }).message(), "'b..c' is more than one column");
  columns["y"] = "c";
  // Of data whose classes had numbers nothing is known about names.
  EXPECT_EQ(ErrorOf([&] { load("a,b,c\n1,2,cat\n", {}); }).message(), "'cat' is not a number");
  EXPECT_EQ(ErrorOf([&] { DataFromJson(R"({"columns":{},"transforms":{},"labels":{"y":["b","a"]}})", "", columns, fitted, names); }).code(),
            ErrorCode::kConfig);
}

// What the training data defined stays as it was recorded, whatever the files would define by now.
TEST_F(NamedClassesTest, EvaluationDataIsReadAsItWasRecorded) {
  const std::string rows = "a,b,c\n1,2,cat\n2,2,bee\n3,4,cat\n4,5,bee\n";
  DataOptions options{
      .train = Write("a.csv", rows), .eval_split = "tail:25%", .transforms = {{"x", {"standardize"}}}, .classes = {{"y", {3, -100}}}};
  const TrainingData data = LoadTrainingData(options, kFeeds, 1);
  const std::string json = DataToJson(data);
  TrainingNames names;
  std::map<std::string, std::vector<Transform>> fitted;
  DataFromJson(json, "", options.columns, fitted, names);
  const auto again = [&] { return LoadEvaluationData(options, kFeeds, 1, fitted, names); };
  const auto same = [](const Dataset& read, const Dataset& before) {
    const Tensor x = read.column("x").Clone(), y = read.column("y").Clone();
    EXPECT_TRUE(std::ranges::equal(x.as<float>(), before.column("x").as<float>()));
    EXPECT_TRUE(std::ranges::equal(y.as<int64_t>(), before.column("y").as<int64_t>()));
  };
  same(again().eval, data.eval);
  EXPECT_EQ(DifferenceOfData(json, "", again()), "");
  // As many rows, of which other numbers would be measured now.
  Write("a.csv", "a,b,c\n1,2,cat\n2,2,bee\n900,4,cat\n4,5,bee\n");
  same(again().eval, data.eval);
  Write("a.csv", rows + "9,9,cat\n");
  EXPECT_EQ(DifferenceOfData(json, "", again()), "the data had 4 rows, now it has 5");
  // What older releases recorded.
  EXPECT_EQ(DifferenceOfData(R"({"columns":{},"transforms":{},"labels":{"y":["bee","cat"]}})", "", again()), "");
  Write("a.csv", rows + "9,9,ant\n");
  EXPECT_EQ(ErrorOf([&] { again(); }).message(), "'ant' is not a class of the training data");
  // The files to train on are not needed for evaluation data in files of its own.
  options.eval = Write("b.csv", "a,b,c\n4,5,bee\n");
  options.train = folder_ / "none.csv";
  same(again().eval, data.eval);
  for (const bool held_back : {false, true}) {
    options = {.train = "random:8", .eval = held_back ? "" : "random:2", .eval_split = held_back ? "25%" : ""};
    options.transforms = {{"x", {"standardize"}}};
    const TrainingData random = LoadTrainingData(options, kFeeds, 7);
    same(LoadEvaluationData(options, kFeeds, 7, random.fitted, random.names).eval, random.eval);
  }
}

TEST_F(NamedClassesTest, RejectsMixturesAndSurplusNames) {
  EXPECT_EQ(Refused(Write("a.csv", "a,b,c\n1,2,x\n1,2,y\n1,2,x\n1,2,z\n1,2,Z\n"), ":6:3"),
            "'Z' is one name more than the model has classes, 3");
  EXPECT_EQ(Refused(Write("a.csv", "a,b,c\n1,2,x\n1,2,7\n"), ":3:3"), "expected the name of a class, got '7'");
  EXPECT_EQ(Refused(Write("a.csv", "a,b,c\n1,2,x\n1,2,\n"), ":3:3"), "expected the name of a class, got ''");
  EXPECT_EQ(Refused(Write("a.csv", "a,b,c\n1,2,0\n1,2,x\n"), ":3:3"), "'x' is not a number");
  // A header that is read as data, as most of it is numbers.
  EXPECT_EQ(Refused(Write("a.csv", "1990,1991,kind\n1,2,0\n1,2,1\n"), ":1:3"), "'kind' is not a number");
  const std::string numbers = Write("numbers.csv", "a,b,c\n1,2,0\n"), names = Write("names.csv", "a,b,c\n1,2,x\n");
  EXPECT_EQ(Refused(names, ":2:3", numbers), "'x' is not a number");
  EXPECT_EQ(Refused(numbers, ":2:3", names), "'0' is not a class of the training data");
}

TEST_F(NamedClassesTest, DoNotHideThatNothingIsMapped) {
  const std::string path = Write("a.csv", "a,b,c\n1,2,ant\n");
  const Error error = ErrorOf([&] {
    LoadTrainingData({.train = path, .columns = {{"x", "a..b"}}, .classes = {{"y", {3, -100}}}}, kFeeds, 1);
  });
  EXPECT_EQ(error.code(), ErrorCode::kConfig);
  EXPECT_EQ(error.message(), "no columns are mapped to 'y'");
}

// An input of integers, as an embedding reads it, may have names, too; a name that is missing is one as well.
TEST_F(NamedClassesTest, AreCategoriesOfInputs) {
  const std::vector<Feed> feeds = {{"color", DType::kInt64, {4, 1}, 0},
                                   {"size", DType::kInt64, {4}, 0},
                                   {"x", DType::kFloat32, {4, 1}, 0},
                                   {"y", DType::kFloat32, {4, 1}, 0}};
  const ColumnMap columns = {{"color", "color"}, {"size", "size"}, {"x", "x"}, {"y", "y"}};
  const std::string train = Write("a.csv", "color,size,x,y\n,3,1,2\nred,1,1,2\nblue,0,1,2\nred,1,1,2\n");
  const auto column = [](const Dataset& data, const char* name) {
    const Tensor& values = data.column(name);
    return std::vector<int64_t>(values.as<int64_t>().begin(), values.as<int64_t>().end());
  };
  const TrainingData data = LoadTrainingData(
      {.train = train, .eval = Write("b.csv", "color,size,x,y\nblue,5,1,2\n,0,1,2\n"), .columns = columns, .targets = {"y"}}, feeds, 1);
  EXPECT_EQ(column(data.train, "color"), (std::vector<int64_t>{0, 2, 1, 2}));
  EXPECT_EQ(column(data.train, "size"), (std::vector<int64_t>{3, 1, 0, 1}));
  EXPECT_EQ(column(data.eval, "color"), (std::vector<int64_t>{1, 0}));
  EXPECT_NE(std::find(data.notes.begin(), data.notes.end(), "classes color: '', blue, red"), data.notes.end());
  ColumnMap used;
  std::map<std::string, std::vector<Transform>> fitted;
  TrainingNames names;
  DataFromJson(DataToJson(data), "", used, fitted, names);
  std::vector<std::string> notes;
  const std::vector<Feed> inputs(feeds.begin(), feeds.end() - 1);
  const auto load = [&](const std::string& text) { return LoadFeeds(Write("c.csv", text), inputs, used, fitted, notes, {}, names); };
  EXPECT_EQ(column(load("x,size,color\n1,2,red\n"), "color"), (std::vector<int64_t>{2}));
  const Error error = ErrorOf([&] { load("x,size,color\n1,2,green\n"); });
  EXPECT_EQ(error.code(), ErrorCode::kData);
  EXPECT_EQ(error.where(), (folder_ / "c.csv") + ":2:3");
  EXPECT_EQ(error.help(), "its classes are '', blue, red");
  // Among numbers nothing may be missing, and among names there is no number.
  for (const char* rows : {"1,2,3,4\n,1,1,2\n", "red,2,3,4\n7,1,1,2\n"}) {
    const Error mixed = ErrorOf([&] {
      LoadTrainingData({.train = Write("d.csv", std::string("color,size,x,y\n") + rows), .columns = columns, .targets = {"y"}}, feeds, 1);
    });
    EXPECT_EQ(mixed.code(), ErrorCode::kData);
    EXPECT_EQ(mixed.where(), (folder_ / "d.csv") + ":3:1");
  }
}

// Each column of an input of several integers has categories of its own, or numbers.
TEST_F(NamedClassesTest, AreCategoriesOfEachColumnOfAnInput) {
  const std::vector<Feed> feeds = {{"x", DType::kInt64, {4, 3}, 0}, {"y", DType::kFloat32, {4, 1}, 0}};
  const ColumnMap columns = {{"x", "color..size"}, {"y", "y"}};
  const auto elements = [](const Dataset& data) {
    const Tensor& values = data.column("x");
    return std::vector<int64_t>(values.as<int64_t>().begin(), values.as<int64_t>().end());
  };
  for (const bool on_demand : {false, true}) {
    const TrainingData data = LoadTrainingData({.train = Write("a.csv", "color,day,size,y\nred,3,S,2\nblue,1,L,2\nred,0,,1\n"),
                                                .eval = Write("b.csv", "color,day,size,y\nblue,5,S,2\n"),
                                                .columns = columns,
                                                .targets = {"y"},
                                                .on_demand = on_demand},
                                               feeds, 1);
    EXPECT_EQ(elements(data.train), (std::vector<int64_t>{1, 3, 2, 0, 1, 1, 1, 0, 0}));
    EXPECT_EQ(elements(data.eval), (std::vector<int64_t>{0, 5, 2}));
    EXPECT_NE(std::find(data.notes.begin(), data.notes.end(), "classes x[color]: blue, red"), data.notes.end());
    ColumnMap used;
    std::map<std::string, std::vector<Transform>> fitted;
    TrainingNames names;
    DataFromJson(DataToJson(data), "", used, fitted, names);
    std::vector<std::string> notes;
    const auto load = [&](const std::string& text) {
      return LoadFeeds(Write("c.csv", text), {feeds[0]}, used, fitted, notes, {.on_demand = on_demand}, names);
    };
    // In another order, with a column between them.
    EXPECT_EQ(elements(load("size,other,day,color\nL,9,7,red\n")), (std::vector<int64_t>{1, 7, 1}));
    const Error error = ErrorOf([&] { load("size,other,day,color\nL,9,7,green\n"); });
    EXPECT_EQ(error.where(), (folder_ / "c.csv") + ":2:4");
    EXPECT_EQ(error.help(), "its classes are blue, red");
  }
  // Without a header.
  const TrainingData bare =
      LoadTrainingData({.train = Write("d.csv", "a,1,x,2\nb,2,y,3\n"), .columns = {{"x", "0..2"}, {"y", "3"}}, .targets = {"y"}}, feeds, 1);
  EXPECT_EQ(elements(bare.train), (std::vector<int64_t>{0, 1, 0, 1, 2, 1}));
}

TEST_F(NamedClassesTest, ReportsChangedNames) {
  const TrainingData data = Load(Write("a.csv", "a,b,c\n1,2,ant\n3,4,cat\n"));
  const std::string json = DataToJson(data);
  EXPECT_EQ(DifferenceOfData(json, "", data), "");
  EXPECT_EQ(DifferenceOfData(json, "", Load(Write("b.csv", "a,b,c\n1,2,ant\n3,4,bee\n"))),
            "the classes of 'y' were ant, cat; now they are ant, bee");
  EXPECT_EQ(DifferenceOfData(json, "", Load(Write("c.csv", "a,b,c\n1,2,0\n3,4,1\n"))),
            "the classes of 'y' were ant, cat; now they are numbers");
}

}  // namespace
}  // namespace gradloom
