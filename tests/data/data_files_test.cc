#include "runtime/data/data_files.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/data/npz.h"
#include "tests/base/temporary_folder.h"
#include "tests/data/write_arrays.h"

namespace gradloom {
namespace {

TEST(DataFilesTest, Digits) {
  const LoadedData digits = LoadData("models/data/digits.csv.gz", {{"image", "p0..p63"}, {"label", "label", DType::kInt64}});
  EXPECT_TRUE(digits.warnings.empty());
  Dataset data = digits.data;
  EXPECT_EQ(data.rows(), 1797);
  EXPECT_EQ(data.column("label").shape(), (Shape{1797}));
  EXPECT_EQ(data.column("label").as<int64_t>()[1], 1);
  data.Fit("image", DType::kFloat32, {1, 8, 8});
  EXPECT_EQ(data.column("image").shape(), (Shape{1797, 1, 8, 8}));
  EXPECT_EQ(data.column("image").as<float>()[2], 5);
}

TEST(DataFilesTest, HousingWithoutNames) {
  const Dataset data = LoadData("models/data/boston.csv", {{"x", "CRIM..LSTAT"}, {"y", "-1"}}).data;
  EXPECT_EQ(data.column("x").shape(), (Shape{506, 13}));
  EXPECT_EQ(data.column("y").as<float>()[0], 24);
  EXPECT_EQ(data.column("x").as<float>()[0], 0.00632f);
}

TEST(DataFilesTest, TokensAndSetsOfIdxFiles) {
  const TemporaryFolder folder;
  WriteTokens(folder / "text.bin", {1, 2, 3, 4, 5});
  const Dataset text = LoadData(folder / "text.bin", {{"x", "tokens", DType::kInt64, 2}, {"y", "next", DType::kInt64, 2}}).data;
  EXPECT_EQ(text.rows(), 2);
  EXPECT_EQ(text.column("y").as<int64_t>()[1], 3);
  const Error two = ErrorOf([&] { LoadData(folder / "text.bin", {{"x", "tokens", DType::kInt64, 2}, {"y", "next", DType::kInt64, 3}}); });
  EXPECT_EQ(two.code(), ErrorCode::kConfig);
  WriteFileAtomically(folder / "train-images-idx3-ubyte", std::string_view("\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x02"
                                                                           "abcd",
                                                                           20));
  WriteFileAtomically(folder / "train-labels-idx1-ubyte", std::string_view("\0\0\x08\x01\0\0\0\x02\x07\x09", 10));
  const Dataset images = LoadData(folder / "train", {}).data;
  EXPECT_EQ(images.column("images").shape(), (Shape{2, 1, 2}));
  EXPECT_EQ(images.column("labels").as<uint8_t>()[1], 9);
  EXPECT_EQ(LoadData(folder / "train-labels-idx1-ubyte", {{"label", ""}}).data.column("label").shape(), (Shape{2}));
}

TEST(DataFilesTest, ArraysByNameOrMap) {
  const TemporaryFolder folder;
  WriteNpz(folder / "a.npz", {{"x", Tensor(DType::kFloat32, {3, 2})}, {"y", Tensor(DType::kInt64, {3})}});
  EXPECT_EQ(LoadData(folder / "a.npz", {}).data.columns().size(), 2u);
  EXPECT_EQ(LoadData(folder / "a.npz", {{"input", "x"}}).data.column("input").shape(), (Shape{3, 2}));
  const Error error = ErrorOf([&] { LoadData(folder / "a.npz", {{"input", "z"}}); });
  EXPECT_EQ(error.code(), ErrorCode::kData);
  EXPECT_NE(error.help().find("x, y"), std::string::npos);
  WriteNpy(folder / "b.npy", Tensor(DType::kFloat32, {4}).view());
  EXPECT_EQ(LoadData(folder / "b.npy", {{"x", ""}}).data.rows(), 4);
}

TEST(DataFilesTest, ArraysThatNoSourceSelectsMayBeAnything) {
  const TemporaryFolder folder;
  WriteNpz(folder / "a.npz", {{"x", Tensor(DType::kFloat32, {3, 2})}, {"names", Tensor(DType::kFloat32, {2})}});
  EXPECT_EQ(LoadData(folder / "a.npz", {{"input", "x"}}).data.rows(), 3);
}

TEST(DataFilesTest, RowCountsMustAgree) {
  const TemporaryFolder folder;
  WriteNpz(folder / "a.npz", {{"x", Tensor(DType::kFloat32, {3, 2})}, {"y", Tensor(DType::kInt64, {4})}});
  const Error error = ErrorOf([&] { LoadData(folder / "a.npz", {}); });
  EXPECT_EQ(error.code(), ErrorCode::kData);
  EXPECT_EQ(error.where(), folder / "a.npz");
  WriteNpz(folder / "a.npz", {{"x", Tensor(DType::kFloat32, {0, 2})}});
  EXPECT_EQ(ErrorOf([&] { LoadData(folder / "a.npz", {}); }).code(), ErrorCode::kData);
  WriteNpz(folder / "a.npz", {{"x", Tensor(DType::kFloat32, {})}});
  EXPECT_EQ(ErrorOf([&] { LoadData(folder / "a.npz", {}); }).code(), ErrorCode::kData);
}

TEST(DataFilesTest, NansAreCountedOncePerColumn) {
  const TemporaryFolder folder;
  WriteNpz(folder / "a.npz", {{"x", Tensor::From<float>({1, 2, 3, NAN, INFINITY, 6}, {3, 2})}, {"y", Tensor(DType::kFloat32, {3})}});
  const auto arrays = LoadData(folder / "a.npz", {}).warnings;
  ASSERT_EQ(arrays.size(), 1u);
  EXPECT_EQ(arrays[0], "2 values of column 'x' are NaN or infinite, the first at " + folder.path() + "/a.npz row 1");
  WriteFileAtomically(folder / "a.csv", "a,b\n1,nan\n2,nan\n");
  const auto table = LoadData(folder / "a.csv", {{"x", "a"}, {"y", "b"}}).warnings;
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table[0], "2 values of column 'y' are NaN or infinite, the first at " + folder.path() + "/a.csv:2:2");
}

TEST(DataFilesTest, Refusals) {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "a.tsv", "a\tb\n1\t2\n");
  EXPECT_EQ(LoadData(folder / "a.tsv", {{"x", "b"}}).data.column("x").as<float>()[0], 2);
  EXPECT_EQ(ErrorOf([&] { LoadData(folder / "a.tsv", {}); }).code(), ErrorCode::kConfig);
  EXPECT_EQ(ErrorOf([&] { LoadData(folder / "a.tsv", {{"x", "a"}, {"x", "b"}}); }).code(), ErrorCode::kConfig);
  WriteFileAtomically(folder / "a.parquet", "PAR1");
  EXPECT_EQ(ErrorOf([&] { LoadData(folder / "a.parquet", {{"x", "a"}}); }).code(), ErrorCode::kData);
  EXPECT_EQ(ErrorOf([&] { LoadData(folder / "none.csv", {{"x", "a"}}); }).code(), ErrorCode::kIo);
}

}  // namespace
}  // namespace gradloom
