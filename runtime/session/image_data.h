// Data sets of images: a folder with a sub-folder for each class, or a table with their paths.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/session/data_files.h"
#include "runtime/session/training_data.h"

namespace gradloom {

// Whether these are a folder of images, or the map takes a column of paths ("images:COLUMN") from a table.
bool HasImages(const DataFile& file, const ColumnMap& columns);

// The columns for these feeds. Of a folder the arrays are "images" and "labels" (int64, the classes by name); the first
// feed is the images and the second the labels where no map says it. Of a table "images:COLUMN" are paths, from the
// table's folder on; other columns are numbers. `notes` gets the classes and what is odd.
// `class_names`: labels count the names in it, so that other data with fewer classes are labelled as those trained on; where it is empty it
// becomes the folder's own. Throws Error(kData) for a class with another name, Error(kData, kIo, kConfig) as ListImages, ReadCsv and
// MakeImageRows.
Dataset LoadImageData(const DataFile& file, const std::vector<Feed>& feeds, const ColumnMap& columns, std::vector<std::string>& class_names,
                      std::vector<std::string>& notes);

}  // namespace gradloom
