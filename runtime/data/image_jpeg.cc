// JPEG through libjpeg-turbo. Its errors exit by longjmp, so no object with a destructor may live between setjmp and the calls.
#include <csetjmp>
#include <cstdio>
// jpeglib.h needs stdio before it.
#include <jerror.h>
#include <jpeglib.h>

#include "runtime/base/error.h"
#include "runtime/data/image_formats.h"

namespace gradloom {
namespace {

struct Failure {
  jpeg_error_mgr manager;  // first member: libjpeg passes its address back
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

Failure& FailureOf(j_common_ptr state) { return *reinterpret_cast<Failure*>(state->err); }

void Fail(j_common_ptr state) {
  Failure& failure = FailureOf(state);
  failure.manager.format_message(state, failure.message);
  std::longjmp(failure.jump, 1);
}

// A progressive image has about ten scans. Each scan costs as much as decoding a whole baseline image, but only a few bytes of the file.
constexpr int kMaxScans = 500;

void CountScans(j_common_ptr state) {
  if (reinterpret_cast<j_decompress_ptr>(state)->input_scan_number <= kMaxScans) return;
  Failure& failure = FailureOf(state);
  std::snprintf(failure.message, sizeof failure.message, "more than %d scans", kMaxScans);
  std::longjmp(failure.jump, 1);
}

// Most warnings concern unusual markers; these two concern an image that ends early.
void Warn(j_common_ptr state, int level) {
  if (level < 0 && (state->err->msg_code == JWRN_JPEG_EOF || state->err->msg_code == JWRN_HIT_MARKER)) Fail(state);
}

enum class Outcome { kDone, kFailed, kTooLarge, kUnsupportedColors };

// Reads the header, and the image if `samples` is given. No object with a destructor may be used here.
Outcome Decode(jpeg_decompress_struct& jpeg, Failure& failure, const std::string& bytes, int channels, Image& image) {
  if (setjmp(failure.jump) != 0) return Outcome::kFailed;
  jpeg_create_decompress(&jpeg);
  jpeg.progress = &failure.progress;
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<unsigned long>(bytes.size()));
  jpeg_read_header(&jpeg, TRUE);
  image.height = jpeg.image_height;
  image.width = jpeg.image_width;
  if (image.width < 1 || image.height > kMaxPixels / image.width) return Outcome::kTooLarge;
  if (jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK) return Outcome::kUnsupportedColors;
  jpeg.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_start_decompress(&jpeg);
  image.samples.resize(static_cast<size_t>(image.height * image.width * channels));
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = image.samples.data() + static_cast<size_t>(jpeg.output_scanline) * static_cast<size_t>(image.width * channels);
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  return Outcome::kDone;
}

}  // namespace

Image DecodeJpeg(const std::string& bytes, int channels, const std::string& where) {
  jpeg_decompress_struct jpeg{};
  Failure failure{};
  jpeg.err = jpeg_std_error(&failure.manager);
  failure.manager.error_exit = Fail;
  failure.manager.emit_message = Warn;
  failure.progress.progress_monitor = CountScans;
  Image image{0, 0, channels, {}};
  const Outcome outcome = Decode(jpeg, failure, bytes, channels, image);
  jpeg_destroy_decompress(&jpeg);
  if (outcome == Outcome::kTooLarge) CheckImageSize(image.height, image.width, where);
  if (outcome == Outcome::kUnsupportedColors) {
    throw Error(ErrorCode::kData, "CMYK JPEG images are not supported; expected grey or RGB", where,
                "convert it: magick IMAGE.jpg -colorspace sRGB NEW.jpg   or remove it from the data");
  }
  if (outcome != Outcome::kDone) {
    throw Error(ErrorCode::kData, "a damaged JPEG image: " + Escaped(failure.message), where,
                "download or copy it again, or remove it from the data");
  }
  return image;
}

}  // namespace gradloom
