#include "runtime/data/dataset.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "runtime/data/batches.h"
#include "tests/base/temporary_folder.h"

namespace gradloom {
namespace {

Tensor Counting(int64_t rows, int64_t width) {
  std::vector<float> values(static_cast<size_t>(rows * width));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::From(values, Shape{rows, width});
}

TEST(DatasetTest, RowCountsMustAgree) {
  const Error error = ErrorOf([] { Dataset({{"x", Counting(3, 2)}, {"label", Counting(4, 1)}}); });
  EXPECT_EQ(error.code(), ErrorCode::kData);
  for (const char* part : {"'x'", "'label'", "3", "4"}) EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
}

TEST(DatasetTest, SelectGathersRows) {
  const Dataset data({{"x", Counting(4, 2)}, {"y", Tensor::From<int64_t>({10, 11, 12, 13}, {4})}});
  const Dataset picked = data.Select(std::vector<int64_t>{3, 0, 3});
  EXPECT_EQ(picked.rows(), 3);
  const auto x = picked.column("x").as<float>();
  EXPECT_EQ((std::vector<float>(x.begin(), x.end())), (std::vector<float>{6, 7, 0, 1, 6, 7}));
  EXPECT_EQ(picked.column("y").as<int64_t>()[2], 13);
}

TEST(DatasetTest, FitConvertsWithoutLoss) {
  Dataset data({{"i", Tensor::From<int64_t>({1, 300}, {2})},
                {"f", Tensor::From<float>({1, 2}, {2})},
                {"half", Tensor::From<float>({1, 2.5f}, {2})},
                {"nan", Tensor::From<float>({1, NAN}, {2})},
                {"d", Tensor::From<double>({0.1, 2}, {2})}});
  data.Fit("f", DType::kInt64, {});
  EXPECT_EQ(data.column("f").as<int64_t>()[1], 2);
  data.Fit("d", DType::kFloat32, {1});
  EXPECT_EQ(data.column("d").as<float>()[0], 0.1f);
  EXPECT_EQ(data.column("d").shape(), (Shape{2, 1}));
  // Values that an integer type cannot represent are an error, and do not wrap around.
  for (const char* name : {"half", "nan"}) EXPECT_EQ(ErrorOf([&] { data.Fit(name, DType::kInt64, {}); }).code(), ErrorCode::kData);
  for (const DType narrow : {DType::kUint8, DType::kInt8}) {
    const Error error = ErrorOf([&] { data.Fit("i", narrow, {}); });
    EXPECT_EQ(error.code(), ErrorCode::kData);
    EXPECT_NE(error.message().find("row 1"), std::string::npos) << error.message();
  }
  EXPECT_NO_THROW(data.Fit("i", DType::kInt16, {}));
  EXPECT_NO_THROW(data.Fit("i", DType::kFloat32, {}));
}

// The largest number of a type of 64 bits is a power of two as a double, which is no number of that type.
TEST(DatasetTest, RejectsTheLeastNumberBeyondAnIntegerType) {
  const auto fitted = [](double number, DType dtype) {
    Dataset data({{"x", Tensor::From<double>({0, number}, {2})}});
    data.Fit("x", dtype, {});
    return ElementAsDouble(data.column("x").view(), 1);
  };
  for (const auto& [dtype, power] : {std::pair(DType::kInt64, 63), std::pair(DType::kUint64, 64), std::pair(DType::kInt32, 31)}) {
    const double beyond = std::ldexp(1.0, power);
    const double largest = power == 31 ? beyond - 1 : std::nextafter(beyond, 0);
    EXPECT_EQ(fitted(largest, dtype), largest);
    EXPECT_EQ(ErrorOf([&] { fitted(beyond, dtype); }).code(), ErrorCode::kData) << power;
  }
  EXPECT_EQ(fitted(-std::ldexp(1.0, 63), DType::kInt64), -std::ldexp(1.0, 63));
}

// Six numbers are not a [2,3] just because the counts are equal.
TEST(DatasetTest, FitReshapesOnlyFlatRows) {
  Dataset data({{"flat", Tensor(DType::kFloat32, {4, 6})},
                {"turned", Tensor(DType::kFloat32, {4, 3, 2})},
                {"image", Tensor(DType::kFloat32, {4, 2, 3})},
                {"number", Tensor(DType::kFloat32, {4})}});
  const auto refused = [&](const std::string& name, const Shape& shape, Dataset::Reshaping reshaping) {
    const Error error = ErrorOf([&] { data.Fit(name, DType::kFloat32, shape, reshaping); });
    EXPECT_EQ(error.code(), ErrorCode::kShape);
    EXPECT_NE(error.message().find("'" + name + "'"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find(shape.ToString()), std::string::npos) << error.message();
    EXPECT_NE(error.help(), "");
  };
  using enum Dataset::Reshaping;
  refused("turned", {2, 3}, kFlatRows);
  refused("turned", {2, 3}, kOnes);
  refused("flat", {2, 3}, kOnes);
  refused("flat", {5}, kOnes);
  refused("number", {4}, kOnes);
  refused("image", {4}, kFlatRows);
  EXPECT_EQ(ErrorOf([&] { data.Fit("flat", DType::kFloat32, {5}); }).code(), ErrorCode::kData);
  data.Fit("image", DType::kFloat32, {1, 2, 3}, kOnes);
  EXPECT_EQ(data.column("image").shape(), (Shape{4, 1, 2, 3}));
  data.Fit("number", DType::kFloat32, {1}, kOnes);
  EXPECT_EQ(data.column("number").shape(), (Shape{4, 1}));
  data.Fit("flat", DType::kFloat32, {2, 3}, kFlatRows);
  data.Fit("image", DType::kFloat32, {6}, kFlatRows);
  EXPECT_EQ(data.column("image").shape(), (Shape{4, 6}));
}

TEST(DatasetTest, ShuffleIsAPermutationOfSeedAndEpoch) {
  for (const int64_t rows : {0, 1, 2, 3, 1000}) {
    std::vector<int64_t> order = ShuffledRows(rows, 7, 3);
    EXPECT_EQ(order, ShuffledRows(rows, 7, 3));
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < rows; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i);
  }
  EXPECT_NE(ShuffledRows(1000, 7, 3), ShuffledRows(1000, 7, 4));
  EXPECT_NE(ShuffledRows(1000, 7, 3), ShuffledRows(1000, 8, 3));
}

// Each of the 24 orders of four rows is equally likely: a chi-squared test over the epochs with 23 degrees of freedom. The seed is fixed,
// so the result is deterministic; by chance one seed in a thousand would exceed 49.7.
TEST(DatasetTest, ShuffleIsFair) {
  std::map<std::vector<int64_t>, int> seen;
  constexpr int kEpochs = 24000;
  for (int epoch = 0; epoch < kEpochs; ++epoch) ++seen[ShuffledRows(4, 1234, static_cast<uint64_t>(epoch))];
  ASSERT_EQ(seen.size(), 24u);
  double chi = 0;
  for (const auto& [order, count] : seen) chi += std::pow(count - kEpochs / 24.0, 2) / (kEpochs / 24.0);
  EXPECT_LT(chi, 49.7);
}

TEST(DatasetTest, SplitsDivideTheRows) {
  const Split tail = TailSplit(10, 0.2);
  EXPECT_EQ(tail.eval, (std::vector<int64_t>{8, 9}));
  EXPECT_EQ(tail.train.size(), 8u);
  const Split random = RandomSplit(1000, 0.2, 5);
  EXPECT_EQ(random.eval.size(), 200u);
  EXPECT_EQ(random.eval, RandomSplit(1000, 0.2, 5).eval);
  EXPECT_NE(random.eval, RandomSplit(1000, 0.2, 6).eval);
  std::vector<int64_t> all = random.train;
  all.insert(all.end(), random.eval.begin(), random.eval.end());
  std::sort(all.begin(), all.end());
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(all[static_cast<size_t>(i)], i);
  EXPECT_EQ(TailSplit(2, 0.01).eval.size(), 1u);
  EXPECT_EQ(TailSplit(2, 0.99).train.size(), 1u);
  for (const double bad : {0.0, 1.0, -1.0, std::nan("")}) EXPECT_EQ(ErrorOf([&] { TailSplit(9, bad); }).code(), ErrorCode::kConfig);
}

TEST(DatasetTest, EveryRowIsInOneBatch) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int trial = 0; trial < 50; ++trial) {
    const int64_t rows = 1 + static_cast<int64_t>(random() % 40), size = 1 + static_cast<int64_t>(random() % 50);
    const Dataset data({{"x", Counting(rows, 3)}});
    const std::vector<int64_t> order = ShuffledRows(rows, seed, static_cast<uint64_t>(trial));
    Batches batches(data, order, size);
    std::vector<int64_t> seen;
    for (int64_t i = 0; i < batches.count(); ++i) {
      const auto feeds = batches.Get(i);
      const TensorView& x = feeds.at("x");
      EXPECT_EQ(x.shape, (Shape{batches.size(i), 3}));
      for (int64_t r = 0; r < batches.size(i); ++r) seen.push_back(static_cast<int64_t>(x.as<float>()[static_cast<size_t>(3 * r + 2)]) / 3);
    }
    EXPECT_EQ(seen, order);
  }
  EXPECT_EQ(BatchSizes(10, 4), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(BatchSizes(8, 4), (std::vector<int64_t>{4}));
  EXPECT_EQ(BatchSizes(3, 4), (std::vector<int64_t>{3}));  // fewer samples than a batch
}

// Rows that contain their own numbers. Records which rows were read.
class Numbers : public RowSource {
 public:
  explicit Numbers(int64_t rows) : rows_(rows) {}
  int64_t rows() const override { return rows_; }
  Shape row_shape() const override { return {2}; }
  void Read(int64_t row, PhiloxKey, void* out) const override {
    std::fill_n(static_cast<float*>(out), 2, static_cast<float>(row));
    const std::lock_guard lock(mutex_);
    read_.insert(row);
  }
  Transform Fitted(const std::string&, std::span<const int64_t>) const override { return {}; }
  std::shared_ptr<const RowSource> With(const Transform&, bool) const override { return nullptr; }
  std::set<int64_t> read() const {
    const std::lock_guard lock(mutex_);
    return read_;
  }

 private:
  const int64_t rows_;
  mutable std::mutex mutex_;
  mutable std::set<int64_t> read_;
};

// A model may have the samples along its second axis (PyTorch's recurrent layers), also if another axis has the same extent.
TEST(DatasetTest, RowsLieAlongTheAxisOfTheModel) {
  const int64_t rows = 7, steps = 3, width = 2;
  std::vector<float> values(static_cast<size_t>(rows * steps * width));
  std::iota(values.begin(), values.end(), 0.0f);
  Dataset data({{"x", Tensor::From(values, Shape{rows, steps, width})}, {"first", Counting(rows, 2)}, {"few", Counting(rows, 1)}});
  data.set_source("made", std::make_shared<Numbers>(rows));
  const std::vector<int64_t> order = ShuffledRows(rows, 1, 0);
  Batches batches(data, order, 3, {.axes = {{"x", 1}, {"made", 1}, {"few", 2}}});
  for (int64_t b = 0; b < batches.count(); ++b) {
    const int64_t size = batches.size(b);
    const auto feeds = batches.Get(b);
    ASSERT_EQ(feeds.at("x").shape, (Shape{steps, size, width}));
    ASSERT_EQ(feeds.at("made").shape, (Shape{2, size}));
    EXPECT_EQ(feeds.at("first").shape, (Shape{size, 2}));
    EXPECT_EQ(feeds.at("few").shape, (Shape{size, 1}));
    for (int64_t i = 0; i < size; ++i) {
      const int64_t row = order[static_cast<size_t>(3 * b + i)];
      for (int64_t t = 0; t < steps; ++t) {
        const size_t at = static_cast<size_t>((t * size + i) * width);
        EXPECT_EQ(feeds.at("x").as<float>()[at + 1], static_cast<float>((row * steps + t) * width + 1));
      }
      EXPECT_EQ(feeds.at("made").as<float>()[static_cast<size_t>(size + i)], static_cast<float>(row));
    }
    const Tensor back = WithSamplesFirst(feeds.at("x"), 1);
    ASSERT_EQ(back.shape(), (Shape{size, steps, width}));
    Tensor gathered(DType::kFloat32, back.shape());
    GatherRows(data.column("x"), std::span(order).subspan(static_cast<size_t>(3 * b), static_cast<size_t>(size)), 0, gathered.data());
    EXPECT_TRUE(std::ranges::equal(back.as<float>(), gathered.as<float>()));
  }
}

// A process of a job reads only what its own devices need.
TEST(DatasetTest, ReadsOnlyAPartOfEachBatch) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int trial = 0; trial < 50; ++trial) {
    const int64_t rows = 1 + static_cast<int64_t>(random() % 40), size = 1 + static_cast<int64_t>(random() % 12);
    const auto source = std::make_shared<Numbers>(rows);
    Dataset data;
    data.set_source("x", source);
    const std::vector<int64_t> order = ShuffledRows(rows, seed, static_cast<uint64_t>(trial));
    const uint64_t drawn = random();
    const auto reads = [&](int64_t n) {
      const int64_t first = static_cast<int64_t>(drawn % static_cast<uint64_t>(n));
      return std::pair(first, first + 1 + static_cast<int64_t>(drawn / 7 % static_cast<uint64_t>(n - first)));
    };
    std::set<int64_t> wanted;
    {
      Batches batches(data, order, size, {.workers = 3, .reads = reads});
      for (int64_t i = 0; i < batches.count(); ++i) {
        const auto feeds = batches.Get(i);
        const auto [first, last] = reads(batches.size(i));
        for (int64_t r = first; r < last; ++r) {
          const int64_t row = order[static_cast<size_t>(i * size + r)];
          ASSERT_EQ(feeds.at("x").as<float>()[static_cast<size_t>(2 * r + 1)], static_cast<float>(row));
          wanted.insert(row);
        }
      }
    }
    EXPECT_EQ(source->read(), wanted);
  }
}

// All cores decode images; rows that are only copied need few threads.
TEST(DatasetTest, SlowRowsAreMadeByAllCores) {
  class Slow : public Numbers {
   public:
    explicit Slow(int64_t rows) : Numbers(rows) {}
    bool is_slow() const override { return true; }
  };
  Dataset copied, decoded;
  copied.set_source("x", std::make_shared<Numbers>(10));
  decoded.set_source("x", std::make_shared<Numbers>(10));
  decoded.set_source("image", std::make_shared<Slow>(10));
  for (const auto& [cores, threads] : {std::pair(1, 2), {2, 2}, {12, 12}, {96, 16}}) {
    EXPECT_EQ(RowThreads(copied, cores), 2);
    EXPECT_EQ(RowThreads(decoded, cores), threads);
  }
  // As many as are allowed, whatever the machine has.
  const auto running = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
  };
  const std::vector<int64_t> order = ShuffledRows(10, 1, 0);
  for (const int cores : {3, 7}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // threads that have ended may still be listed
    const auto before = running();
    const Batches batches(decoded, order, 4, {.cores = cores});
    EXPECT_EQ(running() - before, cores);
  }
}

// Rows that follow each other are passed together, in their order.
TEST(DatasetTest, PiecesOfRows) {
  const Numbers source(100);
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{}, {5}, {0, 1, 2, 7, 8, 99, 3, 4, 4}}) {
    std::vector<float> read, wanted;
    int pieces = 0;
    ForEachPiece(source, rows, [&](const TensorView& piece) {
      const std::span<const float> values = piece.as<float>();
      for (size_t i = 0; i < values.size(); i += 2) read.push_back(values[i]);
      ++pieces;
    });
    for (const int64_t row : rows) wanted.push_back(static_cast<float>(row));
    EXPECT_EQ(read, wanted);
    EXPECT_EQ(pieces, rows.size() < 2 ? std::ssize(rows) : 5);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The system may have no thread left, here because it has no memory for another stack: the rows are then made by fewer threads.
TEST(DatasetTest, ReadsWithFewerThreadsThanItWants) {
  constexpr size_t kStackBytes = size_t{1} << 30;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t used = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
  pthread_attr_t large, usual;
  pthread_attr_init(&large);
  ASSERT_EQ(pthread_attr_setstacksize(&large, kStackBytes), 0);
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_setattr_default_np(&large), 0);
  Dataset data;
  data.set_source("x", std::make_shared<Numbers>(10));
  const std::vector<int64_t> order = ShuffledRows(10, 1, 0);
  // Room for one stack and a half, then for none.
  const rlimit one{used + kStackBytes + kStackBytes / 2, before.rlim_max}, none{used + kStackBytes / 2, before.rlim_max};
  std::vector<float> read;
  std::string refused;
  setrlimit(RLIMIT_AS, &one);
  {
    Batches batches(data, order, 4, {.workers = 4});
    for (int64_t i = 0; i < batches.count(); ++i) {
      const auto feeds = batches.Get(i);
      for (int64_t row = 0; row < batches.size(i); ++row) read.push_back(feeds.at("x").as<float>()[static_cast<size_t>(2 * row)]);
    }
  }
  setrlimit(RLIMIT_AS, &none);
  try {
    const Batches batches(data, order, 4, {.workers = 4});
  } catch (const Error& error) {
    refused = std::string(ErrorName(error.code())) + " " + error.message();
  }
  setrlimit(RLIMIT_AS, &before);
  pthread_setattr_default_np(&usual);
  pthread_attr_destroy(&large);
  pthread_attr_destroy(&usual);
  EXPECT_EQ(read, std::vector<float>(order.begin(), order.end()));
  EXPECT_TRUE(refused.starts_with("E-RESOURCE cannot start a thread that reads rows: ")) << refused;
}
#endif

TEST(DatasetTest, StandardizesByTheTrainingPartAlone) {
  Tensor train = Tensor::From<float>({1, 5, 3, 5, 5, 5}, {3, 2}), eval = Tensor::From<float>({3, 6}, {1, 2});
  const Transform transform = Transform::Parse("standardize", train);
  transform.Apply(train);
  transform.Apply(eval);
  const float deviation = std::sqrt(8.0f / 3);
  EXPECT_FLOAT_EQ(train.as<float>()[0], -2 / deviation);
  EXPECT_FLOAT_EQ(train.as<float>()[1], 0);  // a constant feature is only shifted
  EXPECT_FLOAT_EQ(eval.as<float>()[0], 0);
  EXPECT_FLOAT_EQ(eval.as<float>()[1], 1);
}

TEST(DatasetTest, UndoesTransforms) {
  const Tensor train = Tensor::From<float>({1, 500, 3, 700, 8, 600}, {3, 2});
  for (const char* text : {"standardize", "scale 1/255", "normalize 3,5 0.5,4", "fill mean"}) {
    Tensor values = train.Clone();
    const Transform transform = Transform::Parse(text, train);
    transform.Apply(values);
    transform.Undo(values);
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(values.as<float>()[i], train.as<float>()[i], 1e-6 * train.as<float>()[i]) << text;
  }
  Tensor integers(DType::kInt64, {3, 2}), values = train.Clone();
  EXPECT_EQ(ErrorOf([&] { Transform::Parse("scale 2", train).Undo(integers); }).code(), ErrorCode::kData);
  EXPECT_EQ(ErrorOf([&] { Transform::Parse("scale 0", train).Undo(values); }).code(), ErrorCode::kData);
}

// Infinity stays what it is, and the numbers that are measured are finite.
TEST(DatasetTest, MeasuresFiniteNumbersOnly) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const Tensor train = Tensor::From<float>({1, infinity, -infinity, 5, nan, 2, 3, -infinity, 4}, {3, 3});
  EXPECT_EQ(Transform::Parse("fill mean", train).fill, (std::vector<float>{3, 0, 3}));
  const Transform standardize = Transform::Parse("standardize", train);
  EXPECT_EQ(standardize.shift, (std::vector<float>{3, 0, 3}));
  EXPECT_EQ(standardize.scale, (std::vector<float>{std::sqrt(3.0F / 8), 1, 1}));
}

// NaN marks what is missing: it is not measured, and only a fill replaces it.
TEST(DatasetTest, FillsInWhatIsMissing) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const Tensor train = Tensor::From<float>({1, nan, nan, 5, nan, nan, 3, nan, nan}, {3, 3});
  const auto applied = [&](const char* text, Tensor to) {
    Transform::Parse(text, train).Apply(to);
    return std::vector<float>(to.as<float>().begin(), to.as<float>().end());
  };
  EXPECT_EQ(applied("fill mean", train.Clone()), (std::vector<float>{1, 0, 0, 5, 0, 0, 3, 0, 0}));
  EXPECT_EQ(applied("fill mean", Tensor::From<float>({nan, 7, infinity}, {1, 3})), (std::vector<float>{3, 7, infinity}));
  EXPECT_EQ(applied("fill -2.5", Tensor::From<float>({nan, 7, nan}, {1, 3})), (std::vector<float>{-2.5F, 7, -2.5F}));
  EXPECT_EQ(applied("fill 1,2,3", Tensor::From<float>({nan, 7, nan}, {1, 3})), (std::vector<float>{1, 7, 3}));
  const std::vector<float> standardized = applied("standardize", train.Clone());
  EXPECT_FLOAT_EQ(standardized[0], -2 / std::sqrt(8.0F / 3));
  EXPECT_TRUE(std::isnan(standardized[1]));
  for (const char* bad : {"fill", "fill median", "fill nan", "fill 1,2", "fill mean 0"})
    EXPECT_EQ(ErrorOf([&] { Transform::Parse(bad, train); }).code(), ErrorCode::kConfig) << bad;
}

TEST(DatasetTest, ScaleAndNormalize) {
  Tensor image = Counting(2, 4).Reshaped({2, 2, 2});
  Transform::Parse("scale 1/4", image).Apply(image);
  EXPECT_FLOAT_EQ(image.as<float>()[3], 0.75f);
  Transform::Parse("normalize 0.5,1 0.5,0.25", image).Apply(image);
  EXPECT_FLOAT_EQ(image.as<float>()[1], (0.25f - 0.5f) / 0.5f);
  EXPECT_FLOAT_EQ(image.as<float>()[3], (0.75f - 1) / 0.25f);
  EXPECT_FLOAT_EQ(image.as<float>()[6], (1.5f - 1) / 0.25f);
  for (const char* bad :
       {"", "scale", "scale x", "scale 1/0", "normalize 1", "normalize 1 0", "normalize 1,2,3 1", "scale nan", "twist 2"}) {
    EXPECT_EQ(ErrorOf([&] { Transform::Parse(bad, image); }).code(), ErrorCode::kConfig) << bad;
  }
}

}  // namespace
}  // namespace gradloom
