#include "runtime/session/event_file.h"

#include <gtest/gtest.h>

#include "runtime/base/file.h"
#include "tests/base/temporary_folder.h"

namespace gradloom {
namespace {

uint32_t Unmasked(uint32_t masked) {
  const uint32_t rotated = masked - 0xA282EAD8;
  return (rotated >> 17) | (rotated << 15);
}

uint64_t LittleEndian(const std::string& bytes, size_t at, int count) {
  uint64_t value = 0;
  for (int i = 0; i < count; ++i) value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[at + static_cast<size_t>(i)])) << (8 * i);
  return value;
}

// The examples in RFC 3720, appendix B.4.
TEST(EventFileTest, Checksum) {
  EXPECT_EQ(Unmasked(MaskedCrc32c(std::string(32, '\0'))), 0x8A9136AAu);
  EXPECT_EQ(Unmasked(MaskedCrc32c(std::string(32, '\xff'))), 0x62A8AB43u);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  EXPECT_EQ(Unmasked(MaskedCrc32c(rising)), 0x46DD794Eu);
}

TEST(EventFileTest, RecordsAreFramedAndWrittenImmediately) {
  const TemporaryFolder folder;
  EventFile file(folder.path());
  file.Add(7, {{"train/loss", 0.5}, {"train/lr", 1e-3}});
  const std::string bytes = ReadWholeFile(file.path());
  size_t at = 0;
  int records = 0;
  for (; at < bytes.size(); ++records) {
    const uint64_t length = LittleEndian(bytes, at, 8);
    EXPECT_EQ(LittleEndian(bytes, at + 8, 4), MaskedCrc32c(std::string_view(bytes).substr(at, 8)));
    ASSERT_LE(at + 16 + length, bytes.size());
    EXPECT_EQ(LittleEndian(bytes, at + 12 + length, 4), MaskedCrc32c(std::string_view(bytes).substr(at + 12, length)));
    at += 16 + length;
  }
  EXPECT_EQ(records, 2);
  EXPECT_NE(bytes.find("brain.Event:2"), std::string::npos);
  EXPECT_NE(bytes.find("train/loss"), std::string::npos);
}

// TensorBoard reads the files of a run in the order of their names, and a resumed run's records come last.
TEST(EventFileTest, LaterFilesComeLater) {
  const TemporaryFolder folder;
  // Written before the clock was set back, and two files that are no event files of this form.
  for (const char* name :
       {"events.out.tfevents.4102444800.host.1.0", "events.out.tfevents.99999999999999.host.1.0", "events.out.tfevents.x"})
    WriteWithoutSync(folder / name, "");
  const EventFile a(folder.path()), b(folder.path());
  EXPECT_GT(a.path(), folder / "events.out.tfevents.4102444800.host.1.0");
  EXPECT_LT(a.path(), folder / "events.out.tfevents.4102444802");
  EXPECT_GT(b.path(), a.path());
}

TEST(EventFileTest, FilesOfOneProcessHaveDistinctNames) {
  const TemporaryFolder folder;
  const EventFile a(folder.path()), b(folder.path());
  EXPECT_NE(a.path(), b.path());
  EXPECT_EQ(ErrorOf([&] { EventFile(folder / "none"); }).code(), ErrorCode::kResource);
}

}  // namespace
}  // namespace gradloom
