// The names of the transforms of images (runtime/data/image_steps.h).
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

namespace gradloom {

inline constexpr std::string_view kImageSteps[] = {"resize",           "resize_crop",   "random_crop",          "random_resized_crop",
                                                   "random_flip",      "color_jitter",  "random_vertical_flip", "random_rotation",
                                                   "random_grayscale", "random_erasing"};

// Whether the text begins with one of them. Evaluations of a model that images have trained leave them out for arrays.
constexpr bool IsImageStep(std::string_view text) {
  return std::ranges::find(kImageSteps, text.substr(0, text.find(' '))) != std::end(kImageSteps);
}

}  // namespace gradloom
