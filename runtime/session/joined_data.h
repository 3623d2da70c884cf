// Data that lie in several files.
#pragma once

#include <string>
#include <vector>

#include "runtime/session/dataset.h"

namespace gradloom {

// The files that a path means: itself where there is something of this name or it holds none of *, ?, [ and {; else those that match it as
// a shell's pattern ("train/*.csv", "shards/{a,b}.npz"), in the order of the bytes of their names, whatever the machine's locale is.
// Error(kData) where none does, Error(kIo) naming a folder that cannot be read.
std::vector<std::string> FilesOf(const std::string& path);

// The rows of a file among several.
struct DataPart {
  std::string path;
  Dataset rows;
};

// All rows, one part after the other, of parts with the same columns, dtypes and row shapes. Rows that a source makes are made by it as
// before, but for random draws, which differ between parts; what it refuses names the file.
Dataset Joined(std::vector<DataPart> parts);

}  // namespace gradloom
