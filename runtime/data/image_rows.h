// Images as rows of a data set.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/data/tar.h"

namespace gradloom {

// The images of a folder with one subfolder per class, and the classes, sorted by name like torchvision's ImageFolder. If no subfolder has
// an image, the images of the folder itself, which have no classes.
struct ImageFolder {
  std::vector<std::string> paths;    // sorted by class, then by name
  std::vector<int64_t> labels;       // by path: its class; empty if there are no classes
  std::vector<std::string> classes;  // names
  int64_t others = 0;                // number of images in formats that are not read: .webp, .bmp ...
  std::string first_other;           // the path of the first of them; "" if there is none
  int64_t loose = 0;                 // number of images in the folder itself beside those of classes
  std::string first_loose;           // the path of the first of them; "" if there is none
};

// Files that end in .jpg, .jpeg or .png, in any case, in the subfolders and their subfolders. Hidden files and folders (whose names begin
// with a dot) are ignored. Throws Error(kData) if there are none, Error(kIo) if the folder cannot be read.
ImageFolder ListImages(const std::string& folder);

// Whether a path is a folder with at least one subfolder or image, for ListImages.
bool IsImageFolder(const std::string& path);

// Whether a path ends like that of an image which can be read. The file need not exist.
bool IsImageName(const std::string& path);

// The rows of a data set: [channels, height, width] in float32, or [height, width, channels] if the first extent is neither 1 nor 3; values
// 0 to 255 before transforms. `row_shape` is the model's; 1 channel is grey, 3 are RGB. An image of another size is stretched to it unless
// a transform does otherwise.
//
// Transforms, in the given order: those of ImageStep (runtime/data/image_steps.h), and scale and normalize as Transform has them.
// Throws Error(kConfig) for a row shape that is not an image. `where`: the data, for that message. `list`: the file that names the paths,
// for messages about a missing image; "" if they were found in a folder.
std::shared_ptr<const RowSource> MakeImageRows(std::vector<std::string> paths, const Shape& row_shape, const std::string& where = "",
                                               const std::string& list = "");
// The same for images in an archive. Their paths are "ARCHIVE/NAME". Throws Error(kLimit), too, for one above kImageFileLimitBytes.
std::shared_ptr<const RowSource> MakeImageRows(const std::string& archive, std::vector<TarMember> images, const Shape& row_shape);

// The paths of the images by row, if the source was made by MakeImageRows; otherwise null.
const std::vector<std::string>* ImagePathsOf(const RowSource& rows);

}  // namespace gradloom
