#include "runtime/data/image_rows.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "runtime/base/ascii_lower.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/host_memory.h"
#include "runtime/data/image.h"
#include "runtime/data/image_steps.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

struct ImagesBeingRead {
  explicit ImagesBeingRead(const ImagesBeingRead* of_parent) : parent(of_parent) {}
  std::mutex turn, mutex;
  std::condition_variable freed;
  int64_t used = 0;                     // bytes
  const ImagesBeingRead* const parent;  // of the process that has forked this one; it stays reachable
};

ImagesBeingRead* being_read = new ImagesBeingRead(nullptr);

// A forked child begins anew: it has copies of the locks, but not the threads that hold them.
[[maybe_unused]] const int kForked = pthread_atfork(nullptr, nullptr, [] { being_read = new ImagesBeingRead(being_read); });

// The memory of images that are being read. Threads read many small images at once, but large ones in turn: together those of all threads
// could be larger than the memory.
class ReadingSpace {
 public:
  // Waits until there is room. Throws Error(kResource) if there is too little even for this image alone.
  ReadingSpace(int64_t bytes, const std::string& path) : all_(*being_read), bytes_(bytes) {
    static const int64_t most = std::max(FreeHostBytes() / 4, int64_t{64} << 20);
    // A large image is not overtaken by small ones for ever.
    const std::lock_guard turn(all_.turn);
    std::unique_lock lock(all_.mutex);
    all_.freed.wait(lock, [&] { return all_.used == 0 || all_.used + bytes_ <= most; });
    if (all_.used + bytes_ > most) RequireHostMemory(bytes_, "reading this image", Escaped(path, 4096), "shrink the image first");
    all_.used += bytes_;
  }
  ~ReadingSpace() {
    {
      const std::lock_guard lock(all_.mutex);
      all_.used -= bytes_;
    }
    all_.freed.notify_all();
  }
  ReadingSpace(const ReadingSpace&) = delete;
  ReadingSpace& operator=(const ReadingSpace&) = delete;

 private:
  ImagesBeingRead& all_;
  const int64_t bytes_;
};

// Where images are that have no files of their own.
struct ImageArchive {
  std::string path;
  std::vector<std::pair<int64_t, int64_t>> places;  // by row: the first byte, and how many
};

class ImageRows : public RowSource {
 public:
  ImageRows(std::vector<std::string> paths, const Shape& shape, const std::string& where, std::string list,
            std::shared_ptr<const ImageArchive> archive = nullptr)
      : paths_(std::make_shared<std::vector<std::string>>(std::move(paths))), archive_(std::move(archive)), list_(std::move(list)) {
    const auto are_channels = [](int64_t extent) { return extent == 1 || extent == 3; };
    channels_last_ = shape.rank() == 3 && !are_channels(shape[0]) && are_channels(shape[2]);
    if (shape.rank() != 3 || !(are_channels(shape[0]) || channels_last_) || shape.elements() < 1) {
      throw Error(ErrorCode::kConfig, "images cannot fill rows of shape " + shape.ToString(), where,
                  "an input for images must be [batch, 1 or 3 channels, height, width], or have the channels last");
    }
    const int first = channels_last_ ? 0 : 1;
    channels_ = static_cast<int>(shape[channels_last_ ? 2 : 0]);
    height_ = shape[first];
    width_ = shape[first + 1];
    for (size_t sample = 0; sample < kSamples; ++sample) {
      for (auto& numbers : numbers_) numbers[sample] = static_cast<float>(sample);
    }
  }

  const std::vector<std::string>& paths() const { return *paths_; }
  int64_t rows() const override { return static_cast<int64_t>(paths_->size()); }
  Shape row_shape() const override { return channels_last_ ? Shape{height_, width_, channels_} : Shape{channels_, height_, width_}; }

  bool is_slow() const override { return true; }

  void Read(int64_t row, PhiloxKey draw, void* to) const override {
    const std::string& path = (*paths_)[static_cast<size_t>(row)];
    std::optional<ReadingSpace> space;
    Image image = Opened(static_cast<size_t>(row), space);
    const ImageGoal goal{height_, width_, path};
    std::vector<ImageWindow> erased;
    std::map<uint32_t, uint32_t> before;  // by kind
    for (const ImageStep& step : steps_) {
      ImageDraws draws(row, step.kind(), before[step.kind()]++, draw);
      if (!step.erases()) {
        image = step.Apply(std::move(image), draws, goal);
      } else if (const std::optional<ImageWindow> window = step.Erased(draws, goal)) {
        erased.push_back(*window);
      }
    }
    if (image.height != height_ || image.width != width_) image = ResizedWithin(image, height_, width_, path);
    auto* const values = static_cast<float*>(to);
    const int64_t points = height_ * width_;
    for (int c = 0; c < channels_; ++c) {
      const auto& numbers = numbers_[static_cast<size_t>(c)];
      const uint8_t* from = image.samples.data() + c;
      float* channel = values + (channels_last_ ? c : c * points);
      const int64_t step = channels_last_ ? channels_ : 1;
      for (int64_t i = 0; i < points; ++i) channel[i * step] = numbers[from[i * channels_]];
    }
    const std::span<float> row_values(values, static_cast<size_t>(points * channels_));
    for (const Transform& t : by_pixel_) t.ShiftAndScale(row_values);
    for (const ImageWindow& window : erased) Erase(window, values);
  }

  // Kept as text: random transforms do not apply in evaluation.
  Transform Fitted(const std::string& text, std::span<const int64_t>) const override { return {.row_transform = text}; }

  std::shared_ptr<const RowSource> With(const Transform& given, bool training) const override {
    const std::string& transform = given.row_transform;
    auto with = std::make_shared<ImageRows>(*this);
    if (transform.empty()) {
      // Made for arrays or a table. Pixels are never missing, so nothing is filled in.
      with->AddNumeric(given);
    } else if (transform.starts_with("scale ") || transform.starts_with("normalize ")) {
      // With the channels last, one number per channel repeats for each pixel.
      const Shape shape = channels_last_ ? Shape{1, channels_} : Shape{1, channels_, height_, width_};
      with->AddNumeric(Transform::Parse(transform, Tensor(DType::kFloat32, shape)));
    } else {
      const ImageStep step = ImageStep::Parse(transform);
      if (const std::optional<ImageStep> used = training ? step : step.ForEvaluation()) with->steps_.push_back(*used);
    }
    return with;
  }

 private:
  static constexpr size_t kSamples = 256, kMaxChannels = 3;

  // The number that all pixels of a channel have in a list of one number, or one per element of a row; nullopt if they differ.
  std::optional<float> OfChannel(const std::vector<float>& list, int channel) const {
    const int64_t points = height_ * width_, step = channels_last_ ? channels_ : 1;
    int64_t at = channels_last_ ? channel : channel * points;
    const float first = list[static_cast<size_t>(at) % list.size()];
    for (int64_t i = 0; i < points && list.size() > 1; ++i, at += step) {
      if (list[static_cast<size_t>(at) % list.size()] != first) return std::nullopt;
    }
    return first;
  }

  // In the order of the row, for which a transform of arrays has its numbers.
  void AddNumeric(const Transform& transform) {
    std::array<std::optional<float>, kMaxChannels> shifts, scales;
    bool same = by_pixel_.empty();
    for (size_t c = 0; same && c < static_cast<size_t>(channels_); ++c) {
      shifts[c] = OfChannel(transform.shift, static_cast<int>(c));
      scales[c] = OfChannel(transform.scale, static_cast<int>(c));
      same = shifts[c] && scales[c];
    }
    if (!same) return by_pixel_.push_back(transform);
    for (size_t c = 0; c < static_cast<size_t>(channels_); ++c) {
      for (float& number : numbers_[c]) number = (number - *shifts[c]) * *scales[c];
    }
  }

  // Sets the window to zero in all channels.
  void Erase(const ImageWindow& window, float* values) const {
    const int64_t across = channels_last_ ? channels_ : 1, planes = channels_last_ ? 1 : channels_;
    for (int64_t plane = 0; plane < planes; ++plane) {
      for (int64_t y = window.top; y < window.top + window.height; ++y)
        std::fill_n(values + (plane * height_ + y) * width_ * across + window.left * across, window.width * across, 0.0f);
    }
  }

  Image Opened(size_t row, std::optional<ReadingSpace>& space) const {
    const std::string& path = (*paths_)[row];
    const auto read = [&](const ImageBytes& from) {
      space.emplace(BytesToRead(from), path);
      return ReadImage(from, channels_);
    };
    if (archive_ != nullptr) {
      const auto [offset, bytes] = archive_->places[row];
      return read({InputFile(archive_->path, std::numeric_limits<int64_t>::max()), offset, bytes, path});
    }
    try {
      const InputFile file(path, kImageFileLimitBytes);
      return read({file, 0, file.bytes(), path});
    } catch (const Error& error) {
      if (list_.empty() || error.code() != ErrorCode::kIo) throw;
      throw Error(error.code(), error.message(), error.where(),
                  "it is named in '" + Escaped(list_, 4096) + "'; relative paths in it start at the folder of that file");
    }
  }

  std::shared_ptr<const std::vector<std::string>> paths_;
  std::shared_ptr<const ImageArchive> archive_;  // null: the paths are files
  std::string list_;
  int channels_ = 3;
  bool channels_last_ = false;
  int64_t height_ = 0, width_ = 0;
  std::vector<ImageStep> steps_;
  // By channel, what each sample becomes by the numeric transforms up to the first that differs between pixels. It and those after it are
  // in by_pixel_.
  std::array<std::array<float, kSamples>, kMaxChannels> numbers_{};
  std::vector<Transform> by_pixel_;
};

enum class ImageKind : uint8_t { kNone, kRead, kOther };

ImageKind KindOfImage(const fs::path& path) {
  const std::string ending = AsciiLower(path.extension().string());
  if (ending == ".jpg" || ending == ".jpeg" || ending == ".png") return ImageKind::kRead;
  for (const char* other : {".avif", ".bmp", ".gif", ".heic", ".jfif", ".jp2", ".pgm", ".ppm", ".tif", ".tiff", ".webp"}) {
    if (ending == other) return ImageKind::kOther;
  }
  return ImageKind::kNone;
}

bool IsHidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

// Adds the images of one class, from its folder and the folders below it.
void ListClass(const fs::path& folder, std::vector<std::string>& paths, ImageFolder& images) {
  for (fs::recursive_directory_iterator it(folder), end; it != end; ++it) {
    if (IsHidden(it->path())) {
      it.disable_recursion_pending();
      continue;
    }
    const ImageKind kind = KindOfImage(it->path());
    // A link whose image is missing is reported when that is read.
    if (kind == ImageKind::kNone || !(it->is_regular_file() || it->is_symlink())) continue;
    if (kind == ImageKind::kRead) {
      paths.push_back(it->path().string());
    } else if (images.others++ == 0 || it->path().string() < images.first_other) {
      images.first_other = it->path().string();
    }
  }
}

}  // namespace

bool IsImageName(const std::string& path) { return KindOfImage(path) == ImageKind::kRead; }

bool IsImageFolder(const std::string& path) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (entry.is_directory(error) || (!IsHidden(entry.path()) && IsImageName(entry.path().string()))) return true;
  }
  return false;
}

ImageFolder ListImages(const std::string& folder) {
  ImageFolder images, flat;
  std::vector<fs::path> classes;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      // A broken link is not a folder.
      std::error_code error;
      if (IsHidden(entry.path())) continue;
      if (entry.is_directory(error)) {
        classes.push_back(entry.path());
        continue;
      }
      const ImageKind kind = KindOfImage(entry.path());
      if (kind == ImageKind::kRead) flat.paths.push_back(entry.path().string());
      if (kind == ImageKind::kOther && (flat.others++ == 0 || entry.path().string() < flat.first_other))
        flat.first_other = entry.path().string();
    }
    std::sort(flat.paths.begin(), flat.paths.end());
    std::sort(classes.begin(), classes.end());
    for (const fs::path& one : classes) {
      std::vector<std::string> paths;
      ListClass(one, paths, images);
      std::sort(paths.begin(), paths.end());
      images.labels.insert(images.labels.end(), paths.size(), static_cast<int64_t>(images.classes.size()));
      images.paths.insert(images.paths.end(), paths.begin(), paths.end());
      images.classes.push_back(one.filename().string());
    }
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorCode::kIo, "cannot read the folder: " + error.code().message(), Escaped(folder, 4096));
  }
  if (images.paths.empty() && !flat.paths.empty()) return flat;
  if (images.paths.empty()) {
    throw Error(ErrorCode::kData, "no images in the sub-folders", Escaped(folder, 4096),
                "a folder of images must have one sub-folder per class, with .jpg and .png files in it");
  }
  images.loose = std::ssize(flat.paths);
  if (images.loose > 0) images.first_loose = flat.paths.front();
  return images;
}

const std::vector<std::string>* ImagePathsOf(const RowSource& rows) {
  const auto* images = dynamic_cast<const ImageRows*>(&rows);
  return images == nullptr ? nullptr : &images->paths();
}

std::shared_ptr<const RowSource> MakeImageRows(std::vector<std::string> paths, const Shape& row_shape, const std::string& where,
                                               const std::string& list) {
  return std::make_shared<ImageRows>(std::move(paths), row_shape, where, list);
}

std::shared_ptr<const RowSource> MakeImageRows(const std::string& archive, std::vector<TarMember> images, const Shape& row_shape) {
  auto made = std::make_shared<ImageArchive>();
  made->path = archive;
  std::vector<std::string> paths;
  for (const TarMember& image : images) {
    paths.push_back(archive + "/" + image.name);
    made->places.emplace_back(image.offset, image.bytes);
    if (image.bytes > kImageFileLimitBytes)
      throw Error(ErrorCode::kLimit, "an image of " + std::to_string(image.bytes) + " bytes", Escaped(paths.back(), 4096));
  }
  return std::make_shared<ImageRows>(std::move(paths), row_shape, Escaped(archive, 4096), "", std::move(made));
}

}  // namespace gradloom
