#include "tools/gradloom/data_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/session/csv.h"
#include "runtime/session/npz.h"
#include "tools/gradloom/nearest.h"

namespace gradloom {
namespace {

bool EndsWith(const std::string& text, const std::string& end) { return text.size() >= end.size() && text.ends_with(end); }

bool IsCsv(const std::string& path) {
  return EndsWith(path, ".csv") || EndsWith(path, ".csv.gz") || EndsWith(path, ".tsv") || EndsWith(path, ".tsv.gz");
}

// "name=value" of a flag that may be repeated.
std::map<std::string, std::string> Pairs(const std::vector<std::string>& words, const char* flag) {
  std::map<std::string, std::string> pairs;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == word.size()) {
      throw Error(ErrorCode::kConfig, std::string(flag) + " '" + Escaped(word) + "' is not NAME=VALUE");
    }
    if (!pairs.emplace(word.substr(0, equals), word.substr(equals + 1)).second) {
      throw Error(ErrorCode::kConfig, std::string(flag) + " is given twice for '" + Escaped(word.substr(0, equals)) + "'");
    }
  }
  return pairs;
}

void CheckNames(const std::map<std::string, std::string>& pairs, const std::vector<Feed>& feeds, const char* flag) {
  std::vector<std::string> names;
  std::string known;
  for (const Feed& feed : feeds) {
    names.push_back(feed.name);
    known += (known.empty() ? "" : ", ") + Escaped(feed.name);
  }
  for (const auto& [name, value] : pairs) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string near = Nearest(name, names);
    throw Error(ErrorCode::kConfig, std::string(flag) + ": the model has no input or target '" + Escaped(name) + "'", "",
                near.empty() ? "it has: " + known : "did you mean '" + near + "'?   it has: " + known);
  }
}

// Without --map a table's last column is the target, the others the input.
std::map<std::string, std::string> GuessColumns(const std::string& path, const std::vector<Feed>& feeds, std::vector<std::string>& notes) {
  const std::vector<std::string> header = CsvHeader(path);
  if (feeds.size() != 2 || header.size() < 2) {
    throw Error(ErrorCode::kConfig, "which columns of '" + Escaped(path) + "' feed the model must be said", "",
                "--map INPUT=FIRST..LAST --map TARGET=COLUMN   for each input and target");
  }
  const std::string features = header.front() + ".." + header[header.size() - 2];
  notes.push_back("columns " + feeds[0].name + "=" + features + "  " + feeds[1].name + "=" + header.back() +
                  "   [guessed: set --map to change]");
  return {{feeds[0].name, features}, {feeds[1].name, header.back()}};
}

Dataset ReadTable(const std::string& path, std::map<std::string, std::string> map, const std::vector<Feed>& feeds,
                  std::vector<std::string>& notes) {
  if (map.empty()) map = GuessColumns(path, feeds, notes);
  std::vector<CsvSelection> selections;
  std::vector<std::string> names;
  for (const Feed& feed : feeds) {
    const auto found = map.find(feed.name);
    if (found == map.end()) {
      throw Error(ErrorCode::kConfig, "no columns are given for '" + Escaped(feed.name) + "'", "", "--map " + feed.name + "=COLUMNS");
    }
    names.push_back(feed.name);
    selections.push_back({found->second, IsFloating(feed.dtype) ? DType::kFloat32 : DType::kInt64});
  }
  CsvOptions options;
  if (path.find(".tsv") != std::string::npos) options.delimiter = '\t';
  std::vector<CsvColumns> columns = ReadCsv(path, selections, options);
  Dataset data;
  for (size_t i = 0; i < names.size(); ++i) {
    if (columns[i].nan_count > 0) {
      notes.push_back("warning: " + std::to_string(columns[i].nan_count) + " values of '" + names[i] +
                      "' are NaN or infinite, the first at " + columns[i].first_nan);
    }
    data.set_column(names[i], std::move(columns[i].values));
  }
  return data;
}

Dataset ReadArrays(const std::string& path, const std::map<std::string, std::string>& map, const std::vector<Feed>& feeds) {
  std::map<std::string, Tensor> arrays = ReadNpz(path);
  Dataset data;
  for (const Feed& feed : feeds) {
    const auto mapped = map.find(feed.name);
    const std::string name = mapped == map.end() ? feed.name : mapped->second;
    const auto found = arrays.find(name);
    if (found == arrays.end()) {
      std::string known;
      for (const auto& [other, array] : arrays) known += (known.empty() ? "" : ", ") + Escaped(other);
      throw Error(ErrorCode::kData, "no array '" + Escaped(name) + "' for '" + Escaped(feed.name) + "'", Escaped(path),
                  "the file has: " + known + "   (--map " + feed.name + "=ARRAY)");
    }
    data.set_column(feed.name, found->second);
  }
  return data;
}

Dataset Read(const std::string& path, const std::map<std::string, std::string>& map, const std::vector<Feed>& feeds,
             std::vector<std::string>& notes) {
  Dataset data;
  if (IsCsv(path)) {
    data = ReadTable(path, map, feeds, notes);
  } else if (EndsWith(path, ".npz")) {
    data = ReadArrays(path, map, feeds);
  } else {
    throw Error(ErrorCode::kData, "'" + Escaped(path) + "' is of no known kind", "",
                "data are read from .csv, .csv.gz, .tsv and .npz files");
  }
  for (const Feed& feed : feeds) {
    Shape row(std::vector<int64_t>(feed.shape.begin() + (feed.shape.rank() > 0 ? 1 : 0), feed.shape.end()));
    data.Fit(feed.name, feed.dtype, row);
  }
  return data;
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

void DataFlags::Declare(CLI::App& app) {
  app.add_option("--data", data, "training data: .csv, .csv.gz, .tsv or .npz")->required();
  app.add_option("--eval-data", eval_data, "evaluation data of the same form");
  app.add_option("--eval-split", eval_split, "hold back a share for evaluation: 20%, or tail:20% for the last rows unshuffled");
  app.add_option("--map", map, "INPUT=COLUMNS: which columns (p0..p63, label, 0..12, -1) or array feed a model input or target");
  app.add_option("--transform", transform, "INPUT='scale 1/255' | 'normalize MEAN STD' | standardize (measured on the training part)");
}

LoadedData LoadData(const DataFlags& flags, const std::vector<Feed>& feeds, int64_t seed) {
  const auto map = Pairs(flags.map, "--map");
  const auto transforms = Pairs(flags.transform, "--transform");
  CheckNames(map, feeds, "--map");
  CheckNames(transforms, feeds, "--transform");
  LoadedData loaded;
  loaded.train = Read(flags.data, map, feeds, loaded.notes);
  if (!flags.eval_data.empty()) {
    loaded.eval = Read(flags.eval_data, map, feeds, loaded.notes);
  } else if (!flags.eval_split.empty()) {
    const bool tail = flags.eval_split.starts_with("tail:");
    const double share = ParseShare(tail ? flags.eval_split.substr(5) : flags.eval_split);
    const Split split = tail ? TailSplit(loaded.train.rows(), share) : RandomSplit(loaded.train.rows(), share, static_cast<uint64_t>(seed));
    loaded.eval = loaded.train.Select(split.eval);
    loaded.train = loaded.train.Select(split.train);
  }
  if (loaded.train.rows() == 0) throw Error(ErrorCode::kData, "there are no rows to train on", Escaped(flags.data));
  for (const auto& [name, text] : transforms) {
    const Transform transform = Transform::Parse(text, loaded.train.column(name));
    for (Dataset* data : {&loaded.train, &loaded.eval}) {
      if (data->rows() == 0) continue;
      Tensor column = data->column(name);
      transform.Apply(column);
      data->set_column(name, std::move(column));
    }
  }
  return loaded;
}

}  // namespace gradloom
