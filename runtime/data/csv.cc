#include "runtime/data/csv.h"

#include <locale.h>
#include <stdlib.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>

#include "runtime/base/ascii_lower.h"
#include "runtime/base/error.h"
#include "runtime/base/host_memory.h"
#include "runtime/base/read_number.h"
#include "runtime/data/csv_columns.h"
#include "runtime/data/csv_fields.h"
#include "runtime/data/csv_first_line.h"
#include "runtime/data/csv_records.h"
#include "runtime/data/spill_buffer.h"

namespace gradloom {
namespace {

enum class NumberFault { kNone, kNoNumber, kRange };

// A value that from_chars calls out of range is either too large, which is an error, or so small that it rounds to 0 or a subnormal, which
// is not. This is rare, so it is parsed slowly, with C's rules and independent of the process's locale.
double ParseExtreme(std::string_view text) {
  static const locale_t c_locale = ::newlocale(LC_ALL_MASK, "C", nullptr);
  return ::strtod_l(std::string(text).c_str(), nullptr, c_locale);
}

template <typename T>
NumberFault ParseNumber(std::string_view text, T& value) {
  text = CsvTrimmed(text);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if constexpr (std::is_floating_point_v<T>) {
    if (error == std::errc::result_out_of_range && stop == end) {
      value = static_cast<T>(ParseExtreme(text));
      return std::isinf(value) ? NumberFault::kRange : NumberFault::kNone;
    }
  }
  if (error == std::errc() && stop == end) return NumberFault::kNone;
  if constexpr (std::is_integral_v<T>) {
    if (error == std::errc::result_out_of_range && stop == end) return NumberFault::kRange;
    double number = 0;
    if (ParseNumber(text, number) != NumberFault::kNone) return NumberFault::kNoNumber;
    constexpr double kExact = 9007199254740992.0;  // 2^53: integers up to it are doubles
    if (!(std::abs(number) <= kExact) || number != std::floor(number)) return NumberFault::kRange;
    value = static_cast<T>(number);
    return NumberFault::kNone;
  }
  return NumberFault::kNoNumber;
}

// A selection with the numbers read so far.
struct Reading {
  std::vector<size_t> columns;
  bool single = false;
  DType dtype;
  std::vector<std::shared_ptr<const CsvClasses>> classes;
  bool may_be_missing = false;
  SpillBuffer values;
  int64_t nan_count = 0;
  std::string first_nan;
};

Error NotOneColumn(const std::string& selection, const std::string& path) {
  return {ErrorCode::kConfig, "'" + Escaped(selection) + "' is more than one column", Escaped(path, 4096)};
}

Error NumberError(NumberFault fault, std::string_view field, DType dtype, const std::string& place, bool first_line) {
  const std::string shown = "'" + Escaped(field, 40) + "'";
  const bool whole = dtype == DType::kInt64;
  std::string with_point(field);
  std::replace(with_point.begin(), with_point.end(), ',', '.');
  if (fault == NumberFault::kRange) {
    return {ErrorCode::kData, shown + " does not fit " + std::string(DTypeName(dtype)), place,
            whole ? "classes and tokens are whole numbers; write -100 for a class that is not known" : ""};
  }
  if (CsvTrimmed(field).empty()) {
    return {ErrorCode::kData, "expected a number, got an empty field", place,
            whole ? "fill it in, or write -100 for a class that is not known"
                  : "fill it in, or let a transform do that: --transform INPUT='fill mean'"};
  }
  std::string help = whole ? "number the names of classes from 0; with pandas: codes, names = table[COLUMN].factorize(sort=True)"
                           : "fix the line, or exclude the column with --map; for names, an input of integers is needed";
  if (!whole && IsCsvMissing(field)) help = "if the number is missing, let a transform fill it in: --transform INPUT='fill mean'";
  if (field.find(',') != std::string_view::npos && IsCsvNumber(with_point)) help = "write a decimal point instead of the comma";
  if (first_line) help = "line 1 is read as data, as most of it is numbers; if it holds names, change those that are numbers";
  return {ErrorCode::kData, shown + " is not a number", place, help};
}

// Whether the field is the number of no class.
bool IsIgnored(std::string_view field, std::optional<int64_t> ignored) {
  int64_t value = 0;
  return ignored && ParseNumber(field, value) == NumberFault::kNone && value == *ignored;
}

int64_t ClassOf(std::string_view field, const CsvClasses& classes, const CsvRecords& records, size_t column) {
  const std::vector<std::string>& names = classes.names;
  const std::string name = CsvNameOf(field);
  const auto found = std::lower_bound(names.begin(), names.end(), name);
  if (found != names.end() && *found == name) return found - names.begin();
  if (IsIgnored(field, classes.ignored)) return *classes.ignored;
  throw Error(ErrorCode::kData, "'" + Escaped(name, 40) + "' is not a class of the training data", records.Place(column),
              "its classes are " + ListedClasses(names));
}

// `row`: space for the row.
template <typename T>
void ReadRowAs(const std::vector<std::string_view>& fields, const CsvRecords& records, Reading& reading, std::vector<T>& row) {
  row.clear();
  for (size_t i = 0; i < reading.columns.size(); ++i) {
    const size_t column = reading.columns[i];
    if (!reading.classes.empty() && reading.classes[i] != nullptr) {
      row.push_back(static_cast<T>(ClassOf(fields[column], *reading.classes[i], records, column)));
      continue;
    }
    T value{};
    NumberFault fault = ParseNumber(fields[column], value);
    if (fault == NumberFault::kNoNumber) {
      if (const std::optional<bool> truth = CsvBoolean(fields[column])) {
        fault = NumberFault::kNone;
        value = static_cast<T>(*truth);
      }
    }
    if constexpr (std::is_floating_point_v<T>) {
      if (fault == NumberFault::kNoNumber && reading.may_be_missing && IsCsvMissing(fields[column])) {
        fault = NumberFault::kNone;
        value = std::numeric_limits<T>::quiet_NaN();
      }
    }
    if (fault != NumberFault::kNone) {
      throw NumberError(fault, fields[column], DTypeOf<T>::value, records.Place(column), records.line() == 1);
    }
    if constexpr (std::is_floating_point_v<T>) {
      const bool expected = std::isfinite(value) || (reading.may_be_missing && std::isnan(value));
      if (!expected && reading.nan_count++ == 0) reading.first_nan = records.Place(column);
    }
    row.push_back(value);
  }
  reading.values.Append(row.data(), static_cast<int64_t>(row.size() * sizeof(T)));
}

// A row for each dtype that a selection may have.
struct Rows {
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<int64_t> integers;
};

void ReadRow(const std::vector<std::string_view>& fields, const CsvRecords& records, Reading& reading, Rows& rows) {
  switch (reading.dtype) {
    case DType::kFloat64: return ReadRowAs(fields, records, reading, rows.doubles);
    case DType::kInt64: return ReadRowAs(fields, records, reading, rows.integers);
    default: return ReadRowAs(fields, records, reading, rows.floats);
  }
}

CsvColumns Finished(Reading&& reading, int64_t rows) {
  const Shape shape = reading.single ? Shape{rows} : Shape{rows, static_cast<int64_t>(reading.columns.size())};
  CsvColumns columns{.nan_count = reading.nan_count, .first_nan = std::move(reading.first_nan)};
  if (reading.values.is_large()) {
    const auto values = std::make_shared<const SpillBuffer>(std::move(reading.values));
    columns.stored = StoredArray{reading.dtype, false, shape,
                                 [values](int64_t offset, void* out, int64_t bytes) { values->ReadAt(offset, out, bytes); }};
    return columns;
  }
  columns.values = Tensor(reading.dtype, shape);
  reading.values.ReadAt(0, columns.values.data(), columns.values.bytes());
  reading.values = SpillBuffer();  // released now, since the next selection needs memory as well
  return columns;
}

// A table positioned at its first row.
struct Table {
  CsvRecords records;
  std::vector<std::string_view> fields;
  size_t columns = 0;
  std::vector<std::string> header;
  bool may_be_row = false;  // the header (CsvFirstLine)

  Table(const std::string& path, const CsvOptions& options) : records(path, options) {
    bool more = records.Next(fields);
    columns = fields.size();
    if (const CsvFirstLine first = more ? FirstLineOf(fields, path, options) : CsvFirstLine(); first.is_header) {
      header = CsvNamesOf(fields);
      may_be_row = first.may_be_row;
      more = records.Next(fields);
    }
    if (!more) throw CsvNoRows(path);
  }

  CsvColumnNames Names() const { return {header, columns, Escaped(records.path(), 4096), may_be_row}; }

  // Throws Error(kData) if the row does not have as many fields as the first one.
  void CheckWidth() const {
    if (fields.size() == columns) return;
    throw Error(ErrorCode::kData,
                "a row of " + std::to_string(fields.size()) + " fields; expected as many as the first row, " + std::to_string(columns),
                records.Place(std::min(fields.size(), columns)),
                columns == 1 ? "check whether the fields are separated by something other than a comma"
                             : "fix or remove this line; a field with a comma must be quoted");
  }
};

}  // namespace

bool IsCsvNumber(std::string_view field) {
  double value;
  return ParseNumber(field, value) == NumberFault::kNone;
}

std::optional<bool> CsvBoolean(std::string_view field) {
  const std::string_view text = CsvTrimmed(field);
  const auto is = [&](std::string_view word) { return std::ranges::equal(text, word, [](char a, char b) { return AsciiLower(a) == b; }); };
  return is("true") ? std::optional(true) : is("false") ? std::optional(false) : std::nullopt;
}

bool IsCsvEmpty(std::string_view field) { return CsvTrimmed(field).empty(); }

std::string ListedClasses(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < 8; ++i) {
    const bool plain = !names[i].empty() && names[i].find(',') == std::string::npos;
    text += (i > 0 ? ", " : "") + (plain ? Escaped(names[i], 40) : "'" + Escaped(names[i], 40) + "'");
  }
  return names.size() > 8 ? text + ", ..." : text;
}

std::vector<CsvColumns> ReadCsv(const std::string& path, const std::vector<CsvSelection>& selections, const CsvOptions& options) {
  Table table(path, options);
  const CsvColumnNames names = table.Names();

  std::vector<Reading> readings;
  for (const CsvSelection& selection : selections) {
    GRADLOOM_CHECK(selection.dtype == DType::kFloat32 || selection.dtype == DType::kFloat64 || selection.dtype == DType::kInt64);
    auto [columns, single] = names.Resolve(selection.columns);
    if (!selection.classes.empty() && columns.size() != selection.classes.size()) throw NotOneColumn(selection.columns, path);
    readings.push_back({.columns = std::move(columns),
                        .single = single,
                        .dtype = selection.dtype,
                        .classes = selection.classes,
                        .may_be_missing = selection.may_be_missing,
                        .values = SpillBuffer(options.memory_bytes, Escaped(path, 4096))});
  }
  int64_t rows = 0;
  Rows row;
  do {
    table.CheckWidth();
    for (Reading& reading : readings) ReadRow(table.fields, table.records, reading, row);
    ++rows;
  } while (table.records.Next(table.fields));
  std::vector<CsvColumns> result;
  for (Reading& reading : readings) result.push_back(Finished(std::move(reading), rows));
  return result;
}

std::vector<std::string> CsvSelected(const std::string& path, const std::string& selection, const CsvOptions& options) {
  const Table table(path, options);
  const CsvColumnNames names = table.Names();
  std::vector<std::string> selected;
  for (const size_t column : names.Resolve(selection).first) selected.push_back(names.SelectorOf(column));
  return selected;
}

std::vector<std::vector<std::string>> ReadCsvText(const std::string& path, const std::vector<std::string>& columns,
                                                  const CsvOptions& options) {
  Table table(path, options);
  const CsvColumnNames names = table.Names();
  std::vector<size_t> indices;
  for (const std::string& column : columns) {
    const auto [selected, single] = names.Resolve(column);
    if (!single) throw NotOneColumn(column, path);
    indices.push_back(selected[0]);
  }
  std::vector<std::vector<std::string>> values(columns.size());
  do {
    table.CheckWidth();
    for (size_t i = 0; i < indices.size(); ++i) values[i].emplace_back(table.fields[indices[i]]);
  } while (table.records.Next(table.fields));
  return values;
}

namespace {

// The names of classes in one column, as far as it has been read.
class NamesInColumn {
 public:
  explicit NamesInColumn(const CsvClassRules& rules) : rules_(rules) {}

  // Begins with a file. `columns`: the column in it.
  void Begin(const std::vector<size_t>& columns) {
    named_ = named_ && columns.size() == 1;
    if (named_) column_ = columns[0];
    only_header_ = false;
  }

  // Whether the column can still have names.
  bool named() const { return named_; }

  void Add(const Table& table) {
    const auto& [max_classes, ignored, may_be_empty] = rules_;
    const std::string_view field = table.fields[column_];
    if (IsIgnored(field, ignored)) return;
    if (may_be_empty && IsCsvEmpty(field)) {
      empty_ = true;
      return;
    }
    if (IsCsvNumber(field) || IsCsvEmpty(field)) {
      named_ = !names_.empty() && !only_header_;
      if (!named_) return;
      throw Error(ErrorCode::kData, "expected the name of a class, got '" + Escaped(field, 40) + "'", table.records.Place(column_),
                  "a column has either numbers or names, which its first row decides" +
                      (ignored ? "; write " + std::to_string(*ignored) + " for a class that is not known" : ""));
    }
    only_header_ = names_.empty() && table.records.line() == 1;
    if (!names_.insert(CsvNameOf(field)).second) return;
    bytes_ += std::ssize(field) + kBytesOfName;
    // The run keeps them in other forms as well: in the order of their numbers, and as text.
    if (bytes_ >= checked_bytes_ + kBytesAtOnce) {
      checked_bytes_ = bytes_;
      RequireHostMemory(3 * bytes_, "a column of " + std::to_string(names_.size()) + " names and more", table.records.Place(column_),
                        "number the names first, or leave the column out with --map");
    }
    if (std::ssize(names_) <= max_classes) return;
    throw Error(ErrorCode::kData,
                "'" + Escaped(CsvTrimmed(field), 40) + "' is one name more than the model has classes, " + std::to_string(max_classes),
                table.records.Place(column_), "check the spelling of the names, or whether this is the column of classes: --map");
  }

  std::vector<std::string> names() const {
    if (!named_) return {};
    std::vector<std::string> all(names_.begin(), names_.end());
    if (empty_ && !all.empty()) all.insert(all.begin(), "");
    return all;
  }

 private:
  static constexpr int64_t kBytesAtOnce = 4 << 20;
  static constexpr int64_t kBytesOfName = 64;  // besides its letters

  const CsvClassRules& rules_;
  int64_t bytes_ = 0, checked_bytes_ = 0;  // of the names
  size_t column_ = 0;
  bool named_ = true, empty_ = false;
  bool only_header_ = false;  // only the first line has a name
  std::set<std::string> names_;
};

}  // namespace

std::vector<std::vector<std::string>> ReadCsvClasses(const std::vector<std::string>& paths, const std::vector<std::string>& columns,
                                                     const CsvClassRules& rules, const CsvOptions& options) {
  std::vector<NamesInColumn> all(columns.size(), NamesInColumn(rules));
  const auto any_named = [&] { return std::ranges::any_of(all, &NamesInColumn::named); };
  for (const std::string& path : paths) {
    if (!any_named()) break;
    Table table(path, options);
    const CsvColumnNames names = table.Names();
    for (size_t i = 0; i < all.size(); ++i) all[i].Begin(names.Resolve(columns[i]).first);
    while (any_named()) {
      table.CheckWidth();
      for (NamesInColumn& column : all) {
        if (column.named()) column.Add(table);
      }
      if (!table.records.Next(table.fields)) break;
    }
  }
  std::vector<std::vector<std::string>> found;
  for (const NamesInColumn& column : all) found.push_back(column.names());
  return found;
}

}  // namespace gradloom
