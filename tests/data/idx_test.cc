#include "runtime/data/idx.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/base/temporary_folder.h"

namespace gradloom {
namespace {

std::string Head(char type, std::vector<uint32_t> extents) {
  std::string text{'\0', '\0', type, static_cast<char>(extents.size())};
  for (uint32_t extent : extents) {
    for (int shift : {24, 16, 8, 0}) text += static_cast<char>(extent >> shift & 0xFF);
  }
  return text;
}

std::string ErrorOf(const std::string& path) {
  try {
    ReadIdx(path);
  } catch (const Error& error) {
    return std::string(ErrorName(error.code())) + ": " + error.message();
  }
  return "";
}

TEST(Idx, ReadsEveryType) {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "a.idx", Head(8, {2, 3}) + "\x01\x02\x03\xFF\x05\x06");
  const Tensor bytes = ReadIdx(folder / "a.idx");
  EXPECT_EQ(bytes.dtype(), DType::kUint8);
  EXPECT_EQ(bytes.shape(), (Shape{2, 3}));
  EXPECT_EQ(bytes.as<uint8_t>()[3], 255);
  WriteFileAtomically(folder / "b.idx", Head(0x0B, {2}) + std::string("\x01\x02\xFF\xFE", 4));
  EXPECT_EQ(ReadIdx(folder / "b.idx").as<int16_t>()[0], 258);
  EXPECT_EQ(ReadIdx(folder / "b.idx").as<int16_t>()[1], -2);
  WriteFileAtomically(folder / "c.idx", Head(0x0C, {1}) + std::string("\x00\x01\x00\x00", 4));
  EXPECT_EQ(ReadIdx(folder / "c.idx").as<int32_t>()[0], 65536);
  WriteFileAtomically(folder / "d.idx", Head(0x0D, {1}) + std::string("\x3F\xC0\x00\x00", 4));
  EXPECT_EQ(ReadIdx(folder / "d.idx").as<float>()[0], 1.5f);
  WriteFileAtomically(folder / "e.idx", Head(0x0E, {1}) + std::string("\x3F\xF8\x00\x00\x00\x00\x00\x00", 8));
  EXPECT_EQ(ReadIdx(folder / "e.idx").as<double>()[0], 1.5);
}

TEST(Idx, ReadsGzip) {
  const TemporaryFolder folder;
  const std::string text = Head(8, {3}) + "abc", path = folder / "x-idx1-ubyte.gz";
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
  gzclose(file);
  EXPECT_EQ(ReadIdx(path).as<uint8_t>()[1], 'b');
}

TEST(Idx, RejectsDamagedFiles) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& text) {
    WriteFileAtomically(folder / "x.idx", text);
    return ErrorOf(folder / "x.idx");
  };
  EXPECT_NE(error("").find("ends before"), std::string::npos);
  EXPECT_NE(error("PK\x03\x04zip").find("not an IDX file"), std::string::npos);
  EXPECT_NE(error(Head(8, {4}) + "abc").find("ends before"), std::string::npos);
  EXPECT_NE(error(Head(8, {2}) + "abc").find("after the last"), std::string::npos);
  // The extents in a hostile file do not cause a large allocation.
  EXPECT_NE(error(Head(8, {0x7FFFFFFF})).find("too short"), std::string::npos);
  EXPECT_NE(error(Head(8, {0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF})).find("limit"), std::string::npos);
}

TEST(Idx, FindsTheFilesOfASet) {
  const TemporaryFolder folder;
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte", "train-notes.txt"}) {
    WriteFileAtomically(folder / name, "x");
  }
  const auto files = IdxFilesOf(folder / "train");
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files.at("images"), folder / "train-images-idx3-ubyte");
  EXPECT_EQ(files.at("labels"), folder / "train-labels-idx1-ubyte.gz");
  EXPECT_TRUE(IsIdxName("a/x.idx.gz"));
  EXPECT_FALSE(IsIdxName("a/x-idx.npy"));
}

}  // namespace
}  // namespace gradloom
