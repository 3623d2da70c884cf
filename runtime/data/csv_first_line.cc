#include "runtime/data/csv_first_line.h"

#include <algorithm>
#include <cstddef>

#include "runtime/data/csv_fields.h"
#include "runtime/data/csv_records.h"

namespace gradloom {
namespace {

enum class FieldKind { kMissing, kNumber, kWord };

FieldKind KindOf(std::string_view field) {
  if (IsCsvMissing(field)) return FieldKind::kMissing;
  return IsCsvNumber(field) || CsvBoolean(field) ? FieldKind::kNumber : FieldKind::kWord;
}

// More words than numbers. A first row with a damaged number must not disappear as a header.
bool HasMostlyWords(const std::vector<std::string_view>& fields) {
  std::ptrdiff_t words = 0;
  for (const std::string_view field : fields) {
    if (!IsCsvEmpty(field)) words += IsCsvNumber(field) || CsvBoolean(field) ? -1 : 1;
  }
  return words > 0;
}

// Whether two lines have numbers and words in the same places, as far as they are not missing, and at least one number.
bool HaveSameKinds(const std::vector<std::string_view>& a, const std::vector<std::string_view>& b) {
  bool numbers = false;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const FieldKind kinds[] = {KindOf(a[i]), KindOf(b[i])};
    if (kinds[0] == FieldKind::kMissing || kinds[1] == FieldKind::kMissing) continue;
    if (kinds[0] != kinds[1]) return false;
    numbers = numbers || kinds[0] == FieldKind::kNumber;
  }
  return numbers && a.size() == b.size();
}

// Whether a word of the first line is a value of its column. A line that is the same as a whole is a header once more, in files that were
// joined.
bool HasWordOf(const std::vector<std::string_view>& first, const std::vector<std::string_view>& row) {
  bool word = false, same = true;
  for (size_t i = 0; i < first.size() && i < row.size(); ++i) {
    const bool equal = CsvTrimmed(first[i]) == CsvTrimmed(row[i]);
    word = word || (equal && KindOf(first[i]) == FieldKind::kWord);
    same = same && equal;
  }
  return word && !same;
}

}  // namespace

CsvFirstLine FirstLineOf(const std::vector<std::string_view>& fields, const std::string& path, const CsvOptions& options) {
  constexpr int kRowsSearched = 1000;
  if (!HasMostlyWords(fields)) return {};
  const auto is_number = [](std::string_view field) { return KindOf(field) == FieldKind::kNumber; };
  if (std::ranges::none_of(fields, is_number)) return {.is_header = true};
  CsvRecords records(path, options);
  std::vector<std::string_view> row;
  records.Next(row);
  if (!records.Next(row) || !HaveSameKinds(fields, row)) return {.is_header = true};
  int searched = 0;
  do {
    if (HasWordOf(fields, row)) return {};
  } while (++searched < kRowsSearched && records.Next(row));
  return {.is_header = true, .may_be_row = true};
}

Error CsvNoRows(const std::string& path) {
  return {ErrorCode::kData, "the table has no rows", Escaped(path, 4096), "check that it was written completely: wc -l counts its lines"};
}

void CheckFirstLine(const std::vector<std::string>& fields, const std::string& where) {
  const std::string& first = fields.front();
  // A column may be named "#".
  if ((fields.size() == 1 && first.starts_with('#')) || first.starts_with("sep=")) {
    throw Error(ErrorCode::kData, "the first line is a comment or a note for a spreadsheet: '" + Escaped(first, 40) + "'", where + ":1",
                "remove it; the first line must have the names of the columns, or numbers");
  }
  if (fields.size() != 1) return;
  // In a file that is delimited by tabs according to its name.
  const auto has = [&](char delimiter) { return first.find(delimiter) != std::string::npos; };
  if (!has(',') && !has(';')) return;
  throw Error(ErrorCode::kData, "the first line is one field, with " + std::string(has(',') ? "commas" : "semicolons") + " in it",
              where + ":1", "name the file .csv, or set its format: --data-format csv");
}

std::string FirstLineDoubt(const std::string& path, const CsvOptions& options) {
  CsvRecords records(path, options);
  std::vector<std::string_view> fields;
  if (!records.Next(fields)) return "";
  const CsvFirstLine line = FirstLineOf(fields, path, options);
  if (line.may_be_row) {
    return "is taken for the names of the columns, but has numbers and words where the second one has them: if it is a row, add a line "
           "with names "
           "before it";
  }
  if (line.is_header || fields.size() < 3) return "";
  for (size_t i = 0; i < fields.size(); ++i) {
    if (CsvTrimmed(fields[i]) != std::to_string(i)) return "";
  }
  return "is 0, 1, 2 ... and is read as data: if it numbers the columns, remove it (with pandas: to_csv(..., header=False))";
}

std::vector<std::string> CsvHeader(const std::string& path, const CsvOptions& options) {
  CsvRecords records(path, options);
  std::vector<std::string_view> fields;
  if (!records.Next(fields) || !FirstLineOf(fields, path, options).is_header) return {};
  return CsvNamesOf(fields);
}

std::vector<std::string> CsvSelectors(const std::string& path, const CsvOptions& options) {
  CsvRecords records(path, options);
  std::vector<std::string_view> fields;
  if (!records.Next(fields)) throw CsvNoRows(path);
  if (FirstLineOf(fields, path, options).is_header) return CsvNamesOf(fields);
  std::vector<std::string> indices;
  for (size_t i = 0; i < fields.size(); ++i) indices.push_back(std::to_string(i));
  return indices;
}

}  // namespace gradloom
