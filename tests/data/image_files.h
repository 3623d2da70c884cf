// PNG and JPEG files for tests, encoded by libpng and libjpeg.
#pragma once

#include <png.h>
// png.h includes stdio.h, which jpeglib.h needs.
#include <jpeglib.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "runtime/data/image.h"

namespace gradloom {

inline std::string PngOf(const Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t bytes = 0;
  png_image_write_to_memory(&png, nullptr, &bytes, 0, image.samples.data(), 0, nullptr);
  std::string text(bytes, '\0');
  png_image_write_to_memory(&png, text.data(), &bytes, 0, image.samples.data(), 0, nullptr);
  text.resize(bytes);
  return text;
}

inline std::string JpegOf(const Image& image, int quality = 95, bool progressive = false) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &bytes, &size);
  jpeg.image_width = static_cast<JDIMENSION>(image.width);
  jpeg.image_height = static_cast<JDIMENSION>(image.height);
  jpeg.input_components = image.channels;
  jpeg.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, quality, TRUE);
  if (progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(image.at(jpeg.next_scanline, 0));
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string text(reinterpret_cast<char*>(bytes), size);
  jpeg_destroy_compress(&jpeg);
  std::free(bytes);
  return text;
}

// A smooth image in which every pixel differs from its neighbors.
inline Image Picture(int64_t height, int64_t width, int channels, int seed = 0) {
  Image image{height, width, channels, std::vector<uint8_t>(static_cast<size_t>(height * width * channels))};
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) image.at(y, x)[c] = static_cast<uint8_t>((3 * y + 5 * x + 60 * c + 17 * seed) % 200 + 20);
    }
  }
  return image;
}

}  // namespace gradloom
