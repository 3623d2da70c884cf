// Fuzzes weight files and the rank files of checkpoints, which have separate readers, and the index of divided weights.
#include <cstring>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/shard_index.h"
#include "tests/fuzz/fuzz_target.h"

namespace gradloom {
namespace {

constexpr int64_t kLimitBytes = int64_t{16} << 20;

std::string File(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data_bytes, '\1');
}

// Corrects the length of the header; otherwise reading would stop at any inserted byte.
std::string Repaired(std::string bytes) {
  if (bytes.size() < 8) return bytes;
  const size_t end = bytes.rfind('}');
  const uint64_t length = end == std::string::npos || end < 8 ? 0 : end + 1 - 8;
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}

void ReadBothWays(const std::string& bytes) {
  const FileInMemory file(bytes);
  MayRefuse([&] {
    const SafetensorsFile read(file.path(), kLimitBytes);
    for (const auto& [name, entry] : read.entries()) MayRefuse([&, &tensor = name] { read.Read(tensor); });
    MayRefuse([&] { read.Read("w"); });
  });
  // From memory with the alignment of a string.
  MayRefuse([&] { ViewSafetensors(bytes, "fuzz"); });
  MayRefuse([&] {
    for (const auto& [tensor, shard] : ParseShardIndex(bytes, SafetensorsFile::kMaxTensors, "fuzz")) {
      if (shard.empty() || shard.front() == '/' || ("/" + shard + "/").find("/../") != std::string::npos)
        Finding("a shard elsewhere: " + shard);
    }
  });
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  return {
      File(R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 24),
      File(R"({"__metadata__":{"format":"pt","step":"12"},"b":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
           R"("w":{"dtype":"BF16","shape":[4,1],"data_offsets":[16,24]}}  )",
           24),
      File(R"({"flag":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]},"none":{"shape":[0,7],"data_offsets":[1,1],"dtype":"F64"}})", 1),
      File(
          R"({"a\u0000\ud83d\ude00":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"w":{"dtype":"F16","shape":[4],"data_offsets":[8,16]}})",
          16),
      File("{}", 0),
      File(std::string(64, '[').append(R"({"w":1e2})"), 0),
      R"({"metadata": {"total_size": 32}, "weight_map": {"b": "m-00001-of-00002.safetensors", "w": "low/m-00002-of-00002.safetensors"}})",
      R"({"weight_map": {"w": "../w"}, "x": [[{}], null, true, -1.5]})"};
}

}  // namespace gradloom

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  gradloom::ReadBothWays(bytes);
  gradloom::ReadBothWays(gradloom::Repaired(bytes));
  return 0;
}
