// Transforms of images before their pixels become numbers, as texts such as "random_crop 4".
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/philox.h"
#include "runtime/data/image.h"

namespace gradloom {

// The random numbers of one transform of one image. They depend on the row, the transform (ImageStep::kind, and how many of that kind come
// before it) and the key alone, so that two images of a sample, such as a picture and its mask, are turned alike.
class ImageDraws {
 public:
  ImageDraws(int64_t row, uint32_t kind, uint32_t before, PhiloxKey key);

  uint32_t Next();
  // From 0 to below `count`.
  int64_t Below(int64_t count) { return static_cast<int64_t>(Next()) % count; }
  double Uniform(double low, double high) { return low + (high - low) * (static_cast<double>(Next()) * 0x1p-32); }

 private:
  PhiloxBlock counter_, block_{};
  PhiloxKey key_;
  size_t used_ = 4;  // of the block
};

// The extents that the model takes, and the image's path for messages.
struct ImageGoal {
  int64_t height = 0, width = 0;
  std::string path;
};

struct ImageWindow {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

// torchvision's transforms of the same names, with its defaults, except that rotations interpolate and that random_resized_crop is
// resize_crop in evaluation:
//   resize                              stretch to the model's size
//   resize_crop                         scale the shorter side to the model's, keep the middle
//   random_crop [PAD]                   a window of the model's size, of the image with PAD zeros around it
//   random_resized_crop [MIN [MAX]]     a window of MIN to MAX of the area, with sides of 3:4 to 4:3, stretched to the model's size
//   random_flip, random_vertical_flip   left and right, or top and bottom exchanged for one image in two
//   random_rotation DEGREES             turned by up to so much, to either side; zeros around it
//   color_jitter B [C [S [H]]]          brightness, contrast and saturation times 1 - B to 1 + B ..., hue turned by -H to H of the circle
//   random_grayscale [P]                without colors for a share P of the images
//   random_erasing [P]                  a window of 2 to 33 % of the area becomes zero after all transforms, for a share P of the images
class ImageStep {
 public:
  // Throws Error(kConfig) for anything else.
  static ImageStep Parse(const std::string& text);

  // What evaluations do instead; nullopt: nothing.
  std::optional<ImageStep> ForEvaluation() const;

  uint32_t kind() const { return static_cast<uint32_t>(kind_); }
  bool erases() const { return kind_ == Kind::kRandomErasing; }
  // Throws Error(kData, kLimit, kResource).
  Image Apply(Image image, ImageDraws& draws, const ImageGoal& goal) const;
  // The window that becomes zero, of a row of the goal's extents; nullopt: none.
  std::optional<ImageWindow> Erased(ImageDraws& draws, const ImageGoal& goal) const;

 private:
  enum class Kind : uint8_t {
    kResize,
    kResizeCrop,
    kRandomCrop,
    kRandomResizedCrop,
    kRandomFlip,
    kRandomVerticalFlip,
    kRandomRotation,
    kColorJitter,
    kRandomGrayscale,
    kRandomErasing
  };
  struct Form;

  Kind kind_ = Kind::kResize;
  std::array<double, 4> numbers_{};
};

// Scales an image. Throws Error(kLimit) if the intermediate result is too large: an image with few pixels may be very long, and rows are
// scaled first, at full height. Throws Error(kResource) if there is no memory for it.
Image ResizedWithin(const Image& image, int64_t height, int64_t width, const std::string& path);

}  // namespace gradloom
