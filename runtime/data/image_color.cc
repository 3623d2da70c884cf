#include "runtime/data/image_color.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace gradloom {
namespace {

// ITU-R BT.601, as Pillow rounds it.
uint8_t GrayOf(const uint8_t* pixel) {
  return static_cast<uint8_t>((19595 * pixel[0] + 38470 * pixel[1] + 7471 * pixel[2] + 0x8000) >> 16);
}

uint8_t Limited(float value) { return static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f)); }

// The sample that is `factor` of the way from `other` to `own`.
uint8_t Mixed(uint8_t own, uint8_t other, float factor) {
  return Limited(static_cast<float>(other) + factor * (static_cast<float>(own) - static_cast<float>(other)));
}

// Calls f with the samples of each pixel of a colored image.
template <typename F>
void ForEachPixel(Image& image, const F& f) {
  for (size_t i = 0; i + 2 < image.samples.size(); i += 3) f(&image.samples[i]);
}

// Replaces each sample by a function of it.
template <typename F>
Image Mapped(Image image, const F& f) {
  std::array<uint8_t, 256> table;
  for (size_t i = 0; i < table.size(); ++i) table[i] = f(static_cast<uint8_t>(i));
  for (uint8_t& sample : image.samples) sample = table[sample];
  return image;
}

// Hue, saturation and value, each from 0 to 255.
void ToHsv(uint8_t* pixel) {
  const int red = pixel[0], green = pixel[1], blue = pixel[2];
  const int most = std::max({red, green, blue}), least = std::min({red, green, blue});
  float hue = 0, saturation = 0;
  if (most != least) {
    const auto range = static_cast<float>(most - least);
    const auto below = [&](int sample) { return static_cast<float>(most - sample) / range; };
    saturation = range / static_cast<float>(most);
    hue = red == most ? below(blue) - below(green) : green == most ? 2 + below(red) - below(blue) : 4 + below(green) - below(red);
    hue = std::fmod(hue / 6 + 1, 1.0f);
  }
  pixel[0] = Limited(hue * 255);
  pixel[1] = Limited(saturation * 255);
  pixel[2] = static_cast<uint8_t>(most);
}

void FromHsv(uint8_t* pixel) {
  const uint8_t value = pixel[2];
  if (pixel[1] == 0) {
    std::fill_n(pixel, 3, value);
    return;
  }
  const float sixth = static_cast<float>(pixel[0]) * 6 / 255, saturation = static_cast<float>(pixel[1]) / 255,
              part = sixth - std::floor(sixth);
  const auto without = [&](float share) { return Limited(std::round(static_cast<float>(value) * (1 - saturation * share))); };
  const uint8_t low = without(1), falling = without(part), rising = without(1 - part);
  switch (static_cast<int>(sixth) % 6) {
    case 0: pixel[0] = value, pixel[1] = rising, pixel[2] = low; break;
    case 1: pixel[0] = falling, pixel[1] = value, pixel[2] = low; break;
    case 2: pixel[0] = low, pixel[1] = value, pixel[2] = rising; break;
    case 3: pixel[0] = low, pixel[1] = falling, pixel[2] = value; break;
    case 4: pixel[0] = rising, pixel[1] = low, pixel[2] = value; break;
    default: pixel[0] = value, pixel[1] = low, pixel[2] = falling; break;
  }
}

}  // namespace

Image Brightened(Image image, double factor) {
  return Mapped(std::move(image), [&](uint8_t sample) { return Mixed(sample, 0, static_cast<float>(factor)); });
}

Image Contrasted(Image image, double factor) {
  int64_t sum = 0;
  const int64_t pixels = image.height * image.width;
  if (image.channels == 3) {
    ForEachPixel(image, [&](const uint8_t* pixel) { sum += GrayOf(pixel); });
  } else {
    for (const uint8_t sample : image.samples) sum += sample;
  }
  const auto mean = static_cast<uint8_t>(static_cast<double>(sum) / static_cast<double>(pixels) + 0.5);
  return Mapped(std::move(image), [&](uint8_t sample) { return Mixed(sample, mean, static_cast<float>(factor)); });
}

Image Saturated(Image image, double factor) {
  if (image.channels != 3) return image;
  ForEachPixel(image, [&](uint8_t* pixel) {
    const uint8_t gray = GrayOf(pixel);
    for (int c = 0; c < 3; ++c) pixel[c] = Mixed(pixel[c], gray, static_cast<float>(factor));
  });
  return image;
}

Image HueShifted(Image image, double share) {
  if (image.channels != 3) return image;
  const int turned = static_cast<int>(share * 255);
  ForEachPixel(image, [&](uint8_t* pixel) {
    ToHsv(pixel);
    pixel[0] = static_cast<uint8_t>(pixel[0] + turned);  // modulo 256
    FromHsv(pixel);
  });
  return image;
}

Image Grayscaled(Image image) {
  if (image.channels != 3) return image;
  ForEachPixel(image, [](uint8_t* pixel) { std::fill_n(pixel, 3, GrayOf(pixel)); });
  return image;
}

}  // namespace gradloom
