// PNG through libpng's simplified interface, which keeps its error handling to itself.
#include <png.h>

#include "runtime/base/error.h"
#include "runtime/session/image_formats.h"

namespace gradloom {

Image DecodePng(const std::string& bytes, int channels, const std::string& where) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  const auto fail = [&] {
    const std::string reason = png.message;
    png_image_free(&png);
    throw Error(ErrorCode::kData, "a damaged PNG image: " + Escaped(reason), where, "fetch or copy it again, or take it out of the data");
  };
  if (png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) == 0) fail();
  try {
    CheckImageSize(png.height, png.width, where);
  } catch (...) {
    png_image_free(&png);
    throw;
  }
  png.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  Image image{png.height, png.width, channels, {}};
  image.samples.resize(PNG_IMAGE_SIZE(png));
  const png_color black{0, 0, 0};
  if (png_image_finish_read(&png, &black, image.samples.data(), 0, nullptr) == 0) fail();
  return image;
}

}  // namespace gradloom
