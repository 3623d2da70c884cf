#include "runtime/data/image_steps.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/host_memory.h"
#include "runtime/base/read_number.h"
#include "runtime/data/image_color.h"
#include "runtime/data/image_step_names.h"

namespace gradloom {

ImageDraws::ImageDraws(int64_t row, uint32_t kind, uint32_t before, PhiloxKey key)
    : counter_{static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32), kind << 16 | before, 0}, key_(key) {}

uint32_t ImageDraws::Next() {
  if (used_ == block_.size()) {
    block_ = Philox(counter_, key_);
    ++counter_[3];
    used_ = 0;
  }
  return block_[used_++];
}

// How a step is written.
struct ImageStep::Form {
  std::string_view name;
  Kind kind;
  size_t least, most;              // numbers after the name
  std::array<double, 4> defaults;  // of those that are left out
  double low, high;                // the range of each number, except for that of a hue, which is at most 0.5
};

constexpr double kLargestPad = 4096;
constexpr double kMostJitter = 1000;

ImageStep ImageStep::Parse(const std::string& text) {
  std::istringstream words(text);
  std::string name, word;
  words >> name;
  static constexpr Form kForms[] = {
      {"resize", Kind::kResize, 0, 0, {}, 0, 0},
      {"resize_crop", Kind::kResizeCrop, 0, 0, {}, 0, 0},
      {"random_crop", Kind::kRandomCrop, 0, 1, {}, 0, kLargestPad},
      {"random_resized_crop", Kind::kRandomResizedCrop, 0, 2, {0.08, 1}, 0, 1},
      {"random_flip", Kind::kRandomFlip, 0, 0, {}, 0, 0},
      {"random_vertical_flip", Kind::kRandomVerticalFlip, 0, 0, {}, 0, 0},
      {"random_rotation", Kind::kRandomRotation, 1, 1, {}, 0, 180},
      {"color_jitter", Kind::kColorJitter, 1, 4, {}, 0, kMostJitter},
      {"random_grayscale", Kind::kRandomGrayscale, 0, 1, {0.1}, 0, 1},
      {"random_erasing", Kind::kRandomErasing, 0, 1, {0.5}, 0, 1},
  };
  static_assert(std::ranges::all_of(kForms, [](const Form& form) { return IsImageStep(form.name); }) &&
                std::size(kForms) == std::size(kImageSteps));
  for (const Form& form : kForms) {
    if (form.name != name) continue;
    ImageStep step;
    step.kind_ = form.kind;
    step.numbers_ = form.defaults;
    size_t given = 0;
    bool good = true;
    for (; words >> word; ++given) {
      const std::optional<double> number = ReadNumber<double>(word);
      good &= given < form.most && number && *number >= form.low && *number <= form.high;
      if (good) step.numbers_[given] = *number;
    }
    good &= given >= form.least;
    if (form.kind == Kind::kRandomCrop) good &= step.numbers_[0] == std::floor(step.numbers_[0]);
    if (form.kind == Kind::kRandomResizedCrop) good &= step.numbers_[0] > 0 && step.numbers_[0] <= step.numbers_[1];
    if (form.kind == Kind::kColorJitter) good &= step.numbers_[3] <= 0.5;
    if (good) return step;
  }
  throw Error(ErrorCode::kConfig, "unknown transform of images '" + Escaped(text) + "'", "",
              "expected one of: 'resize', 'resize_crop', 'random_crop PAD', 'random_resized_crop MIN MAX' (of the area, 0.08 1), "
              "'random_flip', 'random_vertical_flip', 'random_rotation DEGREES', 'color_jitter BRIGHTNESS CONTRAST SATURATION HUE', "
              "'random_grayscale P', 'random_erasing P', 'scale 1/255', 'normalize MEAN STD'");
}

std::optional<ImageStep> ImageStep::ForEvaluation() const {
  if (kind_ == Kind::kResize || kind_ == Kind::kResizeCrop) return *this;
  if (kind_ != Kind::kRandomResizedCrop) return std::nullopt;
  ImageStep whole;
  whole.kind_ = Kind::kResizeCrop;
  return whole;
}

Image ResizedWithin(const Image& image, int64_t height, int64_t width, const std::string& path) {
  const int64_t most = std::max(image.height, height);
  if (most > kMaxPixels / width) {
    throw Error(ErrorCode::kLimit,
                "an image of " + std::to_string(image.width) + " x " + std::to_string(image.height) + " needs " + std::to_string(width) +
                    " x " + std::to_string(most) + " pixels while it is scaled, more than " + std::to_string(kMaxPixels),
                Escaped(path, 4096), "crop the image, or remove it from the data");
  }
  RequireHostMemory(most * width * image.channels, "scaling this image", Escaped(path, 4096), "crop the image, or remove it from the data");
  return Resized(image, height, width);
}

namespace {

// Attempts to find a window with the drawn area and sides that fits into the image.
constexpr int kAttempts = 10;

// Scales the image until it covers the model's size, then crops the centre.
Image ResizedAndCropped(const Image& image, const ImageGoal& goal) {
  const double scale = std::max(static_cast<double>(goal.height) / static_cast<double>(image.height),
                                static_cast<double>(goal.width) / static_cast<double>(image.width));
  const int64_t tall = std::max(goal.height, static_cast<int64_t>(std::lround(scale * static_cast<double>(image.height))));
  const int64_t wide = std::max(goal.width, static_cast<int64_t>(std::lround(scale * static_cast<double>(image.width))));
  return Cropped(ResizedWithin(image, tall, wide, goal.path), (tall - goal.height) / 2, (wide - goal.width) / 2, goal.height, goal.width);
}

Image RandomlyCropped(const Image& image, int64_t pad, ImageDraws& draws, const ImageGoal& goal) {
  const int64_t down = image.height + 2 * pad - goal.height, right = image.width + 2 * pad - goal.width;
  if (down < 0 || right < 0) {
    throw Error(ErrorCode::kData,
                "an image of " + std::to_string(image.width) + " x " + std::to_string(image.height) + " has no window of " +
                    std::to_string(goal.width) + " x " + std::to_string(goal.height),
                Escaped(goal.path, 4096), "put 'resize_crop' before 'random_crop'");
  }
  const int64_t top = draws.Below(down + 1), left = draws.Below(right + 1);
  return Cropped(image, top - pad, left - pad, goal.height, goal.width);
}

struct Range {
  double least, most;
};

// A window with a share `areas` of an image's area, of which height and width have a quotient in `quotients`. `whole`: whether it may be as
// large as the image. Nullopt if no attempt fits.
std::optional<ImageWindow> DrawWindow(ImageDraws& draws, int64_t height, int64_t width, const Range& areas, const Range& quotients,
                                      bool whole) {
  for (int i = 0; i < kAttempts; ++i) {
    const double area = static_cast<double>(height) * static_cast<double>(width) * draws.Uniform(areas.least, areas.most);
    const double quotient = std::exp(draws.Uniform(std::log(quotients.least), std::log(quotients.most)));
    const int64_t tall = std::llround(std::sqrt(area * quotient)), wide = std::llround(std::sqrt(area / quotient));
    const bool fits = whole ? tall <= height && wide <= width : tall < height && wide < width;
    if (tall < 1 || wide < 1 || !fits) continue;
    const int64_t top = draws.Below(height - tall + 1), left = draws.Below(width - wide + 1);
    return ImageWindow{top, left, tall, wide};
  }
  return std::nullopt;
}

Image RandomlyResizedAndCropped(const Image& image, double least, double most, ImageDraws& draws, const ImageGoal& goal) {
  constexpr double kRatio = 4.0 / 3.0;
  std::optional<ImageWindow> window = DrawWindow(draws, image.height, image.width, {least, most}, {1 / kRatio, kRatio}, true);
  if (!window) {
    // The middle, as much of it as has permitted sides.
    const int64_t tall = std::min(image.height, static_cast<int64_t>(std::llround(static_cast<double>(image.width) * kRatio)));
    const int64_t wide = std::min(image.width, static_cast<int64_t>(std::llround(static_cast<double>(image.height) * kRatio)));
    window = ImageWindow{(image.height - tall) / 2, (image.width - wide) / 2, std::max<int64_t>(tall, 1), std::max<int64_t>(wide, 1)};
  }
  return ResizedWithin(Cropped(image, window->top, window->left, window->height, window->width), goal.height, goal.width, goal.path);
}

// In random order, since they do not commute.
Image Jittered(Image image, const std::array<double, 4>& numbers, ImageDraws& draws) {
  std::array<int, 4> order = {0, 1, 2, 3};
  for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[static_cast<size_t>(draws.Below(static_cast<int64_t>(i) + 1))]);
  std::array<double, 4> drawn;
  for (size_t i = 0; i < 3; ++i) drawn[i] = draws.Uniform(std::max(0.0, 1 - numbers[i]), 1 + numbers[i]);
  drawn[3] = draws.Uniform(-numbers[3], numbers[3]);
  for (const int which : order) {
    const auto at = static_cast<size_t>(which);
    if (numbers[at] == 0) continue;
    switch (which) {
      case 0: image = Brightened(std::move(image), drawn[at]); break;
      case 1: image = Contrasted(std::move(image), drawn[at]); break;
      case 2: image = Saturated(std::move(image), drawn[at]); break;
      default: image = HueShifted(std::move(image), drawn[at]); break;
    }
  }
  return image;
}

}  // namespace

Image ImageStep::Apply(Image image, ImageDraws& draws, const ImageGoal& goal) const {
  switch (kind_) {
    case Kind::kResize: return ResizedWithin(image, goal.height, goal.width, goal.path);
    case Kind::kResizeCrop: return ResizedAndCropped(image, goal);
    case Kind::kRandomCrop: return RandomlyCropped(image, static_cast<int64_t>(numbers_[0]), draws, goal);
    case Kind::kRandomResizedCrop: return RandomlyResizedAndCropped(image, numbers_[0], numbers_[1], draws, goal);
    case Kind::kRandomFlip: return draws.Below(2) == 0 ? Flipped(image) : std::move(image);
    case Kind::kRandomVerticalFlip: return draws.Below(2) == 0 ? FlippedDown(image) : std::move(image);
    case Kind::kRandomRotation: return Rotated(image, draws.Uniform(-numbers_[0], numbers_[0]));
    case Kind::kColorJitter: return Jittered(std::move(image), numbers_, draws);
    case Kind::kRandomGrayscale: return draws.Uniform(0, 1) < numbers_[0] ? Grayscaled(std::move(image)) : std::move(image);
    case Kind::kRandomErasing: return image;
  }
  return image;
}

std::optional<ImageWindow> ImageStep::Erased(ImageDraws& draws, const ImageGoal& goal) const {
  if (draws.Uniform(0, 1) >= numbers_[0]) return std::nullopt;
  return DrawWindow(draws, goal.height, goal.width, {0.02, 0.33}, {0.3, 3.3}, false);
}

}  // namespace gradloom
