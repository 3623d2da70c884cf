// Data sets in tar archives, as webdataset writes them: the files of a sample stand together and differ in their endings only.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/data/data_files.h"
#include "runtime/data/training_data.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// The columns for these feeds of an archive. The key of a sample is a name up to the first dot after the last slash; the ending is what
// follows, in lower case. Arrays are "images" (the ending jpg, jpeg or png), "labels" (cls), or an ending: images, or text with the same
// number of numbers in each sample. Without a map, the first feed gets the images and the second the labels. Images stay in the archive and
// are read row by row. Samples of which no array needs a file are left out. `notes` gets warnings of NaN and infinity; of NaN not for feeds
// in `filled`. Throws Error(kData) for a sample that lacks a file or has two, and for text that is not numbers; Error(kConfig) like
// MakeImageRows; Error(kResource) for numbers that do not fit into memory; and like TarMembers.
Dataset LoadArchive(const DataFile& file, const std::vector<Feed>& feeds, const ColumnMap& columns, const std::set<std::string>& filled,
                    std::vector<std::string>& notes);

// What an archive has: the number of samples, and of files by their endings.
struct ArchiveContent {
  int64_t samples = 0;
  std::map<std::string, int64_t> endings;
};
ArchiveContent ContentOf(const std::string& path);

}  // namespace gradloom
