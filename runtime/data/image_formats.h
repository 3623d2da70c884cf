// The two decoders behind image.h, one file each.
#pragma once

#include <string>

#include "runtime/data/image.h"

namespace gradloom {

// Throws Error(kLimit) beyond kMaxPixels, Error(kData) for an empty image. Called before memory is allocated.
void CheckImageSize(int64_t height, int64_t width, const std::string& where);

Image DecodeJpeg(const std::string& bytes, int channels, const std::string& where);  // image_jpeg.cc
Image DecodePng(const std::string& bytes, int channels, const std::string& where);   // image_png.cc

}  // namespace gradloom
