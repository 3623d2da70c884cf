// Archives in tar's formats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/file.h"

namespace gradloom {

// A file in an archive.
struct TarMember {
  std::string name;
  int64_t offset = 0, bytes = 0;  // of its content in the archive
};

// The regular files of an archive in ustar, pax, GNU or V7 format, in their order. Reads headers only. Ends at the first empty block, as
// tar does. Throws Error(kData) for anything else than such an archive, and for one that is damaged, truncated or compressed; Error(kIo).
std::vector<TarMember> TarMembers(const InputFile& file);

}  // namespace gradloom
