// Files of more bytes than 32 bits count. They are holes but for a few bytes, so they take neither disk nor memory.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/batches.h"
#include "runtime/data/data_limits.h"
#include "runtime/data/npy.h"
#include "runtime/data/npz.h"
#include "runtime/data/training_data.h"
#include "tests/base/bytes_read.h"
#include "tests/base/written_files.h"

namespace gradloom {
namespace {

// The bytes of a number, little-endian or big-endian.
std::string Little(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}
std::string Big(uint64_t value, int bytes) {
  const std::string text = Little(value, bytes);
  return {text.rbegin(), text.rend()};
}

class LargeDataTest : public WrittenFilesTest {
 protected:
  // Makes a file of this size, with these texts at these offsets and zeros elsewhere. Returns the path.
  std::string Sparse(const std::string& name, int64_t bytes, const std::vector<std::pair<int64_t, std::string>>& texts) {
    const std::string path = folder_ / name;
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    EXPECT_EQ(::ftruncate(file, bytes), 0);
    for (const auto& [at, text] : texts) EXPECT_EQ(::pwrite(file, text.data(), text.size(), at), std::ssize(text));
    ::close(file);
    return path;
  }

  // Reads as one process does that has only little memory.
  static Dataset Load(const std::string& path, const std::vector<Feed>& feeds, std::vector<std::string>& notes) {
    return LoadFeeds(path, feeds, {}, {}, notes, {.on_demand = true, .large_rows = false, .large_bytes = int64_t{1} << 30});
  }

  // The last row of a column, which is not in memory.
  template <typename T>
  static std::vector<T> LastRow(const Dataset& data, const std::string& name) {
    const Dataset::LazyColumn& column = data.lazy_columns().at(name);
    std::vector<T> row(static_cast<size_t>(column.source->row_shape().elements()));
    column.source->Read(column.rows.back(), {}, row.data());
    return row;
  }
};

constexpr int64_t kWidth = 3 * 128 * 256, kManyRows = 49152;  // 4.5 GiB of bytes
const Shape kManyBytes{kManyRows, 3, 128, 256};

TEST_F(LargeDataTest, RowsOfANumpyArray) {
  const std::string head = NpyHeader(DType::kUint8, kManyBytes);
  const int64_t bytes = std::ssize(head) + kManyRows * kWidth;
  const std::string path = Sparse("x.npy", bytes, {{0, head}, {bytes - 2, "\x07\x09"}});
  for (const DType dtype : {DType::kFloat32, DType::kUint8}) {
    std::vector<std::string> notes;
    const Dataset data = Load(path, {{"x", dtype, {4, 3, 128, 256}, 0}}, notes);
    EXPECT_EQ(data.rows(), kManyRows);
    if (dtype == DType::kUint8) {
      EXPECT_EQ(LastRow<uint8_t>(data, "x").back(), 9);
    } else {
      EXPECT_EQ(LastRow<float>(data, "x")[kWidth - 2], 7);
    }
    EXPECT_EQ(notes, std::vector<std::string>{"data    'x' has " + std::to_string((kManyRows * kWidth * DTypeBytes(dtype)) >> 20) +
                                              " MiB: rows are read when they are needed"});
  }
}

// As numpy.savez writes it: the sizes of the first array, and the offset of the second one, are in 64 bits.
TEST_F(LargeDataTest, RowsOfAnArchiveOfNumpyArrays) {
  const std::string x_head = NpyHeader(DType::kUint8, kManyBytes), y_head = NpyHeader(DType::kInt64, {kManyRows});
  const std::string y_values(kManyRows * 8, '\0');
  const uint64_t x_bytes = x_head.size() + kManyRows * kWidth, y_bytes = y_head.size() + y_values.size();
  uLong sum = ::crc32(0, reinterpret_cast<const Bytef*>(y_head.data()), static_cast<uInt>(y_head.size()));
  sum = ::crc32(sum, reinterpret_cast<const Bytef*>(y_values.data()), static_cast<uInt>(y_values.size()));
  constexpr uint64_t kElsewhere = 0xFFFFFFFF;
  // Versions, flags, method, time and date; the checksum of x is never read.
  const auto common = [](uint64_t crc) { return Little(45, 2) + Little(0, 4) + Little(0, 2) + Little(33, 2) + Little(crc, 4); };
  const auto local = [&](const std::string& name, uint64_t crc, uint64_t bytes) {
    return "PK\3\4" + common(crc) + Little(kElsewhere, 4) + Little(kElsewhere, 4) + Little(name.size(), 2) + Little(20, 2) + name +
           Little(1, 2) + Little(16, 2) + Little(bytes, 8) + Little(bytes, 8);
  };
  const auto central = [&](const std::string& name, uint64_t crc, uint64_t bytes, uint64_t offset, const std::string& extra) {
    return "PK\1\2" + Little(45, 2) + common(crc) + Little(bytes, 4) + Little(bytes, 4) + Little(name.size(), 2) + Little(extra.size(), 2) +
           Little(0, 2 + 2 + 2) + Little(0, 4) + Little(offset, 4) + name + extra;
  };
  const std::string x_local = local("x.npy", 0, x_bytes), y_local = local("y.npy", sum, y_bytes);
  const uint64_t x_at = x_local.size(), y_local_at = x_at + x_bytes, y_at = y_local_at + y_local.size(), directory = y_at + y_bytes;
  const std::string entries = central("x.npy", 0, kElsewhere, 0, Little(1, 2) + Little(16, 2) + Little(x_bytes, 8) + Little(x_bytes, 8)) +
                              central("y.npy", sum, y_bytes, kElsewhere, Little(1, 2) + Little(8, 2) + Little(y_local_at, 8));
  const std::string end = "PK\6\6" + Little(44, 8) + Little(45, 2) + Little(45, 2) + Little(0, 8) + Little(2, 8) + Little(2, 8) +
                          Little(entries.size(), 8) + Little(directory, 8) + "PK\6\7" + Little(0, 4) +
                          Little(directory + entries.size(), 8) + Little(1, 4) + "PK\5\6" + Little(0, 4) + Little(2, 2) + Little(2, 2) +
                          Little(entries.size(), 4) + Little(kElsewhere, 4) + Little(0, 2);
  const auto at = [](uint64_t offset) { return static_cast<int64_t>(offset); };
  const std::string path = Sparse("a.npz", at(directory + entries.size() + end.size()),
                                  {{0, x_local},
                                   {at(x_at), x_head},
                                   {at(y_local_at - 1), "\x05"},
                                   {at(y_local_at), y_local},
                                   {at(y_at), y_head},
                                   {at(directory), entries + end}});
  std::vector<std::string> notes;
  const Dataset data = Load(path, {{"x", DType::kFloat32, {4, 3, 128, 256}, 0}, {"y", DType::kInt64, {4}, 0}}, notes);
  EXPECT_EQ(LastRow<float>(data, "x").back(), 5);
  EXPECT_EQ(data.column("y").as<int64_t>()[kManyRows - 1], 0) << "a small array is in memory";
  // Both can be read by rows, nothing is unpacked.
  for (const char* name : {"x", "y"}) EXPECT_TRUE(OpenNpz(path, name, {int64_t{1} << 40})) << name;
  EXPECT_EQ(NpzTypes(path).at("x").shape, kManyBytes) << "only the headers are read";
}

// Rows are converted in pieces.
TEST_F(LargeDataTest, RowsOfAnArrayInFortranOrder) {
  constexpr int64_t kRows = 1 << 20, kColumns = 256;  // 1 GiB as float32
  std::string head = NpyHeader(DType::kUint8, {kRows, kColumns});
  head.replace(head.find("False"), 5, "True ");
  const int64_t bytes = std::ssize(head) + kRows * kColumns;
  // The last elements of the first, second and last column.
  const auto last_of = [&](int64_t column) { return std::ssize(head) + (column + 1) * kRows - 1; };
  const std::string path = Sparse("f.npy", bytes, {{0, head}, {last_of(0), "\x03"}, {last_of(1), "\x04"}, {bytes - 1, "\x05"}});
  EXPECT_EQ(NpyType(path).shape, (Shape{kRows, kColumns}));
  std::vector<std::string> notes;
  const Dataset data = Load(path, {{"x", DType::kFloat32, {4, kColumns}, 0}}, notes);
  const std::vector<float> row = LastRow<float>(data, "x");
  EXPECT_EQ(row[0], 3);
  EXPECT_EQ(row[1], 4);
  EXPECT_EQ(row.back(), 5);
  // One that has another shape is refused without reading it.
  const int64_t before = BytesRead();
  const Error error = ErrorOf([&] {
    Load(Sparse("x.npy", bytes, {{0, NpyHeader(DType::kUint8, {kRows, kColumns})}}), {{"x", DType::kFloat32, {4, 3}, 0}}, notes);
  });
  EXPECT_EQ(error.code(), ErrorCode::kData);
  EXPECT_NE(error.message().find("has 256 values per row, but the model expects [3]"), std::string::npos) << error.message();
  EXPECT_LT(BytesRead() - before, 1 << 20);
}

TEST_F(LargeDataTest, WindowsOfTokens) {
  constexpr int64_t kWindow = 1024, kWindows = int64_t{5} << 20;
  const int64_t bytes = 2 * (kWindow * kWindows + 1);
  const std::string path = Sparse("text.bin", bytes, {{bytes - 4, std::string("\x03\0\x04\0", 4)}});
  std::vector<std::string> notes;
  const Dataset data = Load(path, {{"ids", DType::kInt64, {4, kWindow}, 0}, {"following", DType::kInt64, {4, kWindow}, 0}}, notes);
  EXPECT_EQ(data.rows(), kWindows);
  EXPECT_EQ(LastRow<int64_t>(data, "ids").back(), 3);
  EXPECT_EQ(LastRow<int64_t>(data, "following").back(), 4);
}

TEST_F(LargeDataTest, RowsOfAnIdxFile) {
  const std::string head =
      std::string("\0\0\x08\x04", 4) + Big(kManyRows, 4) + Big(static_cast<uint64_t>(3), 4) + Big(128, 4) + Big(256, 4);
  const int64_t bytes = std::ssize(head) + kManyRows * kWidth;
  const std::string path = Sparse("x.idx", bytes, {{0, head}, {bytes - 1, "\x0b"}});
  std::vector<std::string> notes;
  EXPECT_EQ(LastRow<float>(Load(path, {{"x", DType::kFloat32, {4, 3, 128, 256}, 0}}, notes), "x").back(), 11);
}

// Of one process: what is small is in memory, also if its rows are large.
TEST_F(LargeDataTest, SmallArraysAreInMemory) {
  const std::string head = NpyHeader(DType::kFloat32, {10, 300});
  const std::string path = Sparse("x.npy", std::ssize(head) + 10 * 300 * 4, {{0, head}});
  std::vector<std::string> notes;
  const std::vector<Feed> feeds{{"x", DType::kFloat32, {4, 300}, 0}};
  EXPECT_FALSE(Load(path, feeds, notes).is_lazy("x"));
  EXPECT_TRUE(notes.empty());
  // The size in the model's type counts, and that of all feeds together.
  const DataOptions options{.on_demand = true, .large_rows = false, .large_bytes = 2 * 10 * 300 * 4};
  EXPECT_FALSE(LoadFeeds(path, feeds, {}, {}, notes, options).is_lazy("x"));
  const std::string bytes_head = NpyHeader(DType::kUint8, {10, 600});
  const std::string bytes = Sparse("b.npy", std::ssize(bytes_head) + 10 * 600, {{0, bytes_head}});
  EXPECT_TRUE(LoadFeeds(bytes, {{"x", DType::kFloat32, {4, 600}, 0}}, {}, {}, notes, options).is_lazy("x"));
  // Also of those that must be copied, because their rows cannot be read from their file.
  const std::string packed = folder_ / "packed.npz";
  WriteNpz(packed, {{"x", Tensor(DType::kUint8, {10, 600})}}, true);
  EXPECT_TRUE(LoadFeeds(packed, {{"x", DType::kFloat32, {4, 600}, 0}}, {}, {}, notes, options).is_lazy("x"));
  EXPECT_FALSE(LoadFeeds(packed, {{"x", DType::kUint8, {4, 600}, 0}}, {}, {}, notes, options).is_lazy("x"));
  EXPECT_GE(LargeBytesFor(0), kLargeBytes);
  EXPECT_EQ(LargeBytesFor(int64_t{64} << 30), int64_t{16} << 30);
}

// A packed file of a few bytes does not fill the disk.
TEST(DataLimits, UnpackedBytesAreLimitedByThePackedOnes) {
  EXPECT_EQ(UnpackedLimit(1000, kDataLimitBytes), kFileLimitBytes);
  EXPECT_EQ(UnpackedLimit(int64_t{1} << 30, kDataLimitBytes), int64_t{100} << 30);
  EXPECT_EQ(UnpackedLimit(kDataLimitBytes, kDataLimitBytes), kDataLimitBytes);
  EXPECT_EQ(UnpackedLimit(1000, 5000), 5000);
}

// However unequal they are: the second is larger than an equal share.
TEST_F(LargeDataTest, FilesAreLargeTogether) {
  constexpr int64_t kRowBytes = 200;
  for (const auto& [name, rows] : {std::pair("part0.npy", 10), {"part1.npy", 1000}}) {
    const std::string head = NpyHeader(DType::kUint8, Shape{rows, kRowBytes});
    Sparse(name, std::ssize(head) + rows * kRowBytes, {{0, head}});
  }
  for (const int64_t large_bytes : {700'000, 900'000}) {
    std::vector<std::string> notes;
    const Dataset data = LoadFeeds(folder_ / "part*.npy", {{"x", DType::kFloat32, {4, kRowBytes}, 0}}, {}, {}, notes,
                                   {.on_demand = true, .large_rows = false, .large_bytes = large_bytes});
    EXPECT_EQ(data.rows(), 1010);
    EXPECT_EQ(data.is_lazy("x"), large_bytes < 1010 * kRowBytes * 4);
  }
}

}  // namespace
}  // namespace gradloom
