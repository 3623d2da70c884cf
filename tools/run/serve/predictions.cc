#include "tools/run/serve/predictions.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/host_memory.h"
#include "runtime/base/read_number.h"
#include "runtime/data/csv_fields.h"
#include "runtime/data/data_files.h"
#include "runtime/data/joined_data.h"
#include "tools/run/records/csv_line.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

constexpr char kFileColumn[] = "file";

// The name of a class; null if it has none. Scores may have the name of a target whose classes have names.
const std::string* ClassNameAt(const std::vector<std::string>* classes, const TensorView& tensor, int64_t at) {
  if (classes == nullptr || IsFloating(tensor.dtype)) return nullptr;
  const int64_t number = ElementAsInt(tensor, at);
  return number >= 0 && number < std::ssize(*classes) ? &(*classes)[static_cast<size_t>(number)] : nullptr;
}

std::string TextOf(const TensorView& tensor, int64_t at) {
  if (!IsFloating(tensor.dtype)) return std::to_string(ElementAsInt(tensor, at));
  const double value = ElementAsDouble(tensor, at);
  if (std::isnan(value)) return "nan";
  char text[32];
  const bool narrow = tensor.dtype != DType::kFloat64;
  const auto [end, error] =
      narrow ? std::to_chars(text, text + sizeof text, static_cast<float>(value)) : std::to_chars(text, text + sizeof text, value);
  return {text, end};
}

std::string JsonText(const nlohmann::json& value) {
  // File names and classes need not be UTF-8.
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// An element as JSON, with the same digits as in a table.
std::string JsonOfElement(const TensorView& tensor, const std::vector<std::string>* classes, int64_t at) {
  if (const std::string* name = ClassNameAt(classes, tensor, at)) return JsonText(*name);
  if (tensor.dtype == DType::kBool) return ElementAsInt(tensor, at) != 0 ? "true" : "false";
  if (!IsFloating(tensor.dtype)) return std::to_string(ElementAsInt(tensor, at));
  if (!std::isfinite(ElementAsDouble(tensor, at))) return "null";
  std::string text = TextOf(tensor, at);
  // Readers take a number without a point for an integer.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void AppendList(const TensorView& tensor, const std::vector<std::string>* classes, int axis, int64_t& next, std::string& text) {
  if (axis == tensor.shape.rank()) {
    text += JsonOfElement(tensor, classes, next++);
    return;
  }
  text += '[';
  for (int64_t i = 0; i < tensor.shape[axis]; ++i) {
    if (i > 0) text += ',';
    AppendList(tensor, classes, axis + 1, next, text);
  }
  text += ']';
}

const std::vector<std::string>* NamesFor(const Predictions& predictions, const std::string& output) {
  const auto found = predictions.classes.find(output);
  return found == predictions.classes.end() ? nullptr : &found->second;
}

// The names of the numbers of a row of an output; null if they have none.
const std::vector<std::string>* ColumnsFor(const Predictions& predictions, const std::string& output, int64_t width) {
  const auto found = predictions.columns.find(output);
  return found == predictions.columns.end() || std::ssize(found->second) != width ? nullptr : &found->second;
}

// The columns of an output with these many numbers per row, in a table.
std::vector<std::string> TableColumns(const Predictions& predictions, const std::string& output, int64_t width) {
  if (const std::vector<std::string>* const columns = ColumnsFor(predictions, output, width)) return *columns;
  if (width == 1) return {output};
  std::vector<std::string> names;
  for (int64_t i = 0; i < width; ++i) names.push_back(output + "." + std::to_string(i));
  return names;
}

template <typename Number>
std::optional<Tensor> NumbersIn(const std::vector<std::string>& texts) {
  std::vector<Number> numbers;
  for (const std::string& text : texts) {
    const std::optional<Number> number = ReadNumber<Number>(text);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return Tensor::From<Number>(numbers, Shape{std::ssize(numbers)});
}

// Whether a text is a whole number that has other digits as a double.
bool IsTooLongForDouble(const std::string& text) {
  constexpr double kExact = 9007199254740992.0;  // 2^53: integers up to it are doubles
  const std::optional<double> value = ReadNumber<double>(text);
  return value && std::abs(*value) > kExact && text.find_first_not_of("-0123456789") == std::string::npos;
}

// The numbers of a column that is kept, as an array of the first of these types that has them all.
Tensor ArrayOf(const std::string& name, const std::vector<std::string>& texts, const std::string& path) {
  if (auto numbers = NumbersIn<int64_t>(texts)) return *std::move(numbers);
  if (auto numbers = NumbersIn<uint64_t>(texts)) return *std::move(numbers);
  auto numbers = NumbersIn<double>(texts);
  if (!numbers) {
    throw Error(ErrorCode::kConfig, "the column '" + Escaped(name) + "' has text, and arrays are of numbers", Escaped(path, 4096),
                "use -o y.csv, or keep only columns of numbers");
  }
  const auto too_long = std::ranges::find_if(texts, IsTooLongForDouble);
  if (too_long == texts.end()) return *std::move(numbers);
  throw Error(ErrorCode::kConfig,
              "the column '" + Escaped(name) + "' has the number " + Escaped(*too_long, 40) + ", which an array of float64 would round",
              Escaped(path, 4096), "use -o y.csv, which keeps its digits");
}

// A model may have an output of that name, and a column that is kept may have it.
bool HasFileColumn(const Predictions& predictions, int64_t rows) {
  const auto is_file = [](const auto& kept) { return kept.first == kFileColumn; };
  return std::ssize(predictions.files) == rows && rows > 0 && !predictions.outputs.contains(kFileColumn) &&
         std::ranges::none_of(predictions.kept, is_file);
}

}  // namespace

void CheckKept(const Predictions& predictions) {
  std::set<std::string> taken;
  for (const auto& [name, tensor] : predictions.outputs) {
    taken.insert(name);
    const int64_t rows = tensor.shape().rank() > 0 ? tensor.shape()[0] : 0;
    if (rows == 0) continue;
    for (std::string& column : TableColumns(predictions, name, tensor.elements() / rows)) taken.insert(std::move(column));
  }
  for (const auto& [name, texts] : predictions.kept) {
    if (!taken.contains(name)) continue;
    throw Error(ErrorCode::kConfig, "the predictions have a column '" + Escaped(name) + "', too", "--keep", "keep other columns");
  }
}

void WriteTable(const Predictions& predictions, const std::string& path, const std::function<void(std::string_view)>& write) {
  constexpr size_t kPieceBytes = size_t{1} << 20;
  std::string text;
  int64_t rows = -1;
  for (const auto& [name, tensor] : predictions.outputs) {
    const int64_t own = tensor.shape().rank() > 0 ? tensor.shape()[0] : 0;
    if (own == 0 || (rows >= 0 && own != rows)) {
      throw Error(ErrorCode::kConfig, "'" + Escaped(name) + "' is " + tensor.shape().ToString() + ": a table must have one row per sample",
                  Escaped(path, 4096), "use -o y.npz");
    }
    rows = own;
    const int64_t width = tensor.elements() / rows;
    for (const std::string& column : TableColumns(predictions, name, width)) text += (text.empty() ? "" : ",") + CsvField(column);
  }
  for (auto kept = predictions.kept.rbegin(); kept != predictions.kept.rend(); ++kept) text = CsvField(kept->first) + "," + text;
  const bool has_files = HasFileColumn(predictions, rows);
  if (has_files) text = std::string(kFileColumn) + "," + text;
  for (int64_t row = 0; row < rows; ++row) {
    if (text.size() >= kPieceBytes) {
      write(text);
      text.clear();
    }
    text += "\n";
    const char* before = "";
    if (has_files) {
      text += CsvField(predictions.files[static_cast<size_t>(row)]);
      before = ",";
    }
    for (const auto& [name, texts] : predictions.kept) {
      text += before + CsvField(texts[static_cast<size_t>(row)]);
      before = ",";
    }
    for (const auto& [name, tensor] : predictions.outputs) {
      const std::vector<std::string>* classes = NamesFor(predictions, name);
      const int64_t width = tensor.elements() / rows;
      for (int64_t at = row * width; at < (row + 1) * width; ++at, before = ",") {
        const std::string* named = ClassNameAt(classes, tensor.view(), at);
        text += before + (named != nullptr ? CsvField(*named) : TextOf(tensor.view(), at));
      }
    }
  }
  write(text + "\n");
}

std::string JsonOf(const Predictions& predictions) {
  // The text of an output, and that of all in a string that grows.
  constexpr int64_t kBytesOfNumber = 48;
  int64_t numbers = 0;
  for (const auto& [name, tensor] : predictions.outputs) numbers += tensor.elements();
  RequireHostMemory(numbers * kBytesOfNumber, "JSON of " + WithCommas(numbers) + " numbers", "", "write a file: -o y.npz");
  std::map<std::string, std::string> members;
  for (const auto& [name, tensor] : predictions.outputs) {
    const TensorView view = tensor.view();
    const std::vector<std::string>* classes = NamesFor(predictions, name);
    const int64_t rows = view.shape.rank() == 2 ? view.shape[0] : 0, width = rows > 0 ? view.shape[1] : 0;
    const std::vector<std::string>* columns = rows > 0 ? ColumnsFor(predictions, name, width) : nullptr;
    if (columns == nullptr) {
      int64_t next = 0;
      AppendList(view, classes, 0, next, members[name]);
      continue;
    }
    for (int64_t i = 0; i < width; ++i) {
      std::string text;
      for (int64_t row = 0; row < rows; ++row) text += (row == 0 ? "[" : ",") + JsonOfElement(view, classes, row * width + i);
      members[(*columns)[static_cast<size_t>(i)]] = text + "]";
    }
  }
  for (const auto& [name, texts] : predictions.kept) members[name] = JsonText(texts);
  if (HasFileColumn(predictions, std::ssize(predictions.files))) members[kFileColumn] = JsonText(predictions.files);
  std::string line = "{";
  for (const auto& [name, text] : members) line += (line.size() == 1 ? "" : ",") + JsonText(name) + ":" + text;
  return line + "}";
}

std::map<std::string, Tensor> ArraysOf(const Predictions& predictions, const std::string& path) {
  std::map<std::string, Tensor> arrays = predictions.outputs;
  for (const auto& [name, texts] : predictions.kept) {
    arrays.emplace(name, ArrayOf(name, texts, path));
  }
  return arrays;
}

std::vector<std::pair<std::string, std::vector<std::string>>> KeptColumns(const std::string& path, const std::string& format,
                                                                          const std::string& selection) {
  std::vector<std::pair<std::string, std::vector<std::string>>> kept;
  for (const std::string& name : FilesOf(path)) {
    const DataFile file(name, format);
    if (KindOfDataFile(file) != DataFileKind::kTable) {
      throw Error(ErrorCode::kConfig, "only tables have columns that can be kept, and this is none", Escaped(name, 4096), "omit --keep");
    }
    const CsvOptions options = TableOptions(file);
    const std::vector<std::string> columns = CsvSelected(name, selection, options);
    std::vector<std::vector<std::string>> texts = ReadCsvText(name, columns, options);
    for (size_t i = 0; i < columns.size(); ++i) {
      if (i == kept.size()) kept.emplace_back(columns[i], std::vector<std::string>());
      std::vector<std::string>& all = kept[i].second;
      std::ranges::transform(texts[i], std::back_inserter(all), CsvTextOf);
    }
  }
  return kept;
}

}  // namespace gradloom
