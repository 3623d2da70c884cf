#include "runtime/plan/plan_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/hash.h"
#include "runtime/plan/plan_message.h"

namespace gradloom {
namespace {

static_assert(std::endian::native == std::endian::little, "plans are little-endian, and so are the machines we know");

// A first byte that is no text, and line ends of both kinds: a transfer as text destroys it visibly.
constexpr std::array<char, 8> kMagic = {'\x8b', 'G', 'L', 'P', '\r', '\n', '\x1a', '\n'};
constexpr int64_t kMaxFileBytes = int64_t{64} << 30;

// The first 64 bytes. The message follows, then the data section at the next multiple of 64, to the end.
struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = Plan::kFormatVersion;
  uint32_t reserved = 0;
  int64_t message_bytes = 0;
  int64_t data_offset = 0;
  int64_t data_bytes = 0;
  uint64_t hash = 0;  // XXH3-64 of the file with zeros here
  std::array<char, 16> reserved2{};
};
static_assert(sizeof(Header) == kAlignmentBytes);

// Everything of the file in order but for the hash, in pieces: write(data, bytes).
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

[[noreturn]] void Refuse(const InputFile& file, const std::string& message, const std::string& help) {
  throw Error(ErrorCode::kPlan, message, Escaped(file.path(), 4096), help);
}

constexpr char kDamaged[] = "the file is damaged or cut short: copy it again, or compile the model again";

Header ReadHeader(const InputFile& file) {
  Header header;
  if (file.bytes() == 0) Refuse(file, "the file is empty", "compile the model again");
  if (file.bytes() < static_cast<int64_t>(sizeof header))
    Refuse(file, "the file has " + std::to_string(file.bytes()) + " bytes, too few for a plan", kDamaged);
  file.ReadAt(0, &header, sizeof header);
  if (header.magic != kMagic) Refuse(file, "this is no plan: it does not begin as one", "a plan is what the verb compile writes");
  if (header.version != Plan::kFormatVersion) {
    Refuse(file,
           "the plan has format version " + std::to_string(header.version) + ", and this program reads version " +
               std::to_string(Plan::kFormatVersion),
           header.version > Plan::kFormatVersion ? "use a newer gradloom, or compile the model again with this one"
                                                 : "compile the model again with this gradloom");
  }
  return header;
}

void CheckSizes(const InputFile& file, const Header& header) {
  if (header.message_bytes < 0 || header.message_bytes > kMaxMessageBytes)
    Refuse(file, "the structure claims " + std::to_string(header.message_bytes) + " bytes", kDamaged);
  const int64_t data_offset = AlignUp(static_cast<int64_t>(sizeof header) + header.message_bytes, kAlignmentBytes);
  const auto end = CheckedAdd(data_offset, header.data_bytes);
  if (header.data_offset != data_offset || header.data_bytes < 0 || end != file.bytes()) {
    Refuse(file, "the file has " + std::to_string(file.bytes()) + " bytes, and its header describes another size", kDamaged);
  }
}

void CheckHash(const InputFile& file, Header header) {
  const uint64_t wanted = std::exchange(header.hash, 0);
  Hash hash;
  hash.Add(&header, sizeof header);
  std::vector<char> piece(static_cast<size_t>(std::min<int64_t>(file.bytes(), 1 << 20)));
  for (int64_t at = sizeof header; at < file.bytes();) {
    const int64_t bytes = std::min(static_cast<int64_t>(piece.size()), file.bytes() - at);
    file.ReadAt(at, piece.data(), bytes);
    hash.Add(piece.data(), bytes);
    at += bytes;
  }
  if (hash.value() != wanted) Refuse(file, "the contents do not match their hash", kDamaged);
}

}  // namespace

void WritePlan(const Plan& plan, const std::string& path) {
  const EncodedPlan encoded = EncodePlan(plan);
  const Header header = HeaderOf(encoded);
  AtomicFile file(path);
  ForEachPiece(header, encoded, [&](const void* data, int64_t bytes) { file.Write(data, bytes); });
  file.Commit();
}

Plan ReadPlan(const std::string& path) {
  const InputFile file(path, kMaxFileBytes);
  const Header header = ReadHeader(file);
  CheckSizes(file, header);
  // First of all: damage is called damage, whatever it hit.
  CheckHash(file, header);
  std::string message(static_cast<size_t>(header.message_bytes), '\0');
  file.ReadAt(sizeof header, message.data(), header.message_bytes);
  try {
    return DecodePlan(message, header.data_bytes,
                      [&](int64_t offset, void* out, int64_t bytes) { file.ReadAt(header.data_offset + offset, out, bytes); });
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPlan) throw;
    Refuse(file, error.message(), "the verb compile did not write this: do not use it");
  }
}

std::string PlanHash(const Plan& plan) { return HashText(HeaderOf(EncodePlan(plan)).hash); }

}  // namespace gradloom
