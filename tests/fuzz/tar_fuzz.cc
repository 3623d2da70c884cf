// Fuzzes tar archives, also with the checksums of their headers corrected.
#include <cstdio>
#include <limits>

#include "runtime/base/file.h"
#include "runtime/data/tar.h"
#include "tests/fuzz/fuzz_target.h"

namespace gradloom {
namespace {

constexpr size_t kBlock = 512;

void SetSum(std::string& file, size_t at) {
  file.replace(at + 148, 8, 8, ' ');
  unsigned sum = 0;
  for (size_t i = at; i < at + kBlock; ++i) sum += static_cast<unsigned char>(file[i]);
  char digits[8];
  std::snprintf(digits, sizeof digits, "%06o", sum & 0777777);
  file.replace(at + 148, 7, digits, 7);
}

std::string Member(const std::string& name, char type, const std::string& content, const std::string& size = "") {
  std::string file(kBlock, '\0');
  file.replace(0, name.size(), name);
  char digits[13];
  std::snprintf(digits, sizeof digits, "%011zo", content.size());
  file.replace(124, 12, size.empty() ? std::string(digits, 12) : size);
  file[156] = type;
  file.replace(257, 8,
               std::string("ustar\0"
                           "00",
                           8));
  SetSum(file, 0);
  return file + content + std::string((kBlock - content.size() % kBlock) % kBlock, '\0');
}

void Read(const std::string& bytes) {
  const FileInMemory memory(bytes);
  MayRefuse([&] {
    const InputFile file(memory.path(), std::numeric_limits<int64_t>::max());
    for (const TarMember& member : TarMembers(file)) {
      if (member.offset < 0 || member.bytes < 0 || member.offset > file.bytes() || member.bytes > file.bytes() - member.offset)
        Finding("a member beyond the archive");
    }
  });
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const std::string end(2 * kBlock, '\0'), file = Member("a/1.cls", '0', "7");
  const std::string binary = std::string("\x80\0\0\0\0\0\0\0\0\0\0", 11) + "\1";
  return {file + Member("a/1.png", '0', std::string(700, 'x')) + end,
          Member("", 'x', "21 path=long/name.cls\n17 size=1\nno") + file,
          Member("", 'x', "22 path=long/name.cls\n9 size=1\n") + file + end,
          Member("././@LongLink", 'L', std::string("a/very/long/name.cls\0", 21)) + file + end,
          Member("", 'g', "11 a=bcdefg\n") + Member("a/", '5', "") + file,
          Member("b.cls", '\0', "1", binary) + end,
          Member("s", 'S', "") + end,
          std::string("\x1f\x8b\x08", 3) + std::string(600, '\1'),
          end};
}

}  // namespace gradloom

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gradloom;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  Read(bytes);
  for (size_t at = 0; at + kBlock <= bytes.size(); at += kBlock) {
    if (bytes.compare(at + 257, 5, "ustar") == 0) SetSum(bytes, at);
  }
  Read(bytes);
  return 0;
}
