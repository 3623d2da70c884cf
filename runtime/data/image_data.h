// Data sets of images: a folder with a subfolder for each class, images without classes, or a table with paths.
#pragma once

#include <string>
#include <vector>

#include "runtime/data/data_files.h"
#include "runtime/data/training_data.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// Whether the selection means the paths of images in a column of a table ("images:COLUMN").
bool AreImagePaths(const std::string& selection);

// The columns for these feeds of a folder of images, or of an image. Their arrays are "images" and "labels" (int64, the classes by name);
// without a map, the first feed gets the images and the second the labels. `notes` gets the classes and warnings. `class_names`: labels are
// indices into it, so that other data with fewer classes is labelled like the training data; if it is empty, it becomes the folder's own.
// Throws Error(kData) for a class with another name, and for labels of images that have no classes, and Error(kData, kIo, kConfig) like
// ListImages and MakeImageRows.
Dataset LoadImageData(const DataFile& file, const std::vector<Feed>& feeds, const ColumnMap& columns, std::vector<std::string>& class_names,
                      std::vector<std::string>& notes);

// Adds the columns for feeds that are mapped to paths of images, which are relative to the folder of the table. Throws Error(kConfig) for a
// file that is not a table, and Error(kData, kIo, kConfig) like ReadCsvText and MakeImageRows.
void AddImagesOfPaths(Dataset& data, const DataFile& file, const std::vector<Feed>& feeds, const ColumnMap& columns);

// The columns for these feeds of image files, in this order; they have no classes. Throws as LoadImageData does for a folder without
// classes, and Error(kData) for a file that is not named like an image.
Dataset LoadImageFiles(const std::vector<DataFile>& files, const std::vector<Feed>& feeds, const ColumnMap& columns);

}  // namespace gradloom
