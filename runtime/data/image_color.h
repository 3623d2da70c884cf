// Colors of images, in the arithmetic of Pillow and of torchvision's functions for its images.
#pragma once

#include "runtime/data/image.h"

namespace gradloom {

// Each sample times `factor` (at least 0), limited to 255.
Image Brightened(Image image, double factor);

// Mixtures of an image and one without contrast (its mean gray), or without colors (its gray values): 1 leaves the image as it is, 0 gives
// the other one, and more than 1 leads away from it. A gray image has no colors to change.
Image Contrasted(Image image, double factor);
Image Saturated(Image image, double factor);

// Hues turned by a share of the circle of colors, from -0.5 to 0.5. A gray image is unchanged.
Image HueShifted(Image image, double share);

// The gray values, in all channels.
Image Grayscaled(Image image);

}  // namespace gradloom
