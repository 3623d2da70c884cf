// PNG through libpng's simplified interface, which handles errors internally.
#include <png.h>

#include <string_view>

#include "runtime/base/error.h"
#include "runtime/data/image_formats.h"

namespace gradloom {
namespace {

// Luma as in JPEG and Pillow (ITU-R BT.601), computed from the samples as stored. libpng would convert to linear light, so an image would
// have different greys as a PNG than as a JPEG.
Image Grey(const Image& image) {
  Image grey{image.height, image.width, 1, std::vector<uint8_t>(image.samples.size() / 3)};
  const uint8_t* rgb = image.samples.data();
  for (uint8_t& sample : grey.samples) {
    sample = static_cast<uint8_t>((19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 32768) >> 16);
    rgb += 3;
  }
  return grey;
}

// Blends red, green, blue and alpha with black, in place. On the samples as stored, as Pillow does; libpng would blend linear light.
void BlendWithBlack(std::vector<uint8_t>& samples) {
  uint8_t* rgb = samples.data();
  for (size_t at = 0; at < samples.size(); at += 4, rgb += 3) {
    const uint8_t* const pixel = samples.data() + at;
    const int alpha = pixel[3];
    for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>((pixel[c] * alpha + 127) / 255);
  }
  samples.resize(samples.size() / 4 * 3);
}

// The file without its colour space chunks (gAMA and the like), which other readers ignore as well: libpng would use them to transform the
// samples. Damage is left for libpng to detect.
std::string WithoutColorChunks(const std::string& bytes) {
  constexpr size_t kSignatureBytes = 8, kFrameBytes = 12;  // of a chunk: length, name and checksum
  std::string kept = bytes.substr(0, kSignatureBytes);
  size_t at = kSignatureBytes;
  while (at + kFrameBytes <= bytes.size()) {
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<unsigned char>(bytes[at + i]);
    const std::string_view name(bytes.data() + at + 4, 4);
    if (name == "IDAT" || length > bytes.size() - at - kFrameBytes) break;
    if (name != "gAMA" && name != "cHRM" && name != "sRGB" && name != "iCCP") kept.append(bytes, at, length + kFrameBytes);
    at += length + kFrameBytes;
  }
  return kept.append(bytes, at);
}

}  // namespace

Image DecodePng(const std::string& bytes, int channels, const std::string& where) {
  const std::string plain = WithoutColorChunks(bytes);
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  const auto fail = [&] {
    const std::string reason = png.message;
    png_image_free(&png);
    throw Error(ErrorCode::kData, "a damaged PNG image: " + Escaped(reason), where,
                "download or copy it again, or remove it from the data");
  };
  if (png_image_begin_read_from_memory(&png, plain.data(), plain.size()) == 0) fail();
  try {
    CheckImageSize(png.height, png.width, where);
  } catch (...) {
    png_image_free(&png);
    throw;
  }
  const bool transparent = (png.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  png.format = transparent ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB;
  // Treats 16-bit samples like 8-bit ones; without this flag they are taken as linear light.
  png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  Image image{png.height, png.width, 3, {}};
  image.samples.resize(PNG_IMAGE_SIZE(png));
  if (png_image_finish_read(&png, nullptr, image.samples.data(), 0, nullptr) == 0) fail();
  if (transparent) BlendWithBlack(image.samples);
  return channels == 1 ? Grey(image) : image;
}

}  // namespace gradloom
