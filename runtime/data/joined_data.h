// Data in several files.
#pragma once

#include <string>
#include <vector>

#include "runtime/data/dataset.h"

namespace gradloom {

// The files that a path means. It means itself if it exists, or contains none of *, ?, [ and {. Otherwise it means the files that match it
// as a shell pattern ("train/*.csv", "shards/{a,b}.npz"), sorted by the bytes of their names, whatever the locale. "{08..10}" in a pattern
// is 08, 09 and 10; then every name that braces make must exist. Throws Error(kData) if no file matches, Error(kIo) if such a name is
// missing, and naming a folder that cannot be read.
std::vector<std::string> FilesOf(const std::string& path);

// The rows of one of several files.
struct DataPart {
  std::string path;
  Dataset rows;
};

// All rows, one part after the other, of parts with the same columns, dtypes and row shapes. Rows from a source are made as before, except
// that random draws differ between parts; errors name the file.
Dataset Joined(std::vector<DataPart> parts);

}  // namespace gradloom
