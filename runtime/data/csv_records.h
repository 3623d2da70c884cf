// The records of comma-separated text, one at a time; the lower half of csv.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/csv.h"
#include "runtime/data/unpacked_file.h"

namespace gradloom {

class CsvRecords {
 public:
  CsvRecords(const std::string& path, const CsvOptions& options);

  // Reads the next record that is not a blank line, split and unquoted; false at the end. The fields are valid until the next call. Throws
  // like ReadCsv.
  bool Next(std::vector<std::string_view>& fields);

  const std::string& path() const { return file_.path(); }

  // The line on which the last record started, from 1.
  int64_t line() const { return line_; }

  // "file:line:column" of a field of the last record, counted from 0.
  std::string Place(size_t field) const;

 private:
  // The state of the scanner: before a field, in an unquoted field, in quotes, after a quote that may end them.
  enum class At { kField, kText, kQuotes, kQuote };

  bool Fill();
  void FindLineBreak();
  char GuessDelimiter() const;
  bool FindEnd();
  At Advanced(At at, const char* from, const char* to);
  void Split(std::vector<std::string_view>& fields);
  char* Unquote(char* quote, char* end, std::vector<std::string_view>& fields);
  void Add(std::string_view field, std::vector<std::string_view>& fields) const;

  CsvOptions options_;
  UnpackedFile file_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // the unread part of the buffer
  size_t record_end_ = 0;       // of the record at begin_, its line break excluded
  size_t next_ = 0;             // the start of the record after it
  int64_t line_ = 0, next_line_ = 1;
  bool quoted_ = false;  // the record at begin_ has a field in quotes
  char line_break_ = '\n';
};

}  // namespace gradloom
