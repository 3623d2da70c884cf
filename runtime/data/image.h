// Images from JPEG and PNG files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/file.h"

namespace gradloom {

// 8-bit samples, row by row, the channels of a pixel side by side.
struct Image {
  int64_t height = 0, width = 0;
  int channels = 0;  // 1: grey, 3: red, green, blue
  std::vector<uint8_t> samples;

  const uint8_t* at(int64_t y, int64_t x) const { return samples.data() + (y * width + x) * channels; }
  uint8_t* at(int64_t y, int64_t x) { return samples.data() + (y * width + x) * channels; }
};

// Limits for one image, since a small file can claim a large image.
inline constexpr int64_t kMaxPixels = int64_t{1} << 26;
inline constexpr int64_t kImageFileLimitBytes = int64_t{256} << 20;

// Reads a JPEG or PNG file, whatever its name, as grey or RGB. Transparent pixels lie on black, and 16-bit samples become 8-bit ones.
// Throws Error(kData) naming the file for another format and for a damaged or truncated file, Error(kLimit) beyond kMaxPixels (before
// memory is allocated), Error(kIo) like InputFile.
Image ReadImage(const std::string& path, int channels);

// The bytes of an image: a whole file, or a part of an archive.
struct ImageBytes {
  const InputFile& file;
  int64_t offset = 0, bytes = 0;  // at most kImageFileLimitBytes
  std::string path;               // that errors show
};
// The same from an open file.
Image ReadImage(const ImageBytes& from, int channels);

// The memory that it takes to read an image and to scale it down, by its header. If that is damaged, only its bytes count.
int64_t BytesToRead(const ImageBytes& from);

// The same from bytes; `where` names them.
Image DecodeImage(const std::string& bytes, int channels, const std::string& where);

// Scales with a triangle filter as wide as the scale, so that shrinking averages (Pillow's BILINEAR, torchvision's antialiased one).
Image Resized(const Image& image, int64_t height, int64_t width);

// The window at (top, left). It may extend beyond the image, where it is zero.
Image Cropped(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width);

// The mirror images, left to right and top to bottom.
Image Flipped(const Image& image);
Image FlippedDown(const Image& image);

// Turned about its middle, against the clock, at the same size; bilinear, with zeros where there is no image (Pillow's `rotate`).
Image Rotated(const Image& image, double degrees);

}  // namespace gradloom
