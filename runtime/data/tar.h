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

// The regular files of an archive in ustar, pax, GNU or V7 format, in their order. Reads headers only. Throws Error(kData) for anything
// else than such an archive; for one that is damaged, truncated or compressed, or has another one behind it; and for links, whose content
// would have to be looked for; Error(kIo).
std::vector<TarMember> TarMembers(const InputFile& file);

}  // namespace gradloom
