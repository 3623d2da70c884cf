// Fuzzes JPEG and PNG images, and resizing them to a model's input size.
#include <png.h>
#include <zlib.h>

#include <cstring>

#include "runtime/data/image_rows.h"
#include "tests/data/image_files.h"
#include "tests/fuzz/fuzz_target.h"

namespace gradloom {
namespace {

// Corrects the chunk checksums of a PNG, since libpng stops at a wrong one.
std::string Repaired(std::string png) {
  const auto number = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(png[at + i]);
    return value;
  };
  for (size_t at = 8; at + 12 <= png.size();) {
    const uint64_t length = number(at);
    if (length > png.size() - at - 12) break;
    const uLong crc = crc32(0, reinterpret_cast<const Bytef*>(png.data() + at + 4), static_cast<uInt>(length + 4));
    for (size_t i = 0; i < 4; ++i) png[at + 8 + length + i] = static_cast<char>(crc >> (24 - 8 * i));
    at += 12 + length;
  }
  return png;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (const int channels : {1, 3}) {
    for (const auto& [height, width] : {std::pair(8, 8), std::pair(3, 17), std::pair(33, 2)}) {
      seeds.push_back(PngOf(Picture(height, width, channels)));
      seeds.push_back(JpegOf(Picture(height, width, channels)));
    }
  }
  return seeds;
}

}  // namespace gradloom

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gradloom;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  for (const int channels : {1, 3}) {
    MayRefuse([&] { DecodeImage(bytes, channels, "fuzz"); });
  }
  const FileInMemory file(bytes.starts_with("\x89PNG\r\n\x1A\n") ? Repaired(bytes) : bytes);
  for (const std::string transform : {"resize", "resize_crop"}) {
    MayRefuse([&] {
      const auto whole = MakeImageRows({file.path()}, {3, 12, 10});
      const auto rows = whole->With(whole->Fitted(transform, {}), true);
      std::vector<float> row(3 * 12 * 10);
      rows->Read(0, {}, row.data());
    });
  }
  return 0;
}
