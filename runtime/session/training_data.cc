#include "runtime/session/training_data.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/nearest.h"
#include "runtime/base/philox.h"
#include "runtime/session/data_files.h"
#include "runtime/session/image_data.h"
#include "runtime/session/stored_rows.h"
#include "runtime/session/tokens.h"

namespace gradloom {
namespace {

template <typename Value>
void CheckNames(const std::map<std::string, Value>& by_name, const std::vector<Feed>& feeds, const std::string& flag) {
  std::vector<std::string> names;
  std::string known;
  for (const Feed& feed : feeds) {
    names.push_back(feed.name);
    known += (known.empty() ? "" : ", ") + Escaped(feed.name);
  }
  for (const auto& [name, value] : by_name) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string near = Nearest(name, names);
    throw Error(ErrorCode::kConfig, "the model has no input or target '" + Escaped(name) + "'", flag,
                near.empty() ? "it has: " + known : "did you mean '" + Escaped(near) + "'?   it has: " + known);
  }
}

constexpr std::string_view kRandom = "random:";

bool IsTable(const std::string& path) { return !path.starts_with(kRandom) && KindOfDataFile(path) == DataFileKind::kTable; }

// The stream of random numbers apart from all others.
constexpr uint64_t kRandomStream = 0x72616E646F6D;

// Numbers of mean 0 and variance 1, or whole numbers below the bound.
Tensor RandomColumn(const Feed& feed, int64_t rows, int64_t bound, PhiloxKey key) {
  Shape shape = feed.shape;
  if (shape.rank() > 0) shape[0] = rows;
  const bool floating = IsFloating(feed.dtype);
  Tensor column(floating ? DType::kFloat32 : DType::kInt64, shape);
  for (int64_t i = 0; i < column.elements(); ++i) {
    const PhiloxBlock block = Philox({static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0}, key);
    if (floating) {
      // Box and Muller.
      const double u = (static_cast<double>(block[0]) + 1) * 0x1p-32, turn = static_cast<double>(block[1]) * 0x1p-32;
      column.as<float>()[static_cast<size_t>(i)] = static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * turn));
    } else {
      column.as<int64_t>()[static_cast<size_t>(i)] = static_cast<int64_t>(block[0] % static_cast<uint64_t>(bound));
    }
  }
  return column;
}

// Throws Error(kData) where the first line has no commas and what others put in their place.
void CheckDelimiter(const std::string& path, const std::vector<std::string>& first) {
  if (first.size() != 1) return;
  constexpr std::pair<char, const char*> kOthers[] = {
      {';', "semicolons"}, {'\t', "tabs, which a .tsv file has"}, {'\r', "line ends of carriage returns alone"}};
  for (const auto& [other, name] : kOthers) {
    if (first[0].find(other) == std::string::npos) continue;
    throw Error(ErrorCode::kData, std::string("the first line is one field, with ") + name + " in it", Escaped(path, 4096) + ":1",
                "fields are separated by commas, in a .tsv file by tabs, and lines by line feeds");
  }
}

// All columns but one, as a selection has them.
std::string AllBut(const std::vector<std::string>& names, size_t left_out) {
  std::string text;
  const auto add = [&](size_t begin, size_t end) {
    if (begin >= end) return;
    text += (text.empty() ? "" : ",") + names[begin] + (end - begin > 1 ? ".." + names[end - 1] : "");
  };
  add(0, std::min(left_out, names.size()));
  add(left_out + 1, names.size());
  return text;
}

// Without a map columns have the names of what they feed; or one of the target's name, or else the last, is the target, and the others are
// the input.
ColumnMap GuessColumns(const std::string& path, const std::vector<Feed>& feeds, std::vector<std::string>& notes) {
  const std::vector<std::string> names = CsvSelectors(path, TableOptions(path));
  CheckDelimiter(path, names);
  if (names.size() < feeds.size()) {
    throw Error(ErrorCode::kData,
                "the table has " + std::to_string(names.size()) + (names.size() == 1 ? " column" : " columns") + ", and the model wants " +
                    std::to_string(feeds.size()) + " or more",
                Escaped(path, 4096), "fields are separated by commas, in a .tsv file by tabs");
  }
  ColumnMap columns;
  for (const Feed& feed : feeds) {
    if (std::find(names.begin(), names.end(), feed.name) != names.end()) columns[feed.name] = feed.name;
  }
  if (columns.size() == feeds.size()) return columns;
  if (feeds.size() > 2) {
    std::string help;
    for (const Feed& feed : feeds) help += (help.empty() ? "--map " : " --map ") + Escaped(feed.name) + "=COLUMNS";
    throw Error(ErrorCode::kConfig, "which columns feed the model must be said", Escaped(path, 4096), help);
  }
  // Where no target is wanted, a last column that is one too many is that.
  const Shape& shape = feeds[0].shape;
  const int64_t wanted = shape.rank() > 0 && shape[0] > 0 ? shape.elements() / shape[0] : 1;
  const bool leaves_last = feeds.size() == 2 || std::ssize(names) == wanted + 1;
  size_t target = leaves_last ? names.size() - 1 : names.size();
  if (feeds.size() == 2 && columns.contains(feeds[1].name))
    target = static_cast<size_t>(std::find(names.begin(), names.end(), feeds[1].name) - names.begin());
  columns = {{feeds[0].name, AllBut(names, target)}};
  if (feeds.size() == 2) columns[feeds[1].name] = names[target];
  std::string note;
  for (const Feed& feed : feeds) note += (note.empty() ? "columns " : "  ") + Escaped(feed.name) + "=" + Escaped(columns[feed.name]);
  notes.push_back(note + "   [guessed: set --map to change]");
  return columns;
}

// The array for input or target `index` where no map says it: the file's of the same name, or the one that the format
// means for it.
std::string DefaultArray(const std::string& path, const std::vector<Feed>& feeds, size_t index) {
  const DataFileKind kind = KindOfDataFile(path);
  if (index < 2 && kind == DataFileKind::kTokens) return index == 0 ? "tokens" : "next";
  if (index < 2 && kind == DataFileKind::kIdxSet) return index == 0 ? "images" : "labels";
  return feeds[index].name;
}

bool HasColumn(const std::string& path, const std::string& name) {
  const std::vector<std::string> names = CsvSelectors(path, TableOptions(path));
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<ColumnSource> SourcesOf(const std::string& path, const std::vector<Feed>& feeds, const ColumnMap& columns) {
  std::vector<ColumnSource> sources;
  for (const Feed& feed : feeds) {
    const auto mapped = columns.find(feed.name);
    if (mapped == columns.end() && IsTable(path) && !HasColumn(path, feed.name)) {
      throw Error(ErrorCode::kConfig, "no columns are given for '" + Escaped(feed.name) + "'", Escaped(path, 4096),
                  "--map " + Escaped(feed.name) + "=COLUMNS");
    }
    sources.push_back({feed.name, mapped == columns.end() ? DefaultArray(path, feeds, sources.size()) : mapped->second,
                       IsFloating(feed.dtype) ? DType::kFloat32 : DType::kInt64, feed.shape.rank() >= 2 ? feed.shape[1] : 0});
  }
  return sources;
}

Dataset RandomFeeds(const std::string& text, const std::map<std::string, ClassRange>& classes, const std::vector<Feed>& feeds,
                    int64_t seed) {
  int64_t rows = 0;
  const std::string count = text.substr(kRandom.size());
  const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), rows);
  if (error != std::errc() || end != count.data() + count.size() || rows < 1 || rows > (1 << 24)) {
    throw Error(ErrorCode::kConfig, "'" + Escaped(text) + "' is no number of random samples", "", "it reads random:256");
  }
  Dataset data;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const auto range = classes.find(feeds[i].name);
    const PhiloxKey key = NodeKey(static_cast<uint64_t>(seed), i, kRandomStream);
    data.set_column(feeds[i].name, RandomColumn(feeds[i], rows, range == classes.end() ? 2 : range->second.count, key));
  }
  return data;
}

// The rows of a table have no shape that could be wrong.
void FitToFeeds(Dataset& data, const std::vector<Feed>& feeds, const std::string& path, const std::set<std::string>& targets) {
  for (const Feed& feed : feeds) {
    const Shape row(std::vector<int64_t>(feed.shape.begin() + (feed.shape.rank() > 0 ? 1 : 0), feed.shape.end()));
    try {
      const bool strict = targets.contains(feed.name) && !IsTable(path);
      data.Fit(feed.name, feed.dtype, row, strict ? Dataset::Reshaping::kOnes : Dataset::Reshaping::kFlatRows);
    } catch (const Error& error) {
      // The data set does not know where its columns are from.
      throw Error(error.code(), error.message(), Escaped(path, 4096), error.help());
    }
  }
}

// Before the rows are mixed, so that the message can name one as the file has it.
void CheckClasses(const Dataset& data, const std::map<std::string, ClassRange>& classes, const std::string& path) {
  for (const auto& [name, range] : classes) {
    const auto found = data.columns().find(name);
    if (found == data.columns().end() || IsFloating(found->second.dtype())) continue;
    const TensorView column = found->second.view();
    for (int64_t i = 0; i < column.elements(); ++i) {
      const int64_t value = ElementAsInt(column, i);
      if ((value >= 0 && value < range.count) || value == range.ignored) continue;
      throw Error(ErrorCode::kData,
                  "row " + std::to_string(i * data.rows() / column.elements()) + " (counted from 0) has class " + std::to_string(value) +
                      " in '" + Escaped(name) + "'; the model has classes 0 to " + std::to_string(range.count - 1),
                  Escaped(path, 4096), "classes count from 0; to leave a row out give it the class " + std::to_string(range.ignored));
    }
  }
}

// Smaller rows are had faster in memory, as long as there are not many of them.
constexpr int64_t kLeastStoredBytes = 256;

// What is read of a file, and how.
struct Reading {
  const std::set<std::string>& targets;
  const std::map<std::string, ClassRange>& classes;
  bool on_demand = false;
  int64_t large_bytes = kLargeBytes;
  std::set<std::string> measured = {};  // feeds with transforms that are measured, which reads all rows
};

// The rows of a feed in the array that it is to have; null where their values have to be looked at, or where they are not what the feed
// wants.
std::shared_ptr<const RowSource> RowsOf(StoredArray array, const std::string& path, const ColumnSource& source, const Feed& feed,
                                        const Reading& reading) {
  if (feed.shape.rank() == 0 || !CanBeStored(array.dtype, feed.dtype)) return nullptr;
  StoredRowsOptions options{.dtype = feed.dtype, .column = feed.name};
  options.row_shape = Shape(std::vector<int64_t>(feed.shape.begin() + 1, feed.shape.end()));
  if (KindOfDataFile(path) == DataFileKind::kTokens) {
    if (options.row_shape != Shape{source.window} || (source.source != "tokens" && source.source != "next")) return nullptr;
    options.rows = CountWindows(array.shape[0], source.window, Escaped(path, 4096));
    options.first = source.source == "next" ? 1 : 0;
  } else {
    if (array.shape.rank() == 0 || array.shape[0] == 0) return nullptr;
    const Shape have(std::vector<int64_t>(array.shape.begin() + 1, array.shape.end()));
    const bool strict = reading.targets.contains(feed.name) && !IsTable(path);
    if (!RowsFit(have, options.row_shape, strict ? Dataset::Reshaping::kOnes : Dataset::Reshaping::kFlatRows)) return nullptr;
    options.rows = array.shape[0];
  }
  const auto range = reading.classes.find(feed.name);
  if (range != reading.classes.end() && !IsFloating(feed.dtype))
    options.classes = StoredRowsOptions::Classes{range->second.count, range->second.ignored};
  return MakeStoredRows(std::move(array), std::move(options));
}

// The rows of a feed that may stay in the file; null: they are read at once.
std::shared_ptr<const RowSource> StoredColumn(const std::string& path, const ColumnSource& source, const Feed& feed,
                                              const Reading& reading) {
  if (!reading.on_demand || feed.shape.rank() == 0) return nullptr;
  std::optional<StoredArray> array = OpenArray(path, source, reading.large_bytes);
  if (!array) return nullptr;
  const int64_t width = DTypeBytes(array->dtype), row_bytes = WithRows(feed.shape, 1).elements() * width;
  const bool large_rows = row_bytes >= kLeastStoredBytes && !reading.measured.contains(feed.name);
  if (!large_rows && array->shape.elements() * width < reading.large_bytes) return nullptr;
  return RowsOf(std::move(*array), path, source, feed, reading);
}

Tensor WholeOf(const StoredArray& array) {
  Tensor values(array.dtype, array.shape);
  array.read(0, values.data(), values.bytes());
  return values;
}

Dataset ReadArrays(const std::string& path, const std::vector<Feed>& feeds, const ColumnMap& columns, const Reading& reading,
                   std::vector<std::string>& notes) {
  const std::vector<ColumnSource> sources = SourcesOf(path, feeds, columns);
  std::vector<ColumnSource> at_once;
  std::vector<std::pair<std::string, std::shared_ptr<const RowSource>>> stored;
  for (size_t i = 0; i < sources.size(); ++i) {
    auto rows = StoredColumn(path, sources[i], feeds[i], reading);
    if (rows == nullptr) {
      at_once.push_back(sources[i]);
    } else {
      stored.emplace_back(sources[i].name, std::move(rows));
    }
  }
  LoadedData loaded;
  if (!at_once.empty()) {
    CsvOptions options = TableOptions(path);
    if (reading.on_demand) options.memory_bytes = reading.large_bytes;
    loaded = stored.empty() ? LoadData(path, at_once, options) : LoadDataAlone(path, at_once);
    for (const std::string& warning : loaded.warnings) notes.push_back("warning " + warning);
  }
  Dataset data = std::move(loaded.data);
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto found = loaded.stored.find(sources[i].name);
    if (found == loaded.stored.end()) continue;
    if (auto rows = RowsOf(found->second, path, sources[i], feeds[i], reading); rows != nullptr) {
      stored.emplace_back(found->first, std::move(rows));
    } else {
      data.set_column(found->first, WholeOf(found->second));  // FitToFeeds converts it, or says what is wrong with it
    }
  }
  try {
    for (auto& [name, rows] : stored) data.set_source(name, std::move(rows));
  } catch (const Error& error) {
    // The data set does not know where its columns are from.
    throw Error(error.code(), error.message(), Escaped(path, 4096), error.help());
  }
  return data;
}

Dataset ReadFeeds(const std::string& path, const std::vector<Feed>& feeds, const ColumnMap& columns, const Reading& reading,
                  TrainingNames& names, std::vector<std::string>& notes) {
  ColumnMap used = columns;
  if (IsTable(path)) {
    const std::vector<std::string> own = CsvSelectors(path, TableOptions(path));
    if (names.columns.empty()) names.columns = own;
    if (own != names.columns) {
      for (auto& [name, selection] : used) selection = CsvWrittenOut(selection, names.columns);
    }
  }
  if (HasImages(path, used)) {
    Dataset images = LoadImageData(path, feeds, used, names.classes, notes);
    FitToFeeds(images, feeds, path, reading.targets);
    return images;
  }
  Dataset data = ReadArrays(path, feeds, used, reading, notes);
  FitToFeeds(data, feeds, path, reading.targets);
  return data;
}

// Random transforms of rows that a source makes are for training alone.
void Apply(const Transform& transform, const std::string& name, bool training, Dataset& data) {
  if (data.rows() == 0) return;
  if (data.made(name)) {
    data.set_source(name, data.made_columns().at(name).source->With(transform, training));
    return;
  }
  Tensor column = data.column(name);
  // What was written for rows that are made may be meant for others, too: of images to train on and an array to evaluate with.
  (transform.row_transform.empty() ? transform : Transform::Parse(transform.row_transform, column)).Apply(column);
  data.set_column(name, std::move(column));
}

Transform FittedOn(const Dataset& data, const std::string& name, const std::string& text) {
  if (!data.made(name)) return Transform::Parse(text, data.column(name));
  const Dataset::MadeColumn& column = data.made_columns().at(name);
  return column.source->Fitted(text, column.rows);
}

void SplitOff(const std::string& text, int64_t seed, TrainingData& data) {
  const bool tail = text.starts_with("tail:");
  const double share = ParseShare(tail ? text.substr(5) : text);
  const Split split = tail ? TailSplit(data.train.rows(), share) : RandomSplit(data.train.rows(), share, static_cast<uint64_t>(seed));
  data.eval = data.train.Select(split.eval);
  data.train = data.train.Select(split.train);
}

}  // namespace

double ParseShare(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string rest(end, text.data() + text.size());
  if (error != std::errc() || (!rest.empty() && rest != "%") || !std::isfinite(value)) {
    throw Error(ErrorCode::kConfig, "'" + Escaped(text) + "' is no share", "", "a share reads 20% or 0.2");
  }
  return rest == "%" ? value / 100 : value;
}

TrainingData LoadTrainingData(const DataOptions& options, const std::vector<Feed>& feeds, int64_t seed) {
  CheckNames(options.columns, feeds, "--map");
  CheckNames(options.transforms, feeds, "--transform");
  if (!options.eval.empty() && !options.eval_split.empty()) {
    throw Error(ErrorCode::kConfig, "evaluation data and a share held back for evaluation are both given", "--eval-split",
                "leave out --eval-data or --eval-split");
  }
  Reading reading{
      .targets = options.targets, .classes = options.classes, .on_demand = options.on_demand, .large_bytes = options.large_bytes};
  for (const auto& [name, texts] : options.transforms) {
    if (std::any_of(texts.begin(), texts.end(), Transform::IsMeasured)) reading.measured.insert(name);
  }
  TrainingData data;
  data.columns = options.columns;
  if (data.columns.empty() && IsTable(options.train)) data.columns = GuessColumns(options.train, feeds, data.notes);
  if (options.train.starts_with(kRandom)) {
    data.train = RandomFeeds(options.train, options.classes, feeds, seed);
    FitToFeeds(data.train, feeds, options.train, options.targets);
    data.notes.push_back("data    random numbers: put your own at data.train");
  } else {
    data.train = ReadFeeds(options.train, feeds, data.columns, reading, data.names, data.notes);
    CheckClasses(data.train, options.classes, options.train);
  }
  if (options.eval.starts_with(kRandom)) {
    data.eval = RandomFeeds(options.eval, options.classes, feeds, seed + 1);
    FitToFeeds(data.eval, feeds, options.eval, options.targets);
  } else if (!options.eval.empty()) {
    // Without a map what stands for one in the training data is nothing that evaluation data of another kind have.
    ColumnMap columns = data.columns;
    if (options.columns.empty() && IsTable(options.eval) != IsTable(options.train))
      columns = IsTable(options.eval) ? GuessColumns(options.eval, feeds, data.notes) : ColumnMap();
    data.eval = ReadFeeds(options.eval, feeds, columns, reading, data.names, data.notes);
    CheckClasses(data.eval, options.classes, options.eval);
  }
  if (!options.eval_split.empty()) SplitOff(options.eval_split, seed, data);
  for (const auto& [name, texts] : options.transforms) {
    for (const std::string& text : texts) {
      const Transform transform = FittedOn(data.train, name, text);
      Apply(transform, name, true, data.train);
      Apply(transform, name, false, data.eval);
      data.fitted[name].push_back(transform);
    }
  }
  return data;
}

std::string DataToJson(const TrainingData& data) {
  nlohmann::json transforms = nlohmann::json::object();
  for (const auto& [name, list] : data.fitted) {
    for (const Transform& transform : list) {
      transforms[name].push_back(transform.row_transform.empty() ? nlohmann::json{{"shift", transform.shift}, {"scale", transform.scale}}
                                                                 : nlohmann::json{{"row", transform.row_transform}});
    }
  }
  nlohmann::json json{{"columns", data.columns}, {"transforms", transforms}};
  if (!data.names.classes.empty()) json["classes"] = data.names.classes;
  if (!data.names.columns.empty()) json["table"] = data.names.columns;
  // A name in another encoding than UTF-8 is none that a class of other data could have.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void DataFromJson(const std::string& text, const std::string& where, ColumnMap& columns,
                  std::map<std::string, std::vector<Transform>>& fitted, TrainingNames& names) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    columns = json.at("columns").get<ColumnMap>();
    names = {json.value("classes", std::vector<std::string>()), json.value("table", std::vector<std::string>())};
    fitted.clear();
    for (const auto& [name, list] : json.at("transforms").items()) {
      for (const nlohmann::json& entry : list) {
        Transform transform;
        if (entry.contains("row")) {
          transform.row_transform = entry.at("row").get<std::string>();
          fitted[name].push_back(std::move(transform));
          continue;
        }
        transform.shift = entry.at("shift").get<std::vector<float>>();
        transform.scale = entry.at("scale").get<std::vector<float>>();
        if (transform.shift.empty() || transform.scale.empty()) throw Error(ErrorCode::kConfig, "a transform is empty", where);
        fitted[name].push_back(std::move(transform));
      }
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kConfig, "the columns and transforms of a run cannot be read: " + Escaped(error.what()), where);
  }
}

Dataset LoadFeeds(const std::string& path, const std::vector<Feed>& feeds, const ColumnMap& columns,
                  const std::map<std::string, std::vector<Transform>>& fitted, std::vector<std::string>& notes,
                  const std::set<std::string>& targets, const std::map<std::string, ClassRange>& classes, bool on_demand,
                  TrainingNames names) {
  if (path.starts_with(kRandom)) {
    Dataset data = RandomFeeds(path, classes, feeds, 0);
    FitToFeeds(data, feeds, path, targets);
    return data;
  }
  ColumnMap used = columns;
  if (used.empty() && IsTable(path)) used = GuessColumns(path, feeds, notes);
  Dataset data = ReadFeeds(path, feeds, used, {.targets = targets, .classes = classes, .on_demand = on_demand}, names, notes);
  CheckClasses(data, classes, path);
  for (const auto& [name, transforms] : fitted) {
    for (const Transform& transform : transforms) {
      if (data.has(name)) Apply(transform, name, false, data);
    }
  }
  return data;
}

}  // namespace gradloom
