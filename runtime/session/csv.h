// Tables of numbers in comma-separated text, plain or gzipped (RFC 4180: quotes, doubled quotes, line breaks
// within quotes; a byte order mark and blank lines are passed over). Beyond it, as other readers have it: a quote that does not begin its
// field is text, and where the first line ends with a carriage return alone, the others do as well.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/tensor.h"
#include "runtime/session/stored_array.h"

namespace gradloom {

// Which columns, and what they become.
struct CsvSelection {
  // Comma-separated pieces, each a column or a range with both ends: "label", "p0..p63", "CRIM..LSTAT",
  // "0..63", "-1", "age,income..zip". A column is a name of the header or else an index from 0; -1 is the
  // last. A name wins over an index.
  std::string columns;

  // kFloat32, kFloat64 or kInt64. For kInt64 a text like "5.0" is 5, and "5.5" is refused.
  DType dtype = DType::kFloat32;
};

// A selection's numbers: [rows] for one column named as such, else [rows, columns].
struct CsvColumns {
  Tensor values;
  std::optional<StoredArray> stored;  // the numbers, in place of `values`, where they are too many: CsvOptions::memory_bytes
  int64_t nan_count = 0;              // NaN and infinite elements, which are accepted and counted
  std::string first_nan;              // where the first of them is: "file:line:column"
};

struct CsvOptions {
  enum class Header { kGuess, kPresent, kAbsent };
  // kGuess: a first line in which every field is a number is data.
  Header header = Header::kGuess;
  char delimiter = ',';
  int64_t max_field_bytes = 64 << 10;
  int64_t max_columns = 1 << 20;
  // Of the file, and of its text once unpacked.
  int64_t limit_bytes = kFileLimitBytes;
  // Of the numbers of a selection; more of them are not kept in memory (SpillBuffer).
  int64_t memory_bytes = std::numeric_limits<int64_t>::max();
};

// One tensor per selection, in one pass over the file. Space around a number is ignored; an empty field is
// no number.
// Error(kData) with file:line:column (both from 1; the column counts fields): a row with more or fewer fields
// than the first, a field that is no number or does not fit its dtype, a field longer than the limit, a
// quote without an end; with the file: no rows, no such column, damaged gzip data.
// Error(kIo), Error(kLimit) as InputFile's; a text that unpacks past the limit is Error(kLimit) too.
std::vector<CsvColumns> ReadCsv(const std::string& path, const std::vector<CsvSelection>& selections, const CsvOptions& options = {});

// A selection with each range between two of these names written out: so it means the same columns in a table that has them in another
// order. Ranges over names that no selection can hold, with a comma in them, stay.
std::string CsvWrittenOut(const std::string& selection, const std::vector<std::string>& names);

// One column as text: a name or an index, as in a selection. Errors as ReadCsv's.
std::vector<std::string> ReadCsvText(const std::string& path, const std::string& column, const CsvOptions& options = {});

// The names in the header, or none where the file has no header. Reads the first line alone.
std::vector<std::string> CsvHeader(const std::string& path, const CsvOptions& options = {});
// What selects each of the columns: the names in the header, or "0", "1" and so on where the file has none. Reads the first line alone.
// Throws Error(kData) for a file without a line, and as ReadCsv.
std::vector<std::string> CsvSelectors(const std::string& path, const CsvOptions& options = {});

}  // namespace gradloom
