#include "runtime/data/image.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/data/batches.h"
#include "runtime/data/image_data.h"
#include "runtime/data/image_rows.h"
#include "tests/base/temporary_folder.h"
#include "tests/data/image_files.h"

namespace gradloom {
namespace {

ErrorCode CodeOf(const std::function<void()>& run, std::string* where = nullptr) {
  try {
    run();
  } catch (const Error& error) {
    if (where != nullptr) *where = error.where();
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST(Image, PngIsExactAndJpegIsClose) {
  for (int channels : {1, 3}) {
    const Image picture = Picture(13, 9, channels);
    const Image png = DecodeImage(PngOf(picture), channels, "test");
    EXPECT_EQ(png.height, 13);
    EXPECT_EQ(png.width, 9);
    EXPECT_EQ(png.samples, picture.samples);
    const Image jpeg = DecodeImage(JpegOf(Picture(16, 16, 1), 98), channels, "test");
    ASSERT_EQ(jpeg.samples.size(), static_cast<size_t>(256 * channels));
    EXPECT_NEAR(jpeg.at(5, 5)[0], Picture(16, 16, 1).at(5, 5)[0], 8);
  }
}

TEST(Image, ConvertsBetweenGrayAndColor) {
  const Image colour = DecodeImage(PngOf(Picture(4, 4, 1)), 3, "test");
  EXPECT_EQ(colour.at(1, 2)[0], Picture(4, 4, 1).at(1, 2)[0]);
  EXPECT_EQ(colour.at(1, 2)[2], Picture(4, 4, 1).at(1, 2)[0]);
}

// Gray values of a PNG must not be computed in linear light, where (255, 0, 0) is 127 instead of 76.
TEST(Image, GrayMatchesPillowForPngAndJpeg) {
  Image colours{2, 2, 3, {255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30}};
  EXPECT_EQ(DecodeImage(PngOf(colours), 1, "test").samples, (std::vector<uint8_t>{76, 150, 29, 18}));
  Image red{16, 16, 3, {}};
  for (int i = 0; i < 256; ++i) red.samples.insert(red.samples.end(), {255, 0, 0});
  EXPECT_NEAR(DecodeImage(JpegOf(red, 100), 1, "test").at(8, 8)[0], 76, 1);
}

// 16 bits per sample, as in scientific images: 32896 of 65535 is 128 of 255.
TEST(Image, ScalesSamplesOf16Bits) {
  png_image png{.version = PNG_IMAGE_VERSION, .width = 2, .height = 1, .format = PNG_FORMAT_LINEAR_Y};
  // libpng's gAMA chunk says that the samples are linear, which other readers ignore as well.
  const uint16_t samples[] = {32896, 257};
  png_alloc_size_t bytes = 0;
  ASSERT_NE(png_image_write_to_memory(&png, nullptr, &bytes, 0, samples, 0, nullptr), 0);
  std::string file(bytes, '\0');
  ASSERT_NE(png_image_write_to_memory(&png, file.data(), &bytes, 0, samples, 0, nullptr), 0);
  EXPECT_EQ(DecodeImage(file, 1, "test").samples, (std::vector<uint8_t>{128, 1}));
}

// As in Pillow, which blends the samples as they are stored; in linear light, half of white is 188.
TEST(Image, BlendsTransparentPixelsWithBlack) {
  png_image png{.version = PNG_IMAGE_VERSION, .width = 2, .height = 2, .format = PNG_FORMAT_RGBA};
  const uint8_t samples[] = {255, 255, 255, 128, 200, 100, 50, 64, 90, 80, 70, 255, 60, 50, 40, 0};
  png_alloc_size_t bytes = 0;
  ASSERT_NE(png_image_write_to_memory(&png, nullptr, &bytes, 0, samples, 0, nullptr), 0);
  std::string file(bytes, '\0');
  ASSERT_NE(png_image_write_to_memory(&png, file.data(), &bytes, 0, samples, 0, nullptr), 0);
  EXPECT_EQ(DecodeImage(file, 3, "test").samples, (std::vector<uint8_t>{128, 128, 128, 50, 25, 13, 90, 80, 70, 0, 0, 0}));
  EXPECT_EQ(DecodeImage(file, 1, "test").samples, (std::vector<uint8_t>{128, 31, 82, 0}));
}

TEST(Image, RejectsDamagedFiles) {
  EXPECT_EQ(CodeOf([] { DecodeImage("", 3, "x"); }), ErrorCode::kData);
  EXPECT_EQ(CodeOf([] { DecodeImage("GIF89a", 3, "x"); }), ErrorCode::kData);
  for (const std::string& whole : {PngOf(Picture(40, 40, 3)), JpegOf(Picture(40, 40, 3))}) {
    EXPECT_EQ(CodeOf([&] { DecodeImage(whole.substr(0, whole.size() / 2), 3, "x"); }), ErrorCode::kData);
    EXPECT_EQ(CodeOf([&] { DecodeImage(whole.substr(0, 12), 3, "x"); }), ErrorCode::kData);
  }
  // No flipped byte in either file causes a crash, or an image of another size than the header says.
  for (std::string whole : {PngOf(Picture(12, 10, 3)), JpegOf(Picture(12, 10, 3))}) {
    for (size_t i = 0; i < whole.size(); ++i) {
      std::string flipped = whole;
      flipped[i] = static_cast<char>(flipped[i] ^ 0x41);
      try {
        const Image image = DecodeImage(flipped, 3, "x");
        EXPECT_EQ(image.samples.size(), static_cast<size_t>(image.height * image.width * 3)) << i;
      } catch (const Error&) {
      }
    }
  }
}

TEST(Image, HugeHeadersAllocateNoMemory) {
  std::string png = PngOf(Picture(4, 4, 1));
  // The header claims a width and height of 65,535. Its checksum is wrong now, which may be reported first.
  for (size_t at : {16, 20}) png.replace(at, 4, std::string("\0\0\xFF\xFF", 4));
  EXPECT_NE(CodeOf([&] { DecodeImage(png, 1, "x"); }), ErrorCode::kInternal);
  std::string jpeg = JpegOf(Picture(8, 8, 1));
  const size_t frame = jpeg.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\xFF\xDC\xFF\xDC");
  EXPECT_EQ(CodeOf([&] { DecodeImage(jpeg, 1, "x"); }), ErrorCode::kLimit);
}

// What a file says of its image, before it is read.
TEST(Image, HeadersTellHowMuchMemoryIsNeeded) {
  const TemporaryFolder folder;
  const auto pixels = [&](const std::string& file) {
    WriteWithoutSync(folder / "image", file);
    const InputFile opened(folder / "image");
    const int64_t bytes = BytesToRead({opened, 0, opened.bytes(), opened.path()}) - 2 * std::ssize(file);
    EXPECT_EQ(bytes % 12, 0);
    return bytes / 12;
  };
  EXPECT_EQ(pixels(PngOf(Picture(37, 50, 3))), 37 * 50);
  for (const bool progressive : {false, true}) {
    std::string jpeg = JpegOf(Picture(60, 33, 3), 90, progressive);
    EXPECT_EQ(pixels(jpeg), 60 * 33);
    // A segment as cameras write it, and bytes that fill.
    jpeg.insert(2, std::string("\xFF\xE1\x03\xE9", 4) + std::string(999, 'x') + "\xFF\xFF");
    EXPECT_EQ(pixels(jpeg), 60 * 33);
    EXPECT_EQ(DecodeImage(jpeg, 3, "test").width, 33);
    EXPECT_EQ(pixels(jpeg.substr(0, 500)), 0);
  }
  for (const std::string& damaged :
       {std::string(), std::string("\x89PNG"), std::string(1 << 20, '\xFF'), std::string("\xFF\xD8") + std::string(1 << 20, '\xFF')})
    EXPECT_EQ(pixels(damaged), 0);
}

TEST(Image, RejectsEndlessScans) {
  Image grey = Picture(64, 64, 1);
  const std::string jpeg = JpegOf(grey, 95, true);
  const size_t last = jpeg.rfind("\xFF\xDA");
  ASSERT_NE(last, std::string::npos);
  EXPECT_EQ(DecodeImage(jpeg, 1, "x").width, 64);
  std::string many = jpeg.substr(0, jpeg.size() - 2);
  for (int i = 0; i < 600; ++i) many += jpeg.substr(last, jpeg.size() - 2 - last);
  EXPECT_EQ(CodeOf([&] { DecodeImage(many, 1, "x"); }), ErrorCode::kData);
}

TEST(Image, ResizingAverages) {
  Image image{2, 4, 1, {0, 100, 200, 40, 0, 100, 200, 40}};
  EXPECT_EQ(Resized(image, 2, 4).samples, image.samples);
  // Halved, with a triangle filter two samples wide on each side: weights 3/7, 3/7, 1/7 at the edge.
  const Image half = Resized(image, 1, 2);
  EXPECT_NEAR(half.samples[0], (0 * 3 + 100 * 3 + 200 * 1) / 7.0, 1);
  EXPECT_NEAR(half.samples[1], (100 * 1 + 200 * 3 + 40 * 3) / 7.0, 1);
  // Doubled: interpolated in quarters between neighbors.
  const Image twice = Resized(Image{1, 2, 1, {0, 100}}, 1, 4);
  EXPECT_EQ(twice.samples, (std::vector<uint8_t>{0, 25, 75, 100}));
  const Image flat = Resized(Image{3, 5, 1, std::vector<uint8_t>(15, 77)}, 7, 2);
  for (uint8_t sample : flat.samples) EXPECT_EQ(sample, 77);
}

TEST(Image, CroppingAndFlipping) {
  const Image image{2, 2, 1, {1, 2, 3, 4}};
  EXPECT_EQ(Cropped(image, -1, -1, 3, 3).samples, (std::vector<uint8_t>{0, 0, 0, 0, 1, 2, 0, 3, 4}));
  EXPECT_EQ(Cropped(image, 1, 1, 2, 2).samples, (std::vector<uint8_t>{4, 0, 0, 0}));
  EXPECT_EQ(Cropped(image, 5, 5, 1, 1).samples, (std::vector<uint8_t>{0}));
  EXPECT_EQ(Flipped(image).samples, (std::vector<uint8_t>{2, 1, 4, 3}));
}

// 2 classes, 6 images of 8 x 8.
struct Pictures {
  TemporaryFolder folder;
  Pictures() {
    for (const char* name : {"cats", "dogs"}) std::filesystem::create_directory(folder / name);
    for (int i = 0; i < 3; ++i) {
      WriteFileAtomically(folder / ("cats/" + std::to_string(i) + ".png"), PngOf(Picture(8, 8, 3, i)));
      WriteFileAtomically(folder / ("dogs/" + std::to_string(i) + ".JPG"), JpegOf(Picture(8, 8, 3, i)));
    }
    WriteFileAtomically(folder / "dogs/notes.txt", "no picture");
  }
  std::string root() const { return folder / ""; }
};

const std::vector<Feed> kFeeds = {{"x", DType::kFloat32, {2, 3, 8, 8}, 0}, {"y", DType::kInt64, {2}, 0}};

TEST(ImageRows, FolderYieldsImagesAndClasses) {
  const Pictures pictures;
  DataOptions options{.train = pictures.root(), .transforms = {{"x", {"scale 1/255"}}}};
  const TrainingData data = LoadTrainingData(options, kFeeds, 1);
  EXPECT_EQ(data.train.rows(), 6);
  EXPECT_EQ(data.train.column("y").as<int64_t>()[2], 0);
  EXPECT_EQ(data.train.column("y").as<int64_t>()[3], 1);
  std::vector<int64_t> order{2, 0, 1};
  Batches batches(data.train, order, 2);
  const auto feeds = batches.Get(0);
  const auto* x = static_cast<const float*>(feeds.at("x").data);
  EXPECT_EQ(feeds.at("x").shape, (Shape{2, 3, 8, 8}));
  // Channel 1 of pixel (2, 3) of image 2.
  EXPECT_FLOAT_EQ(x[64 + 2 * 8 + 3], static_cast<float>(Picture(8, 8, 3, 2).at(2, 3)[1]) / 255);
  EXPECT_EQ(batches.Get(1).at("x").shape, (Shape{1, 3, 8, 8}));
  // The fitted transforms round-trip.
  ColumnMap columns;
  std::map<std::string, std::vector<Transform>> fitted;
  TrainingNames names;
  DataFromJson(DataToJson(data), "test", columns, fitted, names);
  EXPECT_EQ(names.classes, (std::vector<std::string>{"cats", "dogs"}));
  std::vector<std::string> notes;
  const Dataset again = LoadFeeds(pictures.root(), kFeeds, columns, fitted, notes);
  Batches same(again, order, 2);
  EXPECT_EQ(std::memcmp(same.Get(0).at("x").data, batches.Get(0).at("x").data, 2 * 3 * 64 * 4), 0);
}

// In data with fewer or other classes, a label has the meaning that it has in the training data.
TEST(ImageRows, OtherDataUseTheTrainingClasses) {
  const Pictures pictures, others;
  std::filesystem::rename(others.folder / "cats", others.folder / "wolves");
  DataOptions options{.train = pictures.root(), .eval = others.root()};
  const Error error = ErrorOf([&] { LoadTrainingData(options, kFeeds, 1); });
  EXPECT_EQ(error.code(), ErrorCode::kData);
  EXPECT_EQ(error.message(), "unknown class 'wolves'; the model was trained on: cats, dogs");
  std::filesystem::remove_all(others.folder / "wolves");
  const TrainingData data = LoadTrainingData(options, kFeeds, 1);
  EXPECT_EQ(data.eval.rows(), 3);
  EXPECT_EQ(data.eval.column("y").as<int64_t>()[0], 1);
  std::vector<std::string> notes;
  EXPECT_EQ(LoadFeeds(others.root(), kFeeds, {}, {}, notes, {}, data.names).column("y").as<int64_t>()[0], 1);
}

TEST(ImageRows, SkipsHiddenFilesAndReportsOtherKinds) {
  const Pictures pictures;
  std::filesystem::create_directory(pictures.folder / ".ipynb_checkpoints");
  std::filesystem::create_directory(pictures.folder / "cats/.thumbnails");
  for (const char* name : {"cats/.thumbnails/0.png", "cats/._0.png", "cats/5.webp", "dogs/1.bmp"})
    WriteFileAtomically(pictures.folder / name, "no picture");
  DataOptions options{.train = pictures.root()};
  const TrainingData data = LoadTrainingData(options, kFeeds, 1);
  EXPECT_EQ(data.train.rows(), 6);
  EXPECT_EQ(data.names.classes, (std::vector<std::string>{"cats", "dogs"}));
  ASSERT_EQ(data.notes.size(), 2u);
  EXPECT_EQ(data.notes[1], "warning 2 files are skipped, neither JPEG nor PNG images: '" + pictures.root() + "cats/5.webp' and others");
}

TEST(ImageRows, TableOfPaths) {
  const Pictures pictures;
  WriteFileAtomically(pictures.folder / "list.csv", "path,a,b\ncats/1.png,0,1\ndogs/2.JPG,1,0.5\n");
  const std::vector<Feed> feeds = {{"x", DType::kFloat32, {2, 3, 4, 4}, 0}, {"y", DType::kFloat32, {2, 2}, 0}};
  DataOptions options{.train = pictures.folder / "list.csv", .columns = {{"x", "images:path"}, {"y", "a..b"}}};
  const TrainingData data = LoadTrainingData(options, feeds, 1);
  EXPECT_EQ(data.train.rows(), 2);
  EXPECT_EQ(data.train.column("y").as<float>()[3], 0.5f);
  std::vector<int64_t> order{0, 1};
  EXPECT_EQ(Batches(data.train, order, 2).Get(0).at("x").shape, (Shape{2, 3, 4, 4}));
}

// Columns next to paths of images are read as in any table: they feed inputs of the same name, and what is missing is filled in.
TEST(ImageRows, TableOfPathsWithMissingNumbers) {
  const Pictures pictures;
  WriteFileAtomically(pictures.folder / "list.csv", "path,y,z\ncats/1.png,0,4\ndogs/2.JPG,1,\n");
  const std::vector<Feed> feeds = {kFeeds[0], kFeeds[1], {"z", DType::kFloat32, {2, 1}, 0}};
  DataOptions options{.train = pictures.folder / "list.csv", .columns = {{"x", "images:path"}}, .transforms = {{"z", {"fill mean"}}}};
  const TrainingData data = LoadTrainingData(options, feeds, 1);
  EXPECT_EQ(data.train.column("y").as<int64_t>()[1], 1);
  EXPECT_EQ(data.train.column("z").as<float>()[1], 4);
  options.transforms.clear();
  EXPECT_EQ(CodeOf([&] { LoadTrainingData(options, feeds, 1); }), ErrorCode::kData);
}

// A model that was trained on arrays: its transforms have a number for each element of a row, in the order of the row.
TEST(ImageRows, TransformsOfArraysApplyToImages) {
  const Pictures pictures;
  std::vector<float> shift(8 * 6 * 3);
  std::iota(shift.begin(), shift.end(), 0.0f);
  for (const Shape& shape : {Shape{2, 3, 8, 6}, Shape{2, 8, 6, 3}}) {
    const std::vector<Feed> feeds = {{"x", DType::kFloat32, shape, 0}, kFeeds[1]};
    const std::map<std::string, std::vector<Transform>> fitted{{"x", {Transform{shift, {0.5f}}}}};
    std::vector<std::string> notes;
    const Dataset plain = LoadFeeds(pictures.root(), feeds, {}, {}, notes), changed = LoadFeeds(pictures.root(), feeds, {}, fitted, notes);
    const std::vector<int64_t> order{4, 1};
    Batches before(plain, order, 2), after(changed, order, 2);
    const Tensor pixels = Tensor::Copy(before.Get(0).at("x")), values = Tensor::Copy(after.Get(0).at("x"));
    for (size_t i = 0; i < 2 * shift.size(); ++i) {
      ASSERT_EQ(values.as<float>()[i], (pixels.as<float>()[i] - shift[i % shift.size()]) * 0.5f) << i;
    }
  }
}

std::vector<float> AllRows(const Dataset& data, PhiloxKey draw, int workers) {
  std::vector<int64_t> order(static_cast<size_t>(data.rows()));
  std::iota(order.begin(), order.end(), 0);
  Batches batches(data, order, 2, {.draw = draw, .workers = workers, .ahead = 2});
  std::vector<float> all;
  for (int64_t i = 0; i < batches.count(); ++i) {
    const TensorView x = batches.Get(i).at("x");
    const auto* from = static_cast<const float*>(x.data);
    all.insert(all.end(), from, from + x.shape.elements());
  }
  return all;
}

TEST(ImageRows, RandomTransformsDependOnTheSeedAlone) {
  const Pictures pictures;
  DataOptions options{.train = pictures.root(),
                      .eval = pictures.root(),
                      .transforms = {{"x", {"random_crop 2", "random_flip", "color_jitter 0.3 0.3 0.3 0.1", "random_rotation 5"}}}};
  const TrainingData data = LoadTrainingData(options, kFeeds, 1);
  const std::vector<float> once = AllRows(data.train, {1, 2}, 1);
  EXPECT_EQ(once, AllRows(data.train, {1, 2}, 4));
  EXPECT_NE(once, AllRows(data.train, {1, 3}, 4));
  // Evaluation uses the images unchanged.
  EXPECT_EQ(AllRows(data.eval, {1, 2}, 2), AllRows(data.eval, {5, 6}, 2));
  EXPECT_EQ(AllRows(data.eval, {1, 2}, 2)[9], static_cast<float>(Picture(8, 8, 3, 0).at(1, 1)[0]));
}

TEST(ImageRows, BrokenFileIsReportedWithItsBatch) {
  const Pictures pictures;
  std::filesystem::resize_file(pictures.folder / "dogs/1.JPG", 200);
  const TrainingData data = LoadTrainingData({.train = pictures.root()}, kFeeds, 1);
  std::vector<int64_t> order{0, 1, 2, 4, 5, 3};
  Batches batches(data.train, order, 2);
  EXPECT_NO_THROW(batches.Get(0));
  std::string where;
  EXPECT_EQ(CodeOf([&] { batches.Get(1); }, &where), ErrorCode::kData);
  EXPECT_NE(where.find("dogs/1.JPG"), std::string::npos);
  EXPECT_NO_THROW(batches.Get(2));
  EXPECT_NO_THROW(batches.Get(0));  // an earlier batch is decoded again
}

TEST(ImageRows, WarnsAboutAClassWithoutImages) {
  const Pictures pictures;
  std::filesystem::create_directory(pictures.folder / "ants");
  const TrainingData data = LoadTrainingData({.train = pictures.root()}, kFeeds, 1);
  EXPECT_EQ(data.train.column("y").as<int64_t>()[0], 1);
  EXPECT_NE(std::find(data.notes.begin(), data.notes.end(), "warning no images of the class 'ants'"), data.notes.end());
}

// Few pixels at first, but many once the shorter side is scaled to the model's size.
TEST(ImageRows, RejectsLongImagesBeforeScaling) {
  const Pictures pictures;
  WriteFileAtomically(pictures.folder / "cats/0.png", PngOf(Picture(60000, 1, 3)));
  const std::vector<Feed> feeds = {{"x", DType::kFloat32, {2, 3, 64, 64}, 0}, kFeeds[1]};
  const auto read = [&](const std::string& transform, std::string* where) {
    const TrainingData data = LoadTrainingData({.train = pictures.root(), .transforms = {{"x", {transform}}}}, feeds, 1);
    std::vector<int64_t> order{0};
    Batches(data.train, order, 1).Get(0);
    where->clear();
  };
  std::string where;
  EXPECT_NO_THROW(read("resize", &where));
  EXPECT_EQ(CodeOf([&] { read("resize_crop", &where); }, &where), ErrorCode::kLimit);
  EXPECT_NE(where.find("cats/0.png"), std::string::npos);
}

// The channel order of Keras models.
TEST(ImageRows, ChannelsMayBeLast) {
  const Pictures pictures;
  const std::vector<Feed> first = {{"x", DType::kFloat32, {2, 3, 8, 6}, 0}, kFeeds[1]},
                          last = {{"x", DType::kFloat32, {2, 8, 6, 3}, 0}, kFeeds[1]};
  const auto read = [&](const std::vector<Feed>& feeds) {
    const TrainingData data =
        LoadTrainingData({.train = pictures.root(),
                          .transforms = {{"x", {"random_flip", "color_jitter 0.2", "random_erasing 1", "normalize 10,20,30 1,2,3"}}}},
                         feeds, 1);
    std::vector<int64_t> order(static_cast<size_t>(data.train.rows()));
    std::iota(order.begin(), order.end(), int64_t{0});
    Batches batches(data.train, order, std::ssize(order));
    return Tensor::Copy(batches.Get(0).at("x"));
  };
  const Tensor planes = read(first), pixels = read(last);
  EXPECT_EQ(pixels.shape(), (Shape{planes.shape()[0], 8, 6, 3}));
  EXPECT_GE(std::ranges::count(pixels.as<float>(), 0.0f), planes.shape()[0] * 3) << "a window of each image is erased";
  for (int64_t i = 0; i < pixels.elements(); ++i) {
    const int64_t channel = i % 3, at = i / 3 % 48, row = i / 144;
    ASSERT_EQ(pixels.as<float>()[static_cast<size_t>(i)], planes.as<float>()[static_cast<size_t>((row * 3 + channel) * 48 + at)]) << i;
  }
}

// Links to themselves or to nothing are ignored; reading the folder must not fail because of them.
TEST(ImageRows, DanglingLinksAreNoClasses) {
  const Pictures pictures;
  std::filesystem::create_symlink("loop", std::filesystem::path(pictures.root()) / "loop");
  std::filesystem::create_symlink("gone", std::filesystem::path(pictures.root()) / "dangling");
  EXPECT_EQ(ListImages(pictures.root()).classes, ListImages(Pictures().root()).classes);
}

TEST(ImageRows, ImagesWithoutClassesHaveNoLabels) {
  const Pictures pictures;
  const std::vector<Feed> input = {kFeeds[0]};
  std::vector<std::string> notes;
  // The folder of one class, which has no folders of classes itself.
  const std::string folder = pictures.folder / "cats";
  const Dataset all = LoadFeeds(folder, input, {}, {}, notes);
  const std::vector<std::string>* paths = ImagePathsOf(*all.lazy_columns().at("x").source);
  ASSERT_NE(paths, nullptr);
  EXPECT_EQ(std::ssize(*paths), all.rows());
  EXPECT_TRUE(std::is_sorted(paths->begin(), paths->end()));
  EXPECT_EQ(*paths, ListImages(folder).paths);
  // One image, and images by a pattern.
  EXPECT_EQ(LoadFeeds(paths->front(), input, {}, {}, notes).rows(), 1);
  const Dataset matched = LoadFeeds(folder + "/*", input, {}, {}, notes);
  EXPECT_EQ(*ImagePathsOf(*matched.lazy_columns().at("x").source), *paths);
  for (const std::string& data : {folder, paths->front()}) {
    const Error error = ErrorOf([&] { LoadTrainingData({.train = data}, kFeeds, 1); });
    EXPECT_EQ(error.code(), ErrorCode::kData);
    EXPECT_NE(error.message().find("sub-folders"), std::string::npos) << error.message();
  }
}

TEST(ImageRows, ImagesThatCannotBeUsedAreReported) {
  const Pictures pictures;
  for (const char* name : {"a.png", "b.jpg"}) WriteFileAtomically(pictures.folder / name, PngOf(Picture(8, 8, 3)));
  const std::vector<std::string> notes = LoadTrainingData({.train = pictures.root()}, kFeeds, 1).notes;
  const std::string loose = "warning 2 images are skipped, outside the folders of the classes: '" + pictures.root() + "a.png' and others";
  EXPECT_NE(std::find(notes.begin(), notes.end(), loose), notes.end());
  // An image whose link leads nowhere is not left out silently.
  std::filesystem::create_symlink("gone.png", pictures.folder / "cats/9.png");
  EXPECT_EQ(ListImages(pictures.root()).paths.size(), 7u);
  // The model has fewer classes.
  const Error error = ErrorOf([&] { LoadTrainingData({.train = pictures.root(), .classes = {{"y", {1, -100}}}}, kFeeds, 1); });
  EXPECT_EQ(error.code(), ErrorCode::kData);
  EXPECT_NE(error.help().find("'dogs'"), std::string::npos) << error.help();
}

// Parts of a data set are no classes, unless they have images themselves.
TEST(ImageRows, PartsAreNoClasses) {
  const TemporaryFolder folder;
  for (const char* part : {"train", "val"}) {
    std::filesystem::create_directories(folder / (std::string(part) + "/cats"));
    WriteFileAtomically(folder / (std::string(part) + "/cats/0.png"), PngOf(Picture(8, 8, 3)));
  }
  const Error error = ErrorOf([&] { LoadTrainingData({.train = folder.path()}, kFeeds, 1); });
  EXPECT_EQ(error.code(), ErrorCode::kData);
  EXPECT_EQ(error.help(), "name the folder whose sub-folders are the classes: --data " + (folder / "train") + " or " + (folder / "val"));
  EXPECT_EQ(LoadTrainingData({.train = folder / "train"}, kFeeds, 1).train.rows(), 1);
  // Nor are they beside folders of other names.
  std::filesystem::create_directories(folder / "more/cats");
  WriteFileAtomically(folder / "more/cats/0.png", PngOf(Picture(8, 8, 3)));
  EXPECT_EQ(ErrorOf([&] { LoadTrainingData({.train = folder.path()}, kFeeds, 1); }).help(), error.help());
  std::filesystem::remove_all(folder / "more");
  WriteFileAtomically(folder / "train/0.png", PngOf(Picture(8, 8, 3)));
  EXPECT_EQ(LoadTrainingData({.train = folder.path()}, kFeeds, 1).train.rows(), 3);
}

TEST(ImageRows, RejectsUnsupportedTransformsAndShapes) {
  const Pictures pictures;
  EXPECT_EQ(CodeOf([&] { LoadTrainingData({.train = pictures.root(), .transforms = {{"x", {"blur"}}}}, kFeeds, 1); }), ErrorCode::kConfig);
  EXPECT_EQ(CodeOf([&] {
              LoadTrainingData({.train = pictures.root(), .transforms = {{"x", {"random_crop x"}}}}, kFeeds, 1);
            }),
            ErrorCode::kConfig);
  const std::vector<Feed> flat = {{"x", DType::kFloat32, {2, 64}, 0}, kFeeds[1]};
  EXPECT_EQ(CodeOf([&] { LoadTrainingData({.train = pictures.root()}, flat, 1); }), ErrorCode::kConfig);
}

}  // namespace
}  // namespace gradloom
