// Data sets of images: a folder with a subfolder for each class, images without classes, or a table with paths.
#pragma once

#include <string>
#include <vector>

#include "runtime/data/data_files.h"
#include "runtime/data/training_data.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// Whether the data is a folder of images or an image, or the map uses a column of paths ("images:COLUMN") of a table.
bool HasImages(const DataFile& file, const ColumnMap& columns);

// The columns for these feeds. The arrays of a folder are "images" and "labels" (int64, the classes by name); without a map, the first feed
// gets the images and the second the labels. In a table, "images:COLUMN" are paths, relative to the table's folder; other columns are
// numbers, or classes by the names in `named`. `notes` gets the classes and warnings. `class_names`: labels are indices into it, so that
// other data with fewer classes is labelled like the training data; if it is empty, it becomes the folder's own. Throws Error(kData) for a
// class with another name, and for labels of images that have no classes, and Error(kData, kIo, kConfig) like ListImages, ReadCsv and
// MakeImageRows.
Dataset LoadImageData(const DataFile& file, const std::vector<Feed>& feeds, const ColumnMap& columns, const NamedClasses& named,
                      std::vector<std::string>& class_names, std::vector<std::string>& notes);

// The columns for these feeds of image files, in this order; they have no classes. Throws as LoadImageData does for a folder without
// classes, and Error(kData) for a file that is not named like an image.
Dataset LoadImageFiles(const std::vector<DataFile>& files, const std::vector<Feed>& feeds, const ColumnMap& columns);

}  // namespace gradloom
