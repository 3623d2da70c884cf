#include "runtime/data/image.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/data/image_formats.h"

namespace gradloom {
namespace {

// For each sample of the output, the first input sample that it uses, and weights that sum to 1.
struct Filter {
  struct Taps {
    int64_t first;
    size_t begin, end;  // in `weights`
  };
  std::vector<Taps> taps;
  std::vector<float> weights;

  Filter(int64_t in, int64_t out) {
    const double scale = static_cast<double>(in) / static_cast<double>(out), support = std::max(scale, 1.0);
    for (int64_t o = 0; o < out; ++o) {
      const double center = (static_cast<double>(o) + 0.5) * scale;
      const auto first = std::max<int64_t>(0, static_cast<int64_t>(std::floor(center - support + 0.5)));
      const auto past = std::min<int64_t>(in, static_cast<int64_t>(std::floor(center + support + 0.5)));
      const size_t begin = weights.size();
      double sum = 0;
      for (int64_t i = first; i < past; ++i) {
        const double weight = std::max(0.0, 1 - std::fabs((static_cast<double>(i) + 0.5 - center) / support));
        weights.push_back(static_cast<float>(weight));
        sum += weight;
      }
      for (size_t i = begin; i < weights.size(); ++i) weights[i] = static_cast<float>(weights[i] / sum);
      taps.push_back({first, begin, weights.size()});
    }
  }
};

uint8_t Rounded(float value) { return static_cast<uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f)); }

template <int kChannels>
void ResizeRow(const Filter& filter, const uint8_t* from, uint8_t* to) {
  for (const Filter::Taps& t : filter.taps) {
    float sums[kChannels] = {};
    const uint8_t* sample = from + t.first * kChannels;
    for (size_t k = t.begin; k < t.end; ++k, sample += kChannels) {
      for (int c = 0; c < kChannels; ++c) sums[c] += filter.weights[k] * sample[c];
    }
    for (int c = 0; c < kChannels; ++c) *to++ = Rounded(sums[c]);
  }
}

}  // namespace

Image ReadImage(const std::string& path, int channels) {
  const InputFile file(path, kImageFileLimitBytes);
  return ReadImage({file, 0, file.bytes(), path}, channels);
}

Image ReadImage(const ImageBytes& from, int channels) {
  std::string bytes(static_cast<size_t>(from.bytes), '\0');
  if (!bytes.empty()) from.file.ReadAt(from.offset, bytes.data(), std::ssize(bytes));
  return DecodeImage(bytes, channels, Escaped(from.path, 4096));
}

namespace {

// The big-endian number in the bytes [at, at + bytes) of an image; -1 if it ends before that.
int64_t NumberAt(const ImageBytes& from, int64_t at, int64_t bytes) {
  unsigned char read[4] = {};
  if (at > from.bytes - bytes) return -1;
  from.file.ReadAt(from.offset + at, read, bytes);
  int64_t number = 0;
  for (int64_t i = 0; i < bytes; ++i) number = number << 8 | read[i];
  return number;
}

// A height or width, of which more than kMaxPixels count as so many.
int64_t ExtentAt(const ImageBytes& from, int64_t at, int64_t bytes) {
  return std::clamp<int64_t>(NumberAt(from, at, bytes), 0, kMaxPixels);
}

// The number of pixels; 0 if it cannot be told.
int64_t PixelsIn(const ImageBytes& from) {
  constexpr int64_t kPng = 0x89504E47, kJpeg = 0xFFD8, kScan = 0xFFDA;
  if (NumberAt(from, 0, 4) == kPng) return ExtentAt(from, 16, 4) * ExtentAt(from, 20, 4);
  if (NumberAt(from, 0, 2) != kJpeg) return 0;
  constexpr int kMaxSegments = 10'000;
  int64_t at = 2;
  for (int i = 0; i < kMaxSegments; ++i) {
    const int64_t marker = NumberAt(from, at, 2);
    if (marker < 0xFF00 || marker == kScan) break;
    // Bytes of 0xFF may fill the space before a marker.
    if (marker == 0xFFFF) {
      ++at;
      continue;
    }
    // The markers of frames; three among them mean something else.
    const bool frame = marker >= 0xFFC0 && marker <= 0xFFCF && marker != 0xFFC4 && marker != 0xFFC8 && marker != 0xFFCC;
    if (frame) return ExtentAt(from, at + 5, 2) * ExtentAt(from, at + 7, 2);
    at += 2 + std::max<int64_t>(NumberAt(from, at + 2, 2), 2);
  }
  return 0;
}

}  // namespace

int64_t BytesToRead(const ImageBytes& from) {
  // Three samples, and as many that are scaled; of a progressive JPEG, three coefficients of two bytes. libpng gets a copy of the file.
  constexpr int64_t kBytesOfPixel = 12;
  return 2 * from.bytes + std::min(PixelsIn(from), kMaxPixels) * kBytesOfPixel;
}

Image DecodeImage(const std::string& bytes, int channels, const std::string& where) {
  GRADLOOM_CHECK(channels == 1 || channels == 3);
  if (bytes.starts_with("\xFF\xD8\xFF")) return DecodeJpeg(bytes, channels, where);
  if (bytes.starts_with("\x89PNG\r\n\x1A\n")) return DecodePng(bytes, channels, where);
  throw Error(ErrorCode::kData, bytes.empty() ? "the file is empty" : "neither a JPEG nor a PNG image", where,
              "convert it, or remove it from the data");
}

void CheckImageSize(int64_t height, int64_t width, const std::string& where) {
  if (height < 1 || width < 1) throw Error(ErrorCode::kData, "the image has no pixels", where);
  if (height <= kMaxPixels / width) return;
  throw Error(ErrorCode::kLimit,
              std::to_string(width) + " x " + std::to_string(height) + " pixels, more than " + std::to_string(kMaxPixels), where,
              "shrink the image first");
}

Image Resized(const Image& image, int64_t height, int64_t width) {
  if (image.height == height && image.width == width) return image;
  const Filter across(image.width, width), down(image.height, height);
  const int channels = image.channels;
  const int64_t row = width * channels;
  const auto resize_row = channels == 1 ? ResizeRow<1> : ResizeRow<3>;
  // Rows are resized first, and rounded to 8 bits in between, as in Pillow.
  std::vector<uint8_t> narrow(static_cast<size_t>(image.height * row));
  for (int64_t y = 0; y < image.height; ++y) resize_row(across, image.at(y, 0), narrow.data() + y * row);
  Image out{height, width, channels, std::vector<uint8_t>(static_cast<size_t>(height * row))};
  std::vector<float> sums(static_cast<size_t>(row));
  for (int64_t y = 0; y < height; ++y) {
    const Filter::Taps& t = down.taps[static_cast<size_t>(y)];
    std::fill(sums.begin(), sums.end(), 0.0f);
    const uint8_t* from = narrow.data() + t.first * row;
    for (size_t k = t.begin; k < t.end; ++k, from += row) {
      const float weight = down.weights[k];
      for (int64_t i = 0; i < row; ++i) sums[static_cast<size_t>(i)] += weight * from[i];
    }
    uint8_t* const to = out.at(y, 0);
    for (int64_t i = 0; i < row; ++i) to[i] = Rounded(sums[static_cast<size_t>(i)]);
  }
  return out;
}

Image Cropped(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width) {
  const int channels = image.channels;
  Image out{height, width, channels, std::vector<uint8_t>(static_cast<size_t>(height * width * channels))};
  const int64_t first = std::max<int64_t>(0, -left), past = std::min(width, image.width - left);
  for (int64_t y = std::max<int64_t>(0, -top); y < std::min(height, image.height - top); ++y) {
    if (first < past) std::copy_n(image.at(top + y, left + first), (past - first) * channels, out.at(y, first));
  }
  return out;
}

Image Flipped(const Image& image) {
  Image out = image;
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x) std::copy_n(image.at(y, image.width - 1 - x), image.channels, out.at(y, x));
  }
  return out;
}

Image FlippedDown(const Image& image) {
  Image out = image;
  const int64_t row = image.width * image.channels;
  for (int64_t y = 0; y < image.height; ++y) std::copy_n(image.at(image.height - 1 - y, 0), row, out.at(y, 0));
  return out;
}

Image Rotated(const Image& image, double degrees) {
  Image out{image.height, image.width, image.channels, std::vector<uint8_t>(image.samples.size())};
  const double angle = degrees * std::acos(-1.0) / 180, cosine = std::cos(angle), sine = std::sin(angle);
  const double middle_x = static_cast<double>(image.width) / 2, middle_y = static_cast<double>(image.height) / 2;
  for (int64_t y = 0; y < out.height; ++y) {
    const double down = static_cast<double>(y) + 0.5 - middle_y;
    for (int64_t x = 0; x < out.width; ++x) {
      const double right = static_cast<double>(x) + 0.5 - middle_x;
      const double from_x = cosine * right - sine * down + middle_x, from_y = sine * right + cosine * down + middle_y;
      if (from_x < 0 || from_y < 0 || from_x >= static_cast<double>(image.width) || from_y >= static_cast<double>(image.height)) continue;
      // Between the middles of four pixels; beyond those at the edges, the edge.
      const double left = std::floor(from_x - 0.5), top = std::floor(from_y - 0.5);
      const double part_x = from_x - 0.5 - left, part_y = from_y - 0.5 - top;
      const auto within = [](double at, int64_t extent) { return std::clamp<int64_t>(static_cast<int64_t>(at), 0, extent - 1); };
      const int64_t x0 = within(left, image.width), x1 = within(left + 1, image.width);
      const int64_t y0 = within(top, image.height), y1 = within(top + 1, image.height);
      for (int c = 0; c < image.channels; ++c) {
        const double above = (1 - part_x) * image.at(y0, x0)[c] + part_x * image.at(y0, x1)[c];
        const double below = (1 - part_x) * image.at(y1, x0)[c] + part_x * image.at(y1, x1)[c];
        out.at(y, x)[c] = Rounded(static_cast<float>((1 - part_y) * above + part_y * below));
      }
    }
  }
  return out;
}

}  // namespace gradloom
