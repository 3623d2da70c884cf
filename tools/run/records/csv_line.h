// Lines of tables of text as spreadsheets read them (RFC 4180).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gradloom {

// The field, in quotes if it has a comma, a quote or a line break.
std::string CsvField(const std::string& text);

// The fields separated by commas, with a line break at the end.
std::string CsvLine(const std::vector<std::string>& fields);

// The fields of a line without its line break; at least one.
std::vector<std::string> CsvFields(std::string_view line);

}  // namespace gradloom
