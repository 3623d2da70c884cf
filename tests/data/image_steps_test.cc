// Transforms of images: colors and rotations against Pillow's, random ones by what they must and may give.
#include "runtime/data/image_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/image_color.h"
#include "tests/data/image_files.h"

namespace gradloom {
namespace {

constexpr PhiloxKey kKey = {3, 4};

Image Colors() {
  Image image{4, 5, 3, std::vector<uint8_t>(60)};
  for (int64_t y = 0; y < 4; ++y) {
    for (int64_t x = 0; x < 5; ++x) {
      for (int64_t c = 0; c < 3; ++c) image.at(y, x)[c] = static_cast<uint8_t>((67 * y + 41 * x + 83 * c + 29 * x * y * c) % 256);
    }
  }
  return image;
}

void ExpectWithin(const Image& got, const std::vector<int>& want, int tolerance) {
  ASSERT_EQ(got.samples.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_LE(std::abs(got.samples[i] - want[i]), tolerance) << "sample " << i;
}

// By torchvision 0.29 and Pillow 13: adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue, to_grayscale.
TEST(ImageColor, IsThatOfTorchvision) {
  const auto brighter = [](double f) { return [f] { return Brightened(Colors(), f); }; };
  const auto contrasted = [](double f) { return [f] { return Contrasted(Colors(), f); }; };
  const auto saturated = [](double f) { return [f] { return Saturated(Colors(), f); }; };
  const auto turned = [](double f) { return [f] { return HueShifted(Colors(), f); }; };
  const std::pair<std::function<Image()>, std::vector<int>> cases[] = {
      {brighter(0.6), {0,  49, 99, 24,  74,  124, 49, 99,  148, 73, 123, 19,  98, 148, 44, 40,  90,  139, 64, 132,
                       45, 89, 20, 105, 114, 62,  10, 138, 104, 70, 80,  130, 26, 105, 36, 120, 129, 95,  61, 0,
                       1,  1,  25, 60,  96,  120, 16, 66,  145, 93, 42,  16,  16, 17,  40, 93,  146, 65,  16, 121}},
      {brighter(1.7), {0,   141, 255, 69,  210, 255, 139, 255, 255, 209, 255, 56,  255, 255, 125, 113, 255, 255, 183, 255,
                       129, 253, 57,  255, 255, 176, 30,  255, 255, 198, 227, 255, 74,  255, 102, 255, 255, 255, 173, 1,
                       3,   5,   71,  171, 255, 255, 47,  188, 255, 255, 119, 45,  47,  49,  115, 255, 255, 185, 47,  255}},
      {contrasted(0.4), {72,  105, 139, 89,  122, 155, 105, 138, 171, 121, 155, 85,  138, 171, 102, 99,  132, 165, 115, 160,
                         103, 132, 86,  142, 148, 114, 79,  165, 142, 119, 126, 159, 90,  142, 96,  153, 159, 136, 113, 73,
                         73,  73,  89,  113, 136, 153, 83,  117, 169, 135, 100, 83,  83,  84,  99,  135, 170, 116, 83,  153}},
      {contrasted(1.8), {0,  52,  202, 0,   126, 255, 50, 200, 255, 124, 255, 0,   198, 255, 36, 23,  173, 255, 97, 255,
                         40, 171, 0,   218, 245, 90,  0,  255, 216, 113, 144, 255, 0,   218, 11, 255, 255, 189, 86, 0,
                         0,  0,   0,   85,  191, 255, 0,  103, 255, 184, 29,  0,   0,   0,   25, 184, 255, 99,  0,  255}},
      {saturated(0.3), {47,  72,  97, 88,  113, 138, 129, 154, 179, 149, 174, 122, 190, 215, 163, 114, 139, 164, 151, 185,
                        141, 103, 69, 111, 141, 115, 89,  198, 181, 164, 160, 185, 133, 129, 95,  137, 183, 166, 149, 1,
                        2,   2,   75, 93,  111, 122, 70,  95,  193, 167, 141, 27,  28,  28,  118, 144, 171, 83,  58,  111}},
      {saturated(2.5), {0, 105, 255, 0,   146, 255, 0, 187, 255, 66,  255, 0,   107, 255, 0, 0,   172, 255, 15, 255,
                        0, 246, 0,   255, 255, 80,  0, 255, 157, 15,  77,  255, 0,   255, 0, 255, 255, 142, 0,  0,
                        2, 4,   0,   117, 255, 255, 0, 144, 255, 132, 0,   25,  28,  30,  0, 180, 255, 164, 0,  255}},
      {turned(0.2), {113, 0,   166, 154, 41,  207, 195, 83,  248, 33,  206, 147, 75,  247, 188, 180, 68,  233, 77,  220,
                     215, 175, 34,  34,  71,  190, 19,  152, 231, 118, 44,  217, 158, 201, 61,  61,  137, 216, 102, 2,
                     1,   3,   123, 42,  160, 201, 146, 28,  123, 242, 70,  28,  27,  29,  188, 69,  244, 203, 29,  90}},
      {turned(-0.35), {102, 166, 0,   143, 207, 41, 184, 248, 83,  206, 33,  139, 247, 75, 180, 169, 233, 68,  220, 77,
                       121, 34,  175, 134, 91,  19, 190, 166, 118, 231, 217, 44,  150, 61, 201, 160, 151, 102, 216, 2,
                       3,   1,   114, 160, 42,  28, 130, 201, 143, 70,  242, 28,  29,  27, 176, 244, 69,  29,  203, 90}},
      {[] { return Grayscaled(Colors()); },
       {68,  68, 68, 109, 109, 109, 150, 150, 150, 161, 161, 161, 202, 202, 202, 135, 135, 135, 170, 170,
        170, 84, 84, 84,  120, 120, 120, 185, 185, 185, 172, 172, 172, 110, 110, 110, 170, 170, 170, 2,
        2,   2,  90, 90,  90,  89,  89,  89,  172, 172, 172, 28,  28,  28,  140, 140, 140, 72,  72,  72}},
  };
  int number = 0;
  for (const auto& [make, want] : cases) {
    SCOPED_TRACE(number++);
    ExpectWithin(make(), want, 0);
  }
}

// By Pillow's `rotate` with bilinear interpolation, which truncates where we round.
TEST(Image, RotatesLikePillow) {
  ExpectWithin(Rotated(Colors(), 30), {0,   0,   0,  77,  160, 243, 126, 173, 80,  195, 172, 72,  193, 159, 125, 25,  109, 184, 94,  144,
                                       161, 159, 56, 131, 87,  56,  24,  45,  94,  160, 63,  146, 225, 132, 154, 132, 201, 130, 128, 70,
                                       81,  93,  83, 91,  214, 120, 203, 81,  169, 132, 101, 187, 116, 83,  31,  42,  53,  0,   0,   0},
               1);
  ExpectWithin(Rotated(Colors(), -100), {0,   0,   0,   212, 114, 100, 139, 147, 132, 66,  157, 178, 7,   90, 173, 0,   0,   0,  141, 93,
                                         81,  168, 116, 140, 95,  149, 153, 47,  130, 213, 61,  135, 209, 65, 77,  90,  144, 73, 79,  123,
                                         125, 156, 0,   0,   0,   101, 50,  210, 42,  67,  130, 164, 116, 68, 152, 194, 46,  0,  0,   0},
               1);
  EXPECT_EQ(Rotated(Colors(), 0).samples, Colors().samples);
}

TEST(ImageColor, NeutralFactorsChangeNothingAndGrayHasNoColors) {
  EXPECT_EQ(Brightened(Colors(), 1).samples, Colors().samples);
  EXPECT_EQ(Contrasted(Colors(), 1).samples, Colors().samples);
  EXPECT_EQ(Saturated(Colors(), 1).samples, Colors().samples);
  const Image gray = Picture(5, 4, 1);
  EXPECT_EQ(Saturated(gray, 0).samples, gray.samples);
  EXPECT_EQ(HueShifted(gray, 0.5).samples, gray.samples);
  EXPECT_EQ(Grayscaled(gray).samples, gray.samples);
  for (const uint8_t sample : Contrasted(gray, 0).samples) EXPECT_EQ(sample, Contrasted(gray, 0).samples[0]);
  EXPECT_EQ(FlippedDown(FlippedDown(gray)).samples, gray.samples);
  EXPECT_EQ(FlippedDown(gray).at(0, 2)[0], gray.at(4, 2)[0]);
}

Image Apply(const std::string& text, const Image& image, int64_t row, const ImageGoal& goal) {
  const ImageStep step = ImageStep::Parse(text);
  ImageDraws draws(row, step.kind(), 0, kKey);
  return step.Apply(image, draws, goal);
}

// The first sample is the column, the second the row of a pixel.
Image Coordinates(int64_t height, int64_t width) {
  Image image{height, width, 3, std::vector<uint8_t>(static_cast<size_t>(height * width * 3))};
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      image.at(y, x)[0] = static_cast<uint8_t>(x);
      image.at(y, x)[1] = static_cast<uint8_t>(y);
    }
  }
  return image;
}

TEST(ImageStep, RandomWindowsHaveTheAreaThatIsAskedFor) {
  const Image image = Coordinates(120, 160);
  const ImageGoal goal{16, 16, "image"};
  std::set<std::vector<uint8_t>> seen;
  double least = 1, most = 0;
  for (int64_t row = 0; row < 400; ++row) {
    const Image made = Apply("random_resized_crop 0.2 0.5", image, row, goal);
    ASSERT_EQ(made.height, 16);
    ASSERT_EQ(made.width, 16);
    seen.insert(made.samples);
    // The middles of the outermost pixels are half a pixel of the result from the sides of the window.
    const double wide = (made.at(8, 15)[0] - made.at(8, 0)[0]) * 16.0 / 15, tall = (made.at(15, 8)[1] - made.at(0, 8)[1]) * 16.0 / 15;
    const double area = wide * tall / (120 * 160);
    EXPECT_GT(area, 0.16);
    EXPECT_LT(area, 0.56);
    EXPECT_LT(std::abs(std::log(wide / tall)), std::log(4.0 / 3) + 0.1);
    least = std::min(least, area), most = std::max(most, area);
  }
  EXPECT_GT(seen.size(), 395u);
  EXPECT_LT(least, 0.25);
  EXPECT_GT(most, 0.45);
  // No window of the whole area fits these sides: the middle is taken.
  const Image wide = Apply("random_resized_crop 1 1", Coordinates(30, 200), 5, goal);
  EXPECT_NEAR(wide.at(8, 0)[0], 80, 2);
  EXPECT_NEAR(wide.at(8, 15)[0], 119, 2);
}

TEST(ImageStep, SharesOfImagesAreThoseThatAreAskedFor) {
  const Image image = Colors();
  const ImageGoal goal{4, 5, "image"};
  std::map<std::string, int> changed;
  int erased = 0;
  constexpr int kRows = 2000;
  for (int64_t row = 0; row < kRows; ++row) {
    for (const char* step : {"random_flip", "random_vertical_flip", "random_grayscale", "random_grayscale 0.4", "random_grayscale 0"})
      changed[step] += Apply(step, image, row, goal).samples != image.samples;
    ImageDraws draws(row, 0, 0, kKey);
    const ImageGoal large{40, 60, "image"};
    const auto window = ImageStep::Parse("random_erasing 0.3").Erased(draws, large);
    if (!window) continue;
    ++erased;
    const double area = static_cast<double>(window->height * window->width) / (40 * 60);
    EXPECT_GT(area, 0.015);
    EXPECT_LT(area, 0.36);
    EXPECT_TRUE(window->top >= 0 && window->left >= 0 && window->top + window->height <= 40 && window->left + window->width <= 60);
  }
  EXPECT_NEAR(changed["random_flip"], kRows * 0.5, 90);
  EXPECT_NEAR(changed["random_vertical_flip"], kRows * 0.5, 90);
  EXPECT_NEAR(changed["random_grayscale"], kRows * 0.1, 60);
  EXPECT_NEAR(changed["random_grayscale 0.4"], kRows * 0.4, 90);
  EXPECT_EQ(changed["random_grayscale 0"], 0);
  EXPECT_NEAR(erased, kRows * 0.3, 90);
}

// Each of the numbers of color_jitter reaches its own transform, within its range.
TEST(ImageStep, ColorsJitterWithinTheirRanges) {
  const ImageGoal goal{4, 5, "image"};
  const Image image = Colors();
  double least = 2, most = 0;
  for (int64_t row = 0; row < 300; ++row) {
    EXPECT_EQ(Apply("color_jitter 0 0 0 0", image, row, goal).samples, image.samples);
    const Image made = Apply("color_jitter 0.25", image, row, goal);
    const double factor = static_cast<double>(made.at(0, 4)[1]) / image.at(0, 4)[1];
    EXPECT_GE(factor, 0.745);
    least = std::min(least, factor), most = std::max(most, factor);
    EXPECT_EQ(Grayscaled(Apply("color_jitter 0 0 1", Grayscaled(image), row, goal)).samples, Grayscaled(image).samples);
    EXPECT_EQ(Apply("color_jitter 0 0 0.5 0.5", Grayscaled(image), row, goal).samples, Grayscaled(image).samples);
  }
  EXPECT_LT(least, 0.78);
  EXPECT_GT(most, 1.02);  // limited to 255
  std::set<std::vector<uint8_t>> seen;
  for (int64_t row = 0; row < 50; ++row) seen.insert(Apply("color_jitter 0.4 0.4 0.4 0.1", image, row, goal).samples);
  EXPECT_EQ(seen.size(), 50u);
}

TEST(ImageStep, RandomNumbersDependOnRowStepAndKey) {
  const auto first = [](int64_t row, uint32_t kind, PhiloxKey key) { return ImageDraws(row, kind, 0, key).Next(); };
  const std::set<uint32_t> all = {first(1, 0, kKey), first(2, 0, kKey), first(int64_t{1} << 32, 0, kKey), first(1, 1, kKey),
                                  first(1, 0, {9, 9})};
  EXPECT_EQ(all.size(), 5u);
  EXPECT_NE(ImageDraws(1, 0, 1, kKey).Next(), first(1, 0, kKey));
  EXPECT_EQ(first(7, 3, kKey), first(7, 3, kKey));
  ImageDraws draws(1, 0, 0, kKey);
  std::set<uint32_t> many;
  for (int i = 0; i < 1000; ++i) many.insert(draws.Next());
  EXPECT_EQ(many.size(), 1000u);
}

TEST(ImageStep, EvaluationsAreNotRandom) {
  for (const char* step : {"random_crop 4", "random_flip", "random_vertical_flip", "random_rotation 10", "color_jitter 0.1",
                           "random_grayscale", "random_erasing"})
    EXPECT_FALSE(ImageStep::Parse(step).ForEvaluation()) << step;
  EXPECT_TRUE(ImageStep::Parse("resize").ForEvaluation());
  const ImageGoal goal{8, 8, "image"};
  const Image image = Coordinates(20, 30);
  ImageDraws draws(0, 0, 0, kKey);
  EXPECT_EQ(ImageStep::Parse("random_resized_crop").ForEvaluation()->Apply(image, draws, goal).samples,
            Apply("resize_crop", image, 0, goal).samples);
}

TEST(ImageStep, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"",
                           "random",
                           "random_flip 1",
                           "random_crop x",
                           "random_crop -1",
                           "random_crop 1.5",
                           "random_crop 5000",
                           "random_crop 1 2",
                           "random_resized_crop 0",
                           "random_resized_crop 0.5 0.2",
                           "random_resized_crop 0.5 1.1",
                           "random_resized_crop 0.1 0.2 0.3",
                           "random_rotation",
                           "random_rotation 181",
                           "random_rotation nan",
                           "color_jitter",
                           "color_jitter 1 1 1 0.6",
                           "color_jitter 1 1 1 0 0",
                           "color_jitter -1",
                           "random_grayscale 2",
                           "random_erasing -0.1",
                           "random_erasing 0.5 0.5"}) {
    try {
      ImageStep::Parse(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig) << text;
    }
  }
}

}  // namespace
}  // namespace gradloom
