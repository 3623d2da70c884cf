#include "runtime/session/training_data.h"

#include <gtest/gtest.h>

#include "runtime/session/npz.h"
#include "tests/session/temporary_folder.h"

namespace gradloom {
namespace {

const std::vector<Feed> kFeeds = {{"x", DType::kFloat32, {4, 2}, 0}, {"y", DType::kInt64, {4}, 0}};

class TrainingDataTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    WriteQuickly(folder_ / name, text);
    return folder_ / name;
  }

  TemporaryFolder folder_;
};

TEST_F(TrainingDataTest, LastColumnIsTheTargetUnlessSaid) {
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

TEST_F(TrainingDataTest, NamesThatAreNoFeedAreRefusedWithTheNearest) {
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

// The numbers of a table have no shape, an array has one; inputs may come as flat rows, targets not.
TEST_F(TrainingDataTest, TargetsHaveTheShapeOfTheirRows) {
  const std::vector<Feed> feeds = {{"x", DType::kFloat32, {4, 2, 2}, 0}, {"y", DType::kFloat32, {4, 2, 2}, 0}};
  const Tensor flat(DType::kFloat32, {3, 4}), square(DType::kFloat32, {3, 2, 2});
  const std::string wrong = folder_ / "wrong.npz", right = folder_ / "right.npz";
  WriteNpz(wrong, {{"x", flat}, {"y", flat}});
  WriteNpz(right, {{"x", flat}, {"y", square}});
  const Error error = ErrorOf([&] { LoadTrainingData({.train = wrong, .targets = {"y"}}, feeds, 1); });
  EXPECT_EQ(error.code(), ErrorCode::kShape);
  EXPECT_NE(error.message().find("'y' has rows of shape [4], the model wants [2,2]"), std::string::npos) << error.message();
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
  // Mean 1 and deviation 1 are those of the two rows before.
  EXPECT_EQ(data.eval.column("x").as<float>()[0], 198);
  std::vector<std::string> notes;
  const Dataset again = LoadFeeds(path, {kFeeds[0]}, data.columns, data.fitted, notes);
  EXPECT_EQ(again.column("x").as<float>()[4], 198);
  EXPECT_FALSE(again.has("y"));
}

TEST_F(TrainingDataTest, TwoSourcesOfEvaluationDataAreTooMany) {
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
