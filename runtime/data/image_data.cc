#include "runtime/data/image_data.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/data/csv.h"
#include "runtime/data/data_files.h"
#include "runtime/data/image_rows.h"

namespace gradloom {
namespace {

constexpr std::string_view kImages = "images:";

Shape RowShape(const Feed& feed) {
  return Shape(std::vector<int64_t>(feed.shape.begin() + (feed.shape.rank() > 0 ? 1 : 0), feed.shape.end()));
}

// Throws Error(kData) if the sub-folders, or some of them, are the parts of a data set (train, val), each with folders of classes. A single
// one of such a name among others may be a class: a train.
void CheckAreClasses(const ImageFolder& images, const std::string& path) {
  constexpr std::string_view kParts[] = {"eval", "evaluation", "test", "testing", "train", "training", "val", "valid", "validation"};
  std::vector<std::string> named;
  for (const std::string& name : images.classes) {
    if (std::find(std::begin(kParts), std::end(kParts), name) != std::end(kParts)) named.push_back(name);
  }
  if (named.size() < std::min<size_t>(images.classes.size(), 2)) return;
  const std::filesystem::path folder(path);
  for (size_t i = 0; i < images.paths.size(); ++i) {
    const std::string& name = images.classes[static_cast<size_t>(images.labels[i])];
    const bool is_named = std::find(named.begin(), named.end(), name) != named.end();
    if (is_named && std::filesystem::path(images.paths[i]).parent_path() == folder / name) return;
  }
  std::string parts;
  for (const std::string& name : named) parts += (parts.empty() ? "--data " : " or ") + Escaped((folder / name).string(), 4096);
  throw Error(ErrorCode::kData, "the sub-folders are parts of a data set, not classes: " + ListedClasses(named), Escaped(path, 4096),
              "name the folder whose sub-folders are the classes: " + parts);
}

// The labels of images, numbered by the class names of the data that was trained on.
std::vector<int64_t> LabelsBy(const std::vector<std::string>& class_names, const ImageFolder& images, const std::string& path) {
  std::map<std::string_view, int64_t> by_name;
  for (size_t i = 0; i < class_names.size(); ++i) by_name.emplace(class_names[i], static_cast<int64_t>(i));
  std::vector<int64_t> labels;
  labels.reserve(images.labels.size());
  for (const int64_t own : images.labels) {
    const std::string& name = images.classes[static_cast<size_t>(own)];
    const auto found = by_name.find(name);
    if (found == by_name.end()) {
      throw Error(ErrorCode::kData, "unknown class '" + Escaped(name, 40) + "'; the model was trained on: " + ListedClasses(class_names),
                  Escaped(path, 4096), "name each sub-folder after a class of the training data");
    }
    labels.push_back(found->second);
  }
  return labels;
}

// Null if the images have no classes.
using Labels = std::function<Tensor()>;

Dataset OfImages(const std::vector<std::string>& paths, const Labels& labels, const std::string& path, const std::vector<Feed>& feeds,
                 const ColumnMap& columns) {
  Dataset data;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const auto mapped = columns.find(feeds[i].name);
    const std::string array = mapped != columns.end() ? mapped->second : i == 0 ? "images" : "labels";
    if (array == "images") {
      data.set_source(feeds[i].name, MakeImageRows(paths, RowShape(feeds[i]), Escaped(path, 4096)));
    } else if (array != "labels") {
      throw Error(ErrorCode::kConfig, "'" + Escaped(array) + "' is not an array of a folder of images", Escaped(path, 4096),
                  "it has: images, labels   (--map " + Escaped(feeds[i].name) + "=labels)");
    } else if (labels == nullptr) {
      throw Error(ErrorCode::kData, "the images are in no sub-folders, which would be their classes", Escaped(path, 4096),
                  "put the images of each class into a folder named after it; only gradloom predict needs no classes");
    } else {
      data.set_column(feeds[i].name, labels());
    }
  }
  return data;
}

Dataset OfFolder(const std::string& path, const std::vector<Feed>& feeds, const ColumnMap& columns, std::vector<std::string>& class_names,
                 std::vector<std::string>& notes) {
  const ImageFolder images = ListImages(path);
  if (!images.classes.empty()) {
    CheckAreClasses(images, path);
    const std::string classes = "classes " + std::to_string(images.classes.size()) + ": " + ListedClasses(images.classes);
    // Training and evaluation data usually have the same.
    if (std::find(notes.begin(), notes.end(), classes) == notes.end()) notes.push_back(classes);
  }
  if (!images.first_other.empty()) {
    const std::string count = Counted(images.others, "file is", "files are");
    notes.push_back("warning " + count + " skipped, neither JPEG nor PNG images: '" + Escaped(images.first_other, 4096) +
                    (images.others > 1 ? "' and others" : "'"));
  }
  if (images.classes.empty()) return OfImages(images.paths, nullptr, path, feeds, columns);
  if (images.loose > 0) {
    const std::string count = Counted(images.loose, "image is", "images are");
    notes.push_back("warning " + count + " skipped, outside the folders of the classes: '" + Escaped(images.first_loose, 4096) +
                    (images.loose > 1 ? "' and others" : "'"));
  }
  const std::set<int64_t> present(images.labels.begin(), images.labels.end());
  // An empty class still counts, since training and evaluation data must number classes alike.
  for (size_t i = 0; i < images.classes.size(); ++i) {
    if (!present.contains(static_cast<int64_t>(i)))
      notes.push_back("warning no images of the class '" + Escaped(images.classes[i], 40) + "'");
  }
  const auto labels = [&] {
    if (class_names.empty()) class_names = images.classes;
    const std::vector<int64_t> numbers = LabelsBy(class_names, images, path);
    return Tensor::From(numbers, {static_cast<int64_t>(numbers.size())});
  };
  return OfImages(images.paths, labels, path, feeds, columns);
}

}  // namespace

bool AreImagePaths(const std::string& selection) { return selection.starts_with(kImages); }

Dataset LoadImageData(const DataFile& file, const std::vector<Feed>& feeds, const ColumnMap& columns, std::vector<std::string>& class_names,
                      std::vector<std::string>& notes) {
  return IsImageName(file.path) && !std::filesystem::is_directory(file.path) ? LoadImageFiles({file}, feeds, columns)
                                                                             : OfFolder(file.path, feeds, columns, class_names, notes);
}

void AddImagesOfPaths(Dataset& data, const DataFile& file, const std::vector<Feed>& feeds, const ColumnMap& columns) {
  if (KindOfDataFile(file) != DataFileKind::kTable) {
    throw Error(ErrorCode::kConfig, "paths of images must come from a table", Escaped(file.path, 4096),
                "use --data list.csv --map image=images:path");
  }
  const std::filesystem::path folder = FolderOf(file.path);
  for (const Feed& feed : feeds) {
    const std::string column = columns.at(feed.name).substr(kImages.size());
    std::vector<std::string> paths;
    const std::vector<std::vector<std::string>> names = ReadCsvText(file.path, {column}, TableOptions(file));
    for (const std::string& name : names[0]) paths.push_back((folder / name).string());
    data.set_source(feed.name, MakeImageRows(std::move(paths), RowShape(feed), Escaped(file.path, 4096), file.path));
  }
}

Dataset LoadImageFiles(const std::vector<DataFile>& files, const std::vector<Feed>& feeds, const ColumnMap& columns) {
  std::vector<std::string> paths;
  for (const DataFile& file : files) {
    if (!IsImageName(file.path)) {
      throw Error(ErrorCode::kData, "not an image, unlike '" + Escaped(files.front().path, 4096) + "' of the same data",
                  Escaped(file.path, 4096), "a pattern must match files of one kind: 'new/*.{jpg,png}'");
    }
    paths.push_back(file.path);
  }
  return OfImages(paths, nullptr, files.front().path, feeds, columns);
}

}  // namespace gradloom
