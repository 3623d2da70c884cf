// Whether the first line of a table has the names of its columns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/csv.h"

namespace gradloom {

struct CsvFirstLine {
  bool is_header = false;
  bool may_be_row = false;  // it is a header if one counts its words, but has numbers and words where the next row has them
};

// `fields`: those of the first line. Reads the rows below it if there are numbers among the names. Throws like ReadCsv.
CsvFirstLine FirstLineOf(const std::vector<std::string_view>& fields, const std::string& path, const CsvOptions& options);

Error CsvNoRows(const std::string& path);

}  // namespace gradloom
