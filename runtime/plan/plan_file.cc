#include "runtime/plan/plan_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/hash.h"
#include "runtime/base/host_memory.h"
#include "runtime/plan/plan_message.h"

namespace gradloom {
namespace {

static_assert(std::endian::native == std::endian::little, "plans are little-endian, and so are the machines we know");

// A first byte that is not text, and line ends of both kinds, so that a transfer in text mode visibly corrupts the file.
constexpr std::array<char, 8> kMagic = {'\x8b', 'G', 'L', 'P', '\r', '\n', '\x1a', '\n'};
constexpr int64_t kMaxFileBytes = int64_t{64} << 30;

// The first 64 bytes. The message follows, then the data section, which starts at the next multiple of 64 and extends to the end.
struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = Plan::kFormatVersion;
  uint32_t reserved = 0;
  int64_t message_bytes = 0;
  int64_t data_offset = 0;
  int64_t data_bytes = 0;
  uint64_t hash = 0;  // XXH3-64 of the file with this field set to zero
  std::array<char, 16> reserved2{};
};
static_assert(sizeof(Header) == kAlignmentBytes);

// Calls write(data, bytes) for everything in the file except the hash, in order.
template <typename Write>
void ForEachPiece(const Header& header, const EncodedPlan& encoded, Write&& write) {
  static constexpr std::array<char, kAlignmentBytes> kZeros{};
  write(&header, static_cast<int64_t>(sizeof header));
  write(encoded.message.data(), header.message_bytes);
  int64_t at = sizeof header + header.message_bytes;
  for (const EncodedPlan::Piece& piece : encoded.pieces) {
    write(kZeros.data(), header.data_offset + piece.offset - at);
    write(piece.data, piece.bytes);
    at = header.data_offset + piece.offset + piece.bytes;
  }
  write(kZeros.data(), header.data_offset + header.data_bytes - at);
}

Header HeaderOf(const EncodedPlan& encoded) {
  Header header;
  header.message_bytes = static_cast<int64_t>(encoded.message.size());
  header.data_offset = AlignUp(static_cast<int64_t>(sizeof header) + header.message_bytes, kAlignmentBytes);
  header.data_bytes = encoded.data_bytes;
  Hash hash;
  ForEachPiece(header, encoded, [&](const void* data, int64_t bytes) { hash.Add(data, bytes); });
  header.hash = hash.value();
  return header;
}

// The bytes of a plan, in a file or in memory.
struct PlanBytes {
  std::string where;  // for error messages
  int64_t bytes = 0;
  std::function<void(int64_t offset, void* out, int64_t bytes)> read_at;
};

[[noreturn]] void Refuse(const PlanBytes& source, const std::string& message, const std::string& help) {
  throw Error(ErrorCode::kPlan, message, source.where, help);
}

constexpr char kDamaged[] = "the file is damaged or cut short: copy it again, or compile the model again";

Header ReadHeader(const PlanBytes& source) {
  Header header;
  if (source.bytes == 0) Refuse(source, "the file is empty", "compile the model again");
  if (source.bytes < static_cast<int64_t>(sizeof header))
    Refuse(source, "the file has " + std::to_string(source.bytes) + " bytes, too few for a plan", kDamaged);
  source.read_at(0, &header, sizeof header);
  if (header.magic != kMagic)
    Refuse(source, "not a plan: it does not start with a plan's magic number", "plans are written by the compile command");
  if (header.version != Plan::kFormatVersion) {
    Refuse(source,
           "the plan has format version " + std::to_string(header.version) + ", but this program reads version " +
               std::to_string(Plan::kFormatVersion),
           header.version > Plan::kFormatVersion ? "use a newer gradloom, or compile the model again with this one"
                                                 : "compile the model again with this gradloom");
  }
  return header;
}

void CheckSizes(const PlanBytes& source, const Header& header) {
  if (header.message_bytes < 0 || header.message_bytes > kMaxMessageBytes)
    Refuse(source, "the structure claims " + std::to_string(header.message_bytes) + " bytes", kDamaged);
  const int64_t data_offset = AlignUp(static_cast<int64_t>(sizeof header) + header.message_bytes, kAlignmentBytes);
  const auto end = CheckedAdd(data_offset, header.data_bytes);
  if (header.data_offset != data_offset || header.data_bytes < 0 || end != source.bytes) {
    Refuse(source, "the file has " + std::to_string(source.bytes) + " bytes, but its header specifies another size", kDamaged);
  }
}

void CheckHash(const PlanBytes& source, Header header) {
  const uint64_t wanted = std::exchange(header.hash, 0);
  Hash hash;
  hash.Add(&header, sizeof header);
  std::vector<char> piece(static_cast<size_t>(std::min<int64_t>(source.bytes, 1 << 20)));
  for (int64_t at = sizeof header; at < source.bytes;) {
    const int64_t bytes = std::min(static_cast<int64_t>(piece.size()), source.bytes - at);
    source.read_at(at, piece.data(), bytes);
    hash.Add(piece.data(), bytes);
    at += bytes;
  }
  if (hash.value() != wanted) Refuse(source, "the contents do not match their hash", kDamaged);
}

Plan Read(const PlanBytes& source, PlanTensors tensors) {
  const Header header = ReadHeader(source);
  CheckSizes(source, header);
  // Checked first, so that damage is reported as damage whatever it affects.
  CheckHash(source, header);
  if (tensors == PlanTensors::kRead) RequireHostMemory(header.data_bytes, "the plan", source.where, "end other programs");
  std::string message(static_cast<size_t>(header.message_bytes), '\0');
  source.read_at(sizeof header, message.data(), header.message_bytes);
  try {
    const auto read = [&](int64_t offset, void* out, int64_t bytes) { source.read_at(header.data_offset + offset, out, bytes); };
    return DecodePlan(message, header.data_bytes, read, tensors);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPlan) throw;
    Refuse(source, error.message(), "the compile command did not write this file; do not use it");
  }
}

// A plan that could be written but not read would only be found out when its run is resumed.
void CheckReadable(const EncodedPlan& encoded) {
  try {
    DecodePlan(
        encoded.message, encoded.data_bytes, [](int64_t, void*, int64_t) {}, PlanTensors::kSkipped);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPlan) throw;
    throw Error(ErrorCode::kLimit, "the plan is more than a file may hold: " + error.message(), "",
                "give the nodes and weights of the model shorter names, or train a smaller model");
  }
}

}  // namespace

void WritePlan(const Plan& plan, const std::string& path) {
  const EncodedPlan encoded = EncodePlan(plan);
  CheckReadable(encoded);
  const Header header = HeaderOf(encoded);
  AtomicFile file(path);
  ForEachPiece(header, encoded, [&](const void* data, int64_t bytes) { file.Write(data, bytes); });
  file.Commit();
}

Plan ReadPlan(const std::string& path, PlanTensors tensors) {
  const InputFile file(path, kMaxFileBytes);
  const auto read_at = [&](int64_t offset, void* out, int64_t bytes) { file.ReadAt(offset, out, bytes); };
  return Read({Escaped(path, 4096), file.bytes(), read_at}, tensors);
}

// No read passes the end: sizes are checked against the number of bytes first.
Plan ReadPlanFrom(std::string_view bytes, const std::string& name) {
  const auto read_at = [&](int64_t offset, void* out, int64_t count) {
    GRADLOOM_CHECK(offset >= 0 && count >= 0 && offset + count <= static_cast<int64_t>(bytes.size()));
    std::memcpy(out, bytes.data() + offset, static_cast<size_t>(count));
  };
  return Read({Escaped(name, 4096), static_cast<int64_t>(bytes.size()), read_at}, PlanTensors::kRead);
}

std::string PlanHash(const Plan& plan) { return HashText(HeaderOf(EncodePlan(plan)).hash); }

}  // namespace gradloom
