// Images as rows of a data set.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/session/dataset.h"

namespace gradloom {

// The images of a folder with one sub-folder a class, and the classes: sorted by name, as torchvision's ImageFolder.
struct ImageFolder {
  std::vector<std::string> paths;    // sorted by class, then by name
  std::vector<int64_t> labels;       // of each path: its class
  std::vector<std::string> classes;  // names
  int64_t others = 0;                // images of kinds that are not read: .webp, .bmp ...
  std::string first_other;           // the first of their paths; "": there is none
};

// Files that end in .jpg, .jpeg or .png, in any case, of the sub-folders and theirs. What is hidden (its name begins with a dot) is nothing
// that a person put there as a class or an image. Throws Error(kData) where there are
// none, Error(kIo) where the folder cannot be read.
ImageFolder ListImages(const std::string& folder);

// Whether a path is a folder with at least one sub-folder: what ListImages is for.
bool IsImageFolder(const std::string& path);

// The rows of a data set: [channels, height, width] in float32, or [height, width, channels] where the first extent is none of 1 and 3;
// values 0 to 255 before transforms. `row_shape` is the model's; 1 channel is grey, 3 are RGB. An image of another size is stretched to it
// unless a transform does otherwise.
//
// Transforms, in the order in which they are given:
//   resize               stretch to the model's size
//   resize_crop          scale the shorter side to the model's, keep the middle
//   random_crop PAD      a random window of the model's size, of the image with PAD zeros around it
//   random_flip          left and right exchanged for one image in two
//   scale, normalize     as Transform has them
// Throws Error(kConfig) for a row shape that is no image. `where`: the data, for that message.
std::shared_ptr<const RowSource> MakeImageRows(std::vector<std::string> paths, const Shape& row_shape, const std::string& where = "");

}  // namespace gradloom
