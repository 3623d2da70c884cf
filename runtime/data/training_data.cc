#include "runtime/data/training_data.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <utility>

#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/base/host_memory.h"
#include "runtime/base/joined.h"
#include "runtime/base/philox.h"
#include "runtime/base/read_number.h"
#include "runtime/base/suggestion.h"
#include "runtime/data/csv.h"
#include "runtime/data/data_files.h"
#include "runtime/data/feed_files.h"
#include "runtime/data/image_step_names.h"
#include "runtime/data/joined_data.h"
#include "runtime/data/stored_rows.h"

namespace gradloom {
namespace {

template <typename Value>
void CheckNames(const std::map<std::string, Value>& by_name, const std::vector<Feed>& feeds, const std::string& flag) {
  std::vector<std::string> names;
  for (const Feed& feed : feeds) names.push_back(feed.name);
  for (const auto& [name, value] : by_name) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    throw Error(ErrorCode::kConfig, "the model has no input or target '" + Escaped(name) + "'", flag,
                Suggestion(name, names, "it has: " + JoinedNames(names)));
  }
}

// The random stream of random data, separate from all others.
constexpr uint64_t kRandomStream = 0x72616E646F6D;

constexpr int64_t kMostRandomRows = int64_t{1} << 24;

// Numbers with mean 0 and variance 1, or integers below `bound`.
Tensor RandomColumn(const Feed& feed, int64_t rows, int64_t bound, PhiloxKey key) {
  Shape shape = feed.shape;
  if (shape.rank() > 0) shape[0] = rows;
  const bool floating = IsFloating(feed.dtype);
  Tensor column(floating ? DType::kFloat32 : DType::kInt64, shape);
  for (int64_t i = 0; i < column.elements(); ++i) {
    const PhiloxBlock block = Philox({static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0}, key);
    if (floating) {
      // Box-Muller transform.
      const double u = (static_cast<double>(block[0]) + 1) * 0x1p-32, turn = static_cast<double>(block[1]) * 0x1p-32;
      column.as<float>()[static_cast<size_t>(i)] = static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * turn));
    } else {
      column.as<int64_t>()[static_cast<size_t>(i)] = static_cast<int64_t>(block[0] % static_cast<uint64_t>(bound));
    }
  }
  return column;
}

// A selection of all columns but one.
std::string AllBut(const std::vector<std::string>& names, size_t left_out) {
  std::string text;
  const auto add = [&](size_t begin, size_t end) {
    if (begin >= end) return;
    text += (text.empty() ? "" : ",") + CsvPieceOf(names, begin) + (end - begin > 1 ? ".." + CsvPieceOf(names, end - 1) : "");
  };
  add(0, std::min(left_out, names.size()));
  add(left_out + 1, names.size());
  return text;
}

// Guesses columns if no map is given: columns that have the names of feeds; or else the column with the target's name, or the last one, is
// the target, and the others are the input.
ColumnMap GuessColumns(const DataFile& file, const std::vector<Feed>& feeds, std::vector<std::string>& notes) {
  const std::vector<std::string> names = CsvSelectors(file.path, TableOptions(file));
  CheckFirstLine(names, Escaped(file.path, 4096));
  if (names.size() < feeds.size()) {
    throw Error(
        ErrorCode::kData,
        "the table has " + Counted(std::ssize(names), "column") + ", but the model needs " + std::to_string(feeds.size()) + " or more",
        Escaped(file.path, 4096), "separate fields by commas, or by tabs in a .tsv file");
  }
  ColumnMap columns;
  const std::set<std::string> known(names.begin(), names.end());
  for (const Feed& feed : feeds) {
    if (known.contains(feed.name)) columns[feed.name] = feed.name;
  }
  if (columns.size() == feeds.size()) return columns;
  if (feeds.size() > 2) {
    std::string help;
    for (const Feed& feed : feeds) help += (help.empty() ? "--map " : " --map ") + Escaped(feed.name) + "=COLUMNS";
    throw Error(ErrorCode::kConfig, "the columns that feed the model are not specified", Escaped(file.path, 4096), help);
  }
  // If no target is needed, a surplus last column is taken to be the target.
  const Shape& shape = feeds[0].shape;
  const int64_t wanted = shape.rank() > 0 && shape[0] > 0 ? shape.elements() / shape[0] : 1;
  const bool only_last_left = feeds.size() == 2 || std::ssize(names) == wanted + 1;
  size_t target = only_last_left ? names.size() - 1 : names.size();
  if (feeds.size() == 2 && columns.contains(feeds[1].name))
    target = static_cast<size_t>(std::find(names.begin(), names.end(), feeds[1].name) - names.begin());
  columns = {{feeds[0].name, AllBut(names, target)}};
  if (feeds.size() == 2) columns[feeds[1].name] = CsvPieceOf(names, target);
  std::string note;
  for (const Feed& feed : feeds) note += (note.empty() ? "columns " : "  ") + Escaped(feed.name) + "=" + Escaped(columns[feed.name]);
  notes.push_back(note + "   [guessed: set --map to change]");
  return columns;
}

// The columns of training data, or the defaults of the format of other data if there was no map.
ColumnMap ColumnsFor(const DataFile& file, const ColumnMap& columns, const std::vector<Feed>& feeds, const TrainingNames& names,
                     std::vector<std::string>& notes) {
  if (!IsTable(file)) return WithoutGuesses(columns, names);
  return columns.empty() ? GuessColumns(file, feeds, notes) : columns;
}

Dataset RandomFeeds(const std::string& text, const DataOptions& options, const std::vector<Feed>& feeds, int64_t seed) {
  const int64_t rows = ReadNumber<int64_t>(std::string_view(text).substr(kRandomData.size())).value_or(0);
  if (rows > kMostRandomRows) {
    throw Error(ErrorCode::kConfig,
                std::to_string(rows) + " samples are too many random ones: at most " + std::to_string(kMostRandomRows) + " can be made",
                Escaped(text), "use fewer samples or a smaller --batch");
  }
  if (rows < 1) {
    throw Error(ErrorCode::kConfig, "'" + Escaped(text) + "' is not a number of random samples", "",
                "expected random:N, for example random:256");
  }
  int64_t bytes = 0;
  for (const Feed& feed : feeds) {
    const int64_t elements = feed.shape.rank() == 0 ? 1 : WithRows(feed.shape, rows).checked_elements().value_or(kDataLimitBytes);
    bytes += std::min(elements, kDataLimitBytes) * (IsFloating(feed.dtype) ? 4 : 8);
  }
  RequireHostMemory(bytes, "random data of " + Counted(rows, "sample"), "", "use fewer samples: random:256");
  Dataset data;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const auto range = options.classes.find(feeds[i].name);
    const PhiloxKey key = NodeKey(static_cast<uint64_t>(seed), i, kRandomStream);
    const int64_t bound = range != options.classes.end() ? range->second.count : feeds[i].index_extent == 1 ? 1 : 2;
    Tensor column = RandomColumn(feeds[i], rows, bound, key);
    // A target of yes and no is one or the other.
    const auto domain = options.domains.find(feeds[i].name);
    if (domain != options.domains.end() && column.dtype() == DType::kFloat32) {
      const double lowest = domain->second.lowest, highest = std::min(domain->second.highest, lowest + 2);
      for (float& value : column.as<float>()) value = static_cast<float>(value > 0 ? highest : lowest);
    }
    data.set_column(feeds[i].name, std::move(column));
  }
  return data;
}

FeedReading ReadingOf(const DataOptions& options, const std::vector<Feed>& model_feeds) {
  // A process that shares its rows with others has no use for what it does not read. One that needs all has as much in memory as fits.
  const int64_t feeds = options.large_rows ? 1 : std::max<int64_t>(std::ssize(model_feeds), 1);
  return {.targets = options.targets,
          .classes = options.classes,
          .on_demand = options.on_demand,
          .large_rows = options.large_rows,
          .large_bytes = std::max<int64_t>(options.large_bytes / feeds, 1),
          .sample_axis = SampleAxisOf(model_feeds)};
}

// Says along which axis a loss reads the classes if the labels do not tell: they have the same shape for another axis.
void NoteClassAxes(const FeedReading& reading, std::vector<std::string>& notes) {
  for (const auto& [target, range] : reading.classes) {
    const std::optional<Shape> row = range.RowAlong(range.axis, reading.sample_axis);
    if (!row || row->rank() == 0 || range.axis != 1) continue;  // 1 is the default; another axis was chosen
    for (int axis = 2; axis < range.shape.rank(); ++axis) {
      if (range.RowAlong(axis, reading.sample_axis) != row) continue;
      notes.push_back("classes '" + Escaped(target) + "' along axis 1 of the output " + Escaped(range.output) + " " +
                      range.shape.ToString() + "; if they are along axis " + std::to_string(axis) +
                      ", set class_axis=" + std::to_string(axis) + " in --loss");
      break;
    }
  }
}

// Random transforms of row sources apply only to training.
void Apply(const Transform& transform, const std::string& name, bool training, Dataset& data) {
  if (data.rows() == 0) return;
  if (data.is_lazy(name)) {
    data.set_source(name, data.lazy_columns().at(name).source->With(transform, training));
    return;
  }
  // An array that evaluates what images have trained has the model's size already.
  if (!training && IsImageStep(transform.row_transform)) return;
  Tensor column = data.column(name);
  // Transforms written for row sources may also apply to other columns, for example with images to train on and an array to evaluate with.
  (transform.row_transform.empty() ? transform : Transform::Parse(transform.row_transform, column)).Apply(column);
  data.set_column(name, std::move(column));
}

Transform FittedOn(const Dataset& data, const std::string& name, const std::string& text) {
  try {
    if (!data.is_lazy(name) && IsImageStep(text)) RefuseImageStep(name, text);
    if (!data.is_lazy(name)) return Transform::Parse(text, data.column(name));
    const Dataset::LazyColumn& column = data.lazy_columns().at(name);
    return column.source->Fitted(text, column.rows);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kConfig || !error.where().empty()) throw;
    throw Error(error.code(), error.message(), "--transform", error.help());
  }
}

// Random transforms are left out.
void ApplyRecorded(const std::map<std::string, std::vector<Transform>>& fitted, Dataset& data) {
  for (const auto& [name, transforms] : fitted) {
    for (const Transform& transform : transforms) {
      if (data.has(name)) Apply(transform, name, false, data);
    }
  }
}

std::set<std::string> FilledBy(const std::map<std::string, std::vector<Transform>>& fitted) {
  std::set<std::string> filled;
  for (const auto& [name, transforms] : fitted) {
    if (std::ranges::any_of(transforms, [](const Transform& transform) { return !transform.fill.empty(); })) filled.insert(name);
  }
  return filled;
}

// Evaluation data is drawn from the seed after that of the training data.
int64_t EvaluationSeed(int64_t seed) { return static_cast<int64_t>(static_cast<uint64_t>(seed) + 1); }

std::vector<DataFile> FilesAt(const std::string& path, const std::string& format) {
  std::vector<DataFile> files;
  if (path.empty() || path.starts_with(kRandomData)) return {DataFile(path)};
  for (std::string& file : FilesOf(path)) files.emplace_back(std::move(file), format);
  return files;
}

void SplitOff(const std::string& text, int64_t seed, TrainingData& data) {
  const bool tail = text.starts_with("tail:");
  const double share = ParseShare(tail ? text.substr(5) : text);
  const Split split = tail ? TailSplit(data.train.rows(), share) : RandomSplit(data.train.rows(), share, static_cast<uint64_t>(seed));
  data.held_back = HashText(HashOf({reinterpret_cast<const char*>(split.eval.data()), split.eval.size() * sizeof(int64_t)}));
  data.eval = data.train.Select(split.eval);
  data.train = data.train.Select(split.train);
}

// JSON has no infinity, and nothing could be trained with it.
void CheckFinite(const Transform& transform, const std::string& name) {
  for (const std::vector<float>* numbers : {&transform.shift, &transform.scale, &transform.fill}) {
    if (std::ranges::all_of(*numbers, [](float number) { return std::isfinite(number); })) continue;
    throw Error(ErrorCode::kConfig, "a transform of '" + Escaped(name) + "' needs a number that is too large for float32", "--transform",
                "scale the data before, or choose other numbers");
  }
}

using ClassNames = std::map<std::string, std::vector<std::string>>;

// The named classes of a folder of images (under ""), or of a table by target.
ClassNames ClassNamesIn(const nlohmann::json& data) {
  ClassNames names = data.value("labels", ClassNames());
  if (data.contains("classes")) names[""] = data.at("classes").get<std::vector<std::string>>();
  return names;
}

// In a sentence; empty if there is none.
std::string DifferenceOfClasses(ClassNames before, ClassNames now) {
  const auto shown = [](const std::vector<std::string>& names) { return names.empty() ? "numbers" : ListedClasses(names); };
  for (const auto& [target, names] : now) before.try_emplace(target);
  for (const auto& [target, names] : before) {
    if (names == now[target]) continue;
    return "the classes" + (target.empty() ? "" : " of '" + Escaped(target) + "'") + " were " + shown(names) + "; now they are " +
           shown(now[target]);
  }
  return "";
}

}  // namespace

int64_t LargeBytesFor(int64_t free_bytes) { return std::max(free_bytes / 4, kLargeBytes); }

double ParseShare(const std::string& text) {
  std::string_view rest = text;
  const std::optional<double> value = TakeNumber<double>(rest);
  if (!value || (!rest.empty() && rest != "%") || !std::isfinite(*value)) {
    throw Error(ErrorCode::kConfig, "'" + Escaped(text) + "' is not a share", "", "expected 20% or 0.2");
  }
  return rest == "%" ? *value / 100 : *value;
}

TrainingData LoadTrainingData(const DataOptions& options, const std::vector<Feed>& model_feeds, int64_t seed) {
  const std::vector<Feed> feeds = AsRows(model_feeds);
  CheckNames(options.columns, feeds, "--map");
  CheckNames(options.transforms, feeds, "--transform");
  if (!options.eval.empty() && !options.eval_split.empty()) {
    throw Error(ErrorCode::kConfig, "evaluation data and a share held back for evaluation are both given", "--eval-split",
                "leave out --eval-data or --eval-split");
  }
  FeedReading reading = ReadingOf(options, model_feeds);
  reading.numbers_classes = true;
  for (const auto& [name, texts] : options.transforms) {
    if (std::any_of(texts.begin(), texts.end(), Transform::IsMeasured)) reading.measured.insert(name);
    if (std::any_of(texts.begin(), texts.end(), Transform::IsFill)) reading.filled.insert(name);
  }
  TrainingData data;
  data.columns = options.columns;
  const std::vector<DataFile> train = FilesAt(options.train, options.format);
  if (data.columns.empty() && IsTable(train.front())) {
    data.columns = GuessColumns(train.front(), feeds, data.notes);
    for (const auto& [name, columns] : data.columns) data.names.guessed.insert(name);
  }
  if (options.train.starts_with(kRandomData)) {
    data.train = RandomFeeds(options.train, options, feeds, seed);
    FitToFeeds(data.train, feeds, options.train, reading);
    data.notes.push_back("data    random numbers: set data.train to your own data");
  } else {
    data.train = ReadFeeds(train, feeds, data.columns, reading, data.names, data.notes, train.size() > 1 ? &data.files : nullptr);
    NoteClassAxes(reading, data.notes);
  }
  if (options.eval.starts_with(kRandomData)) {
    data.eval = RandomFeeds(options.eval, options, feeds, EvaluationSeed(seed));
    FitToFeeds(data.eval, feeds, options.eval, reading);
  } else if (!options.eval.empty()) {
    const std::vector<DataFile> eval = FilesAt(options.eval, options.format);
    reading.numbers_classes = false;
    data.eval =
        ReadFeeds(eval, feeds, ColumnsFor(eval.front(), data.columns, feeds, data.names, data.notes), reading, data.names, data.notes);
  }
  data.rows = data.train.rows();
  if (!options.eval_split.empty()) SplitOff(options.eval_split, seed, data);
  for (const auto& [name, texts] : options.transforms) {
    for (const std::string& text : texts) {
      const Transform transform = FittedOn(data.train, name, text);
      try {
        Apply(transform, name, true, data.train);
        Apply(transform, name, false, data.eval);
      } catch (const Error& error) {
        // Adds the flag and the column, which a transform does not know.
        if (!error.where().empty() || (error.code() != ErrorCode::kConfig && error.code() != ErrorCode::kData)) throw;
        throw Error(error.code(), "'" + Escaped(name) + "': " + error.message(), "--transform", error.help());
      }
      data.fitted[name].push_back(transform);
    }
  }
  NoteTargets(data.train, options.domains, data.notes);
  return data;
}

namespace {

// What the parser would say is about its own input, not about what the user has done.
[[noreturn]] void RefuseRecord(const std::string& where, const std::string& why = "its columns, transforms or classes cannot be read") {
  throw Error(ErrorCode::kConfig, "the record of a run's data is damaged: " + why, where,
              "restore the file from a copy of the run, or start a new run with the weights of this one (--init-weights)");
}

}  // namespace

std::string DataToJson(const TrainingData& data) {
  nlohmann::json transforms = nlohmann::json::object();
  for (const auto& [name, list] : data.fitted) {
    for (const Transform& transform : list) {
      CheckFinite(transform, name);
      nlohmann::json& entry = transforms[name].emplace_back(transform.row_transform.empty()
                                                                ? nlohmann::json{{"shift", transform.shift}, {"scale", transform.scale}}
                                                                : nlohmann::json{{"row", transform.row_transform}});
      if (!transform.fill.empty()) entry["fill"] = transform.fill;
    }
  }
  nlohmann::json json{{"columns", data.columns}, {"transforms", transforms}};
  if (!data.names.classes.empty()) json["classes"] = data.names.classes;
  if (!data.names.columns.empty()) json["table"] = data.names.columns;
  if (!data.names.labels.empty()) json["labels"] = data.names.labels;
  if (!data.names.guessed.empty()) json["guessed"] = data.names.guessed;
  if (data.rows > 0) json["rows"] = data.rows;
  if (!data.held_back.empty()) json["held_back"] = data.held_back;
  for (const FileRows& file : data.files) json["files"].push_back({{"name", file.name}, {"rows", file.rows}});
  // A name that is not UTF-8 cannot match a class of other data anyway.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void DataFromJson(const std::string& text, const std::string& where, ColumnMap& columns,
                  std::map<std::string, std::vector<Transform>>& fitted, TrainingNames& names) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    columns = json.at("columns").get<ColumnMap>();
    names = {.classes = json.value("classes", std::vector<std::string>()),
             .columns = json.value("table", std::vector<std::string>()),
             .labels = json.value("labels", std::map<std::string, std::vector<std::string>>()),
             .guessed = json.value("guessed", std::set<std::string>())};
    for (const auto& [target, classes] : names.labels) {
      if (!std::is_sorted(classes.begin(), classes.end())) RefuseRecord(where, "the classes of '" + Escaped(target) + "' are not sorted");
    }
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
        transform.fill = entry.value("fill", std::vector<float>());
        if (transform.shift.empty() || transform.scale.empty()) RefuseRecord(where, "a transform is empty");
        fitted[name].push_back(std::move(transform));
      }
    }
  } catch (const nlohmann::json::exception&) {
    RefuseRecord(where);
  }
}

std::string DifferenceOfData(const std::string& text, const std::string& where, const TrainingData& data, bool held_back) {
  std::vector<FileRows> before;
  std::string classes, held_back_before;
  int64_t rows = 0;  // older releases did not record them, nor what is held back
  try {
    const nlohmann::json then = nlohmann::json::parse(text), now = nlohmann::json::parse(DataToJson(data));
    for (const nlohmann::json& file : then.value("files", nlohmann::json::array()))
      before.push_back({file.at("name").get<std::string>(), file.at("rows").get<int64_t>()});
    classes = DifferenceOfClasses(ClassNamesIn(then), ClassNamesIn(now));
    rows = then.value("rows", rows);
    held_back_before = then.value("held_back", data.held_back);
  } catch (const nlohmann::json::exception&) {
    RefuseRecord(where);
  }
  if (!classes.empty()) return classes;
  const std::vector<FileRows>& files = data.files;
  if (before.empty() || files.empty() || before == files) {
    if (rows != 0 && data.rows != 0 && rows != data.rows)
      return "the data had " + Counted(rows, "row") + ", now it has " + std::to_string(data.rows);
    // As many rows of the training part would be others, among them some that were held back.
    return !held_back || data.held_back.empty() || held_back_before == data.held_back ? ""
                                                                                      : "other rows were held back for evaluation than now";
  }
  const auto [then, now] = std::mismatch(before.begin(), before.end(), files.begin(), files.end());
  const auto shown = [](const FileRows& file) { return "'" + Escaped(file.name, 400) + "' with " + std::to_string(file.rows) + " rows"; };
  return "file " + std::to_string(then - before.begin() + 1) + " of the data was " + (then == before.end() ? "none" : shown(*then)) +
         ", now it is " + (now == files.end() ? "none" : shown(*now)) + ": the rows would be in a different order";
}

std::string ChangesOfFeeds(const std::string& text, const std::string& where, const TrainingData& data) {
  std::map<std::string, std::string> changed;  // by what has changed: the feeds
  const auto note = [&](const std::string& what, const std::string& feed) {
    std::string& feeds = changed[what];
    feeds += (feeds.empty() ? "" : ", ") + ("'" + Escaped(feed) + "'");
  };
  try {
    const nlohmann::json then = nlohmann::json::parse(text), now = nlohmann::json::parse(DataToJson(data));
    // Other tables may have more columns, and the columns in another order. What has no column has the feed's own name.
    const auto selected = [&](const nlohmann::json& json, const std::string& feed) {
      return CsvWrittenOut(json.at("columns").value(feed, feed), json.value("table", std::vector<std::string>()), where);
    };
    const auto transforms = [](const nlohmann::json& json, const std::string& feed) {
      return json.at("transforms").value(feed, nlohmann::json());
    };
    std::set<std::string> feeds;
    for (const nlohmann::json* json : {&then, &now}) {
      for (const char* kind : {"columns", "transforms"}) {
        for (const auto& [feed, value] : json->at(kind).items()) feeds.insert(feed);
      }
    }
    for (const std::string& feed : feeds) {
      if (selected(then, feed) != selected(now, feed)) note("columns", feed);
      if (transforms(then, feed) != transforms(now, feed)) note("transforms", feed);
    }
  } catch (const nlohmann::json::exception&) {
    RefuseRecord(where);
  }
  return JoinedTexts(changed, [](const auto& change) { return "the " + change.first + " of " + change.second; });
}

ColumnMap WithoutGuesses(ColumnMap columns, const TrainingNames& names) {
  for (const std::string& name : names.guessed) columns.erase(name);
  return columns;
}

Dataset LoadFeeds(const DataFile& file, const std::vector<Feed>& model_feeds, const ColumnMap& columns,
                  const std::map<std::string, std::vector<Transform>>& fitted, std::vector<std::string>& notes, const DataOptions& options,
                  TrainingNames names) {
  const std::vector<Feed> feeds = AsRows(model_feeds);
  FeedReading reading = ReadingOf(options, model_feeds);
  if (file.path.starts_with(kRandomData)) {
    Dataset data = RandomFeeds(file.path, options, feeds, 0);
    FitToFeeds(data, feeds, file, reading);
    return data;
  }
  const std::vector<DataFile> files = FilesAt(file.path, file.format);
  const ColumnMap used = ColumnsFor(files.front(), columns, feeds, names, notes);
  reading.filled = FilledBy(fitted);
  Dataset data = ReadFeeds(files, feeds, used, reading, names, notes);
  ApplyRecorded(fitted, data);
  NoteTargets(data, options.domains, notes);
  return data;
}

TrainingData LoadEvaluationData(const DataOptions& options, const std::vector<Feed>& model_feeds, int64_t seed,
                                const std::map<std::string, std::vector<Transform>>& fitted, const TrainingNames& names) {
  const std::vector<Feed> feeds = AsRows(model_feeds);
  FeedReading reading = ReadingOf(options, model_feeds);
  reading.filled = FilledBy(fitted);
  TrainingData data{.columns = options.columns, .fitted = fitted, .names = names};
  const bool held_back = options.eval.empty();
  const std::string& path = held_back ? options.train : options.eval;
  Dataset& read = held_back ? data.train : data.eval;
  if (path.starts_with(kRandomData)) {
    read = RandomFeeds(path, options, feeds, held_back ? seed : EvaluationSeed(seed));
    FitToFeeds(read, feeds, path, reading);
  } else {
    const std::vector<DataFile> files = FilesAt(path, options.format);
    const ColumnMap columns = ColumnsFor(files.front(), options.columns, feeds, names, data.notes);
    read = ReadFeeds(files, feeds, columns, reading, data.names, data.notes, held_back && files.size() > 1 ? &data.files : nullptr);
  }
  data.rows = data.train.rows();
  if (held_back) SplitOff(options.eval_split, seed, data);
  ApplyRecorded(fitted, data.eval);
  NoteTargets(data.eval, options.domains, data.notes);
  return data;
}

}  // namespace gradloom
