// Tables of numbers in comma-separated text, plain or gzipped (RFC 4180: quotes, doubled quotes, line breaks within quotes; a byte order
// mark and blank lines are skipped). As in other readers, a quote that does not begin its field is text, and if the first line ends with a
// carriage return alone, so do the others.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/data/data_limits.h"
#include "runtime/data/stored_array.h"

namespace gradloom {

// Classes by name. A field is the index of its name.
struct CsvClasses {
  std::vector<std::string> names;  // sorted
  std::optional<int64_t> ignored;  // a number that means none of them
};

// "cat, dog, ..."; an empty name is shown as '', and one with a comma in quotes.
std::string ListedClasses(const std::vector<std::string>& names);

// A selection of columns, and the dtype of their numbers.
struct CsvSelection {
  // Comma-separated pieces, each a column or an inclusive range: "label", "p0..p63", "CRIM..LSTAT", "0..63", "-1", "age,income..zip". A
  // column is a name in the header or an index from 0; -1 is the last one. A name takes precedence over an index. In double quotes, it is a
  // name in any case, which may have a comma; quotes in it are doubled: "\"size, cm\"..age".
  std::string columns;

  // kFloat32, kFloat64 or kInt64. For kInt64 the text "5.0" is 5, and "5.5" is refused. "True" and "False" in any case are 1 and 0.
  DType dtype = DType::kFloat32;

  // By column: if not null, its fields are names of classes instead of numbers. Empty: there are none.
  std::vector<std::shared_ptr<const CsvClasses>> classes = {};

  // Whether a floating-point number may be missing: an empty field, "?", or what pandas reads as missing (NA, N/A, null, None ...) is NaN.
  bool may_be_missing = false;
};

// The numbers of a selection: [rows] for a single named column, otherwise [rows, columns].
struct CsvColumns {
  Tensor values;
  std::optional<StoredArray> stored;  // the numbers, instead of `values`, if they are more than CsvOptions::memory_bytes
  int64_t nan_count = 0;              // NaN (unless it may be missing) and infinite elements, which are accepted and counted
  std::string first_nan;              // position of the first of them: "file:line:column"
};

// The first row is a header unless at least half of its non-empty fields are numbers, True or False, or unless it looks like a row: it has
// numbers, numbers and words stand where the next row has them, and one of its words is a value of its column in one of the first rows.
struct CsvOptions {
  // kGuessDelimiter: a comma, or if the first line has none outside quotes, a semicolon, or else a tab.
  static constexpr char kGuessDelimiter = '\0';
  char delimiter = ',';
  int64_t max_columns = 1 << 20;
  // Limit for the file; its text may unpack to UnpackedLimit.
  int64_t limit_bytes = kDataLimitBytes;
  // Limit for the numbers of a selection; more are not kept in memory (SpillBuffer).
  int64_t memory_bytes = std::numeric_limits<int64_t>::max();
};

// Whether a field is a number; one is not if it does not fit a double. Whether it is empty but for space.
bool IsCsvNumber(std::string_view field);
bool IsCsvEmpty(std::string_view field);

// True or False in any case, which are 1 and 0 where numbers are read, and names where classes may have names.
std::optional<bool> CsvBoolean(std::string_view field);

// Reads one tensor per selection, in one pass over the file. Space around a number is ignored; an empty field is not a number unless it may
// be missing. Throws Error(kData) with file:line:column (both from 1; the column counts fields) for a row with more or fewer fields than
// the first, a field that is not a number or does not fit its dtype or is none of the classes, and an unterminated quote; Error(kData) with
// the file for no rows, an unknown column and damaged gzip data; Error(kConfig) for classes of another number of columns than those
// selected. Throws Error(kIo), Error(kLimit) like InputFile; also Error(kLimit) for a text that unpacks beyond the limit.
std::vector<CsvColumns> ReadCsv(const std::string& path, const std::vector<CsvSelection>& selections, const CsvOptions& options = {});

// The selection as names of columns, instead of ranges and indices, so that it means the same columns in a table with another order or more
// of them. Indices of columns without names stay. `names`: the selector of each column (CsvSelectors). Throws Error(kData) for a name that
// several columns have; `where`: the other table.
std::string CsvWrittenOut(const std::string& selection, const std::vector<std::string>& names, const std::string& where);

// A column as a piece of a selection: its name, in quotes if need be, or its index if there is no header or several columns have the name.
std::string CsvPieceOf(const std::vector<std::string>& names, size_t column);

// The columns of a selection, each as a selection of its own: its name, or its index if there is no header or several have the name. Throws
// like ReadCsv for an unknown column.
std::vector<std::string> CsvSelected(const std::string& path, const std::string& selection, const CsvOptions& options = {});

// Reads columns as text, in one pass over the file; each is a name or an index, as in a selection. Throws like ReadCsv.
std::vector<std::vector<std::string>> ReadCsvText(const std::string& path, const std::vector<std::string>& columns,
                                                  const CsvOptions& options = {});

// Which names ReadCsvClasses accepts.
struct CsvClassRules {
  int64_t max_classes = std::numeric_limits<int64_t>::max();
  std::optional<int64_t> ignored;  // a number among the names that is none of them
  bool may_be_empty = false;       // whether empty fields among names are a name
};

// The names of classes in each of these columns of all files, which have the same columns, in one pass over the files; none if its first
// field that may not be empty is empty or a number, or if only the first line has a name (a header that was read as data), or if the
// selection is more than one column. Stops as soon as no column can have names. Throws Error(kData) with file:line:column for a name beyond
// `max_classes`, and for an empty field or a number among names that the rules do not allow; otherwise like ReadCsv.
std::vector<std::vector<std::string>> ReadCsvClasses(const std::vector<std::string>& paths, const std::vector<std::string>& columns,
                                                     const CsvClassRules& rules, const CsvOptions& options = {});

// Throws Error(kData) if the first line, split into these fields, seems to have another delimiter, or is not part of the table.
void CheckFirstLine(const std::vector<std::string>& fields, const std::string& where);

// Why it is doubtful whether the first line is a header, as the rest of a sentence; empty if it is not. It may be read as data although it
// is 0,1,2 and so on, at least three fields, as pandas names columns without names. Or it may be taken for a header although it looks like
// a row.
std::string FirstLineDoubt(const std::string& path, const CsvOptions& options = {});

// The names in the header, or none if the file has no header. Reads only the first lines.
std::vector<std::string> CsvHeader(const std::string& path, const CsvOptions& options = {});
// The selector of each column: the names in the header, or "0", "1" and so on if the file has no header. Reads only the first lines. Throws
// Error(kData) for a file without a line, and like ReadCsv.
std::vector<std::string> CsvSelectors(const std::string& path, const CsvOptions& options = {});

}  // namespace gradloom
