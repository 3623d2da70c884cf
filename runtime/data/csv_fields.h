// The text of single fields of a table.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gradloom {

// Without the space at its ends.
std::string_view CsvTrimmed(std::string_view text);

// Whether the field says that its number is missing: empty, or as pandas.read_csv has it by default, or "?" as in UCI's data sets. ("nan"
// is a number.)
bool IsCsvMissing(std::string_view field);

// The field as UTF-8. One that is not UTF-8 is read as Latin-1.
std::string CsvTextOf(std::string_view field);

// The name of a column or class. Names are stored with runs, and those of columns are typed at --map, so they are UTF-8.
std::string CsvNameOf(std::string_view field);
std::vector<std::string> CsvNamesOf(const std::vector<std::string_view>& fields);

}  // namespace gradloom
