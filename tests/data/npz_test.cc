#include "runtime/data/npz.h"

#include <gtest/gtest.h>

#include <cstring>

#include "runtime/data/npy.h"
#include "tests/base/temporary_folder.h"

namespace gradloom {
namespace {

std::map<std::string, Tensor> Arrays() {
  std::map<std::string, Tensor> arrays;
  arrays["x"] = Tensor::From<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  arrays["grad/conv.weight"] = Tensor::From<int64_t>({-1, 5}, {2});
  arrays["empty"] = Tensor(DType::kFloat32, {0, 3});
  arrays["zeros"] = Tensor(DType::kFloat64, {100000});
  return arrays;
}

void ExpectEqual(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    const Tensor& other = b.at(name);
    EXPECT_EQ(tensor.dtype(), other.dtype());
    EXPECT_EQ(tensor.shape(), other.shape());
    EXPECT_EQ(std::memcmp(tensor.data(), other.data(), static_cast<size_t>(tensor.bytes())), 0) << name;
  }
}

class NpzTest : public ::testing::Test {
 protected:
  // The error of reading a file with these bytes.
  Error Refused(const std::string& content) {
    WriteWithoutSync(path_, content);
    return ErrorOf([&] { ReadNpz(path_); });
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_ / "a.npz";
};

TEST_F(NpzTest, RoundTrip) {
  for (const bool compress : {false, true}) {
    WriteNpz(path_, Arrays(), compress);
    ExpectEqual(Arrays(), ReadNpz(path_));
    EXPECT_EQ(ReadWholeFile(path_).size() < 10000, compress);
    const std::string first = ReadWholeFile(path_);
    WriteNpz(path_, Arrays(), compress);
    EXPECT_EQ(ReadWholeFile(path_), first);
  }
  EXPECT_EQ(folder_.entries(), 1);
}

TEST_F(NpzTest, TypesOfArrays) {
  for (const bool compress : {false, true}) {
    WriteNpz(path_, Arrays(), compress);
    const std::map<std::string, TensorView> types = NpzTypes(path_, {"x", "zeros", "other"}), all = NpzTypes(path_);
    ASSERT_EQ(types.size(), 2);
    EXPECT_EQ(types.at("x").shape, (Shape{2, 3}));
    EXPECT_EQ(types.at("zeros").shape, Shape{100000});
    ASSERT_EQ(all.size(), Arrays().size());
    for (const auto& [name, array] : Arrays()) {
      EXPECT_EQ(all.at(name).dtype, array.dtype()) << name;
      EXPECT_EQ(all.at(name).shape, array.shape()) << name;
    }
  }
}

TEST_F(NpzTest, NoArrays) {
  WriteNpz(path_, std::map<std::string, Tensor>{});
  EXPECT_TRUE(ReadNpz(path_).empty());
}

TEST_F(NpzTest, LimitAppliesToUncompressedBytes) {
  WriteNpz(path_, Arrays(), true);
  EXPECT_EQ(ErrorOf([&] { ReadNpz(path_, 100000); }).code(), ErrorCode::kLimit);
  EXPECT_NO_THROW(ReadNpz(path_, 1000000));
}

TEST_F(NpzTest, NotAZipFile) {
  for (const std::string& content : {std::string(), std::string("hello"), NpyHeader(DType::kFloat32, {0})}) {
    const Error error = Refused(content);
    EXPECT_EQ(error.code(), ErrorCode::kData);
    EXPECT_EQ(error.where(), path_);
  }
}

TEST_F(NpzTest, EveryTruncationIsRefused) {
  WriteNpz(path_, {{"x", Tensor::From<float>({1, 2, 3}, {3})}});
  const std::string good = ReadWholeFile(path_);
  for (size_t length = 0; length < good.size(); ++length) EXPECT_EQ(Refused(good.substr(0, length)).code(), ErrorCode::kData) << length;
}

TEST_F(NpzTest, FlippedBitsNeverYieldOtherData) {
  const std::map<std::string, Tensor> arrays = {{"x", Tensor::From<float>({1, 2, 3}, {3})}};
  for (const bool compress : {false, true}) {
    WriteNpz(path_, arrays, compress);
    const std::string good = ReadWholeFile(path_);
    for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
      WriteWithoutSync(path_, bad);
      try {
        // Dates, attributes and the name have no checksum, but the array has one.
        const auto read = ReadNpz(path_);
        if (read.size() == 1) ExpectEqual({{"x", arrays.at("x")}}, {{"x", read.begin()->second}});
      } catch (const Error& error) {
        EXPECT_TRUE(error.code() == ErrorCode::kData || error.code() == ErrorCode::kLimit) << error.Describe();
      }
    }
  }
}

// Replaces all occurrences of `from` with `to`, which has the same length.
std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
  return text;
}

TEST_F(NpzTest, EntryNames) {
  WriteNpz(path_, {{"ab/c", Tensor(DType::kFloat32, {1})}, {"ab/d", Tensor(DType::kFloat32, {1})}});
  const std::string good = ReadWholeFile(path_);
  EXPECT_EQ(Refused(Replaced(good, "ab/c", "../c")).code(), ErrorCode::kData);
  EXPECT_EQ(Refused(Replaced(good, "ab/c.", "a/../")).code(), ErrorCode::kData);
  EXPECT_EQ(Refused(Replaced(good, "ab/c", "..\\c")).code(), ErrorCode::kData);
  EXPECT_EQ(Refused(Replaced(good, "c.npy", "c.txt")).code(), ErrorCode::kData);
  EXPECT_EQ(Refused(Replaced(good, "ab/c", "ab/d")).code(), ErrorCode::kData);  // the name occurs twice
  EXPECT_EQ(ErrorOf([&] { WriteNpz(path_, {{"../x", Tensor(DType::kFloat32, {1})}}); }).code(), ErrorCode::kData);
  EXPECT_NO_THROW(WriteNpz(path_, {{"..x", Tensor(DType::kFloat32, {1})}}));
}

TEST_F(NpzTest, WriteErrorsAreReported) {
  const Error error = ErrorOf([&] { WriteNpz(folder_ / "no/such/folder.npz", Arrays()); });
  EXPECT_EQ(error.code(), ErrorCode::kResource);
  EXPECT_EQ(ErrorOf([&] { WriteNpz(path_, {{"x", Tensor(DType::kBfloat16, {1})}}); }).code(), ErrorCode::kType);
  EXPECT_EQ(folder_.entries(), 0);
}

}  // namespace
}  // namespace gradloom
