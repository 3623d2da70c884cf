#include "runtime/data/csv_records.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

// The size of one read. A piece stays in the second-level cache until its fields are parsed. A longer record makes the buffer grow.
constexpr size_t kPieceBytes = size_t{64} << 10;

// A record is held in memory as a whole.
constexpr size_t kMaxRecordBytes = size_t{64} << 20;

}  // namespace

CsvRecords::CsvRecords(const std::string& path, const CsvOptions& options)
    : options_(options), file_(path, options.limit_bytes), buffer_(kPieceBytes) {
  Fill();
  if (end_ >= 3 && std::memcmp(buffer_.data(), "\xEF\xBB\xBF", 3) == 0) begin_ = 3;
  if (end_ >= 2 && (std::memcmp(buffer_.data(), "\xFF\xFE", 2) == 0 || std::memcmp(buffer_.data(), "\xFE\xFF", 2) == 0)) {
    throw Error(ErrorCode::kData, "this is UTF-16 text", Escaped(path, 4096), "save it as UTF-8: iconv -f UTF-16 -t UTF-8 FILE > NEW");
  }
  if (options_.delimiter == CsvOptions::kGuessDelimiter) options_.delimiter = GuessDelimiter();
  FindLineBreak();
}

// By the first line, as far as it has been read.
char CsvRecords::GuessDelimiter() const {
  constexpr std::string_view kDelimiters = ",;\t";
  size_t best = kDelimiters.size();
  bool quoted = false;
  for (size_t i = begin_; i < end_ && (quoted || (buffer_[i] != '\n' && buffer_[i] != '\r')); ++i) {
    if (buffer_[i] == '"') quoted = !quoted;
    if (!quoted) best = std::min(best, kDelimiters.find(buffer_[i]));
  }
  return best < kDelimiters.size() ? kDelimiters[best] : ',';
}

std::string CsvRecords::Place(size_t field) const {
  return Escaped(file_.path(), 4096) + ":" + std::to_string(line_) + ":" + std::to_string(field + 1);
}

// Reads more bytes after the unread ones; false at the end of the file.
bool CsvRecords::Fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) {
    if (end_ >= kMaxRecordBytes) {
      throw Error(ErrorCode::kData, "a row of more than " + std::to_string(kMaxRecordBytes >> 20) + " MiB", Place(0),
                  "check that this is a CSV file and that its quotes are closed");
    }
    buffer_.resize(std::min(2 * buffer_.size(), kMaxRecordBytes));
  }
  const int64_t got = file_.Read(buffer_.data() + end_, static_cast<int64_t>(buffer_.size() - end_));
  end_ += static_cast<size_t>(got);
  return got > 0;
}

// Determines the line break from the first line. A lone carriage return was used by old Macintoshes, and spreadsheets can still write it.
void CsvRecords::FindLineBreak() {
  line_ = next_line_;
  At at = At::kField;
  size_t searched = 0;  // bytes after begin_
  while (true) {
    const std::string_view text(buffer_.data() + begin_, end_ - begin_);
    const size_t found = std::min(text.find_first_of("\r\n", searched), text.size());
    at = Advanced(at, text.data() + searched, text.data() + found);
    searched = found;
    const bool is_break = found < text.size() && at != At::kQuotes;
    // What follows a carriage return decides. The first line may be longer than what has been read.
    if (found == text.size() || (is_break && text[found] == '\r' && found + 1 == text.size())) {
      if (Fill()) continue;
      return;
    }
    if (is_break) {
      if (text[found] == '\r' && text[found + 1] != '\n') line_break_ = '\r';
      return;
    }
    ++searched;
  }
}

// The state after the bytes [from, to) of a record. A quote that does not start its field is text (5" pipe), and a doubled quote within
// quotes does not end them.
CsvRecords::At CsvRecords::Advanced(At at, const char* from, const char* to) {
  while (from < to) {
    const void* const found = std::memchr(from, '"', static_cast<size_t>(to - from));
    if (found == nullptr) return at == At::kQuotes ? at : to[-1] == options_.delimiter ? At::kField : At::kText;
    const char* const quote = static_cast<const char*>(found);
    if (at == At::kQuotes) {
      at = At::kQuote;
    } else if (quote == from ? at == At::kField || at == At::kQuote : quote[-1] == options_.delimiter) {
      at = At::kQuotes;
      quoted_ = true;
    } else {
      at = At::kText;
    }
    from = quote + 1;
  }
  return at;
}

// Sets record_end_, next_ and quoted_ for the record at begin_; false if nothing is left.
bool CsvRecords::FindEnd() {
  line_ = next_line_;
  quoted_ = false;
  At at = At::kField;
  size_t searched = 0;  // bytes searched after begin_
  int64_t breaks = 0;
  while (true) {
    while (begin_ + searched < end_) {
      const char* from = buffer_.data() + begin_ + searched;
      const size_t left = end_ - begin_ - searched;
      const void* line_break = std::memchr(from, line_break_, left);
      const size_t piece = line_break ? static_cast<size_t>(static_cast<const char*>(line_break) - from) : left;
      at = Advanced(at, from, from + piece);
      searched += piece;
      if (!line_break) break;
      ++breaks;
      if (at != At::kQuotes) {
        record_end_ = begin_ + searched;
        next_ = record_end_ + 1;
        next_line_ += breaks;
        return true;
      }
      ++searched;
    }
    if (Fill()) continue;
    if (at == At::kQuotes)
      throw Error(ErrorCode::kData, "a quote is never closed", Place(0), "close it at the end of its field, or remove it");
    if (begin_ == end_) return false;
    record_end_ = next_ = end_;
    next_line_ += breaks;
    return true;
  }
}

bool CsvRecords::Next(std::vector<std::string_view>& fields) {
  fields.clear();
  while (FindEnd()) {
    if (record_end_ > begin_ && buffer_[record_end_ - 1] == '\r') --record_end_;
    const bool blank = record_end_ == begin_;
    if (!blank) Split(fields);
    begin_ = next_;
    if (!blank) return true;
  }
  return false;
}

void CsvRecords::Add(std::string_view field, std::vector<std::string_view>& fields) const {
  if (static_cast<int64_t>(fields.size()) >= options_.max_columns) {
    throw Error(ErrorCode::kData, "a row of more than " + std::to_string(options_.max_columns) + " fields", Place(fields.size()));
  }
  fields.push_back(field);
}

void CsvRecords::Split(std::vector<std::string_view>& fields) {
  char *at = buffer_.data() + begin_, *end = buffer_.data() + record_end_;
  while (true) {
    char* stop = at;
    if (quoted_ && at < end && *at == '"') {
      stop = Unquote(at, end, fields);
    } else {
      while (stop < end && *stop != options_.delimiter) ++stop;
      Add({at, static_cast<size_t>(stop - at)}, fields);
    }
    if (stop == end) return;
    at = stop + 1;
  }
}

// Adds the field that starts at `quote`, unquoted in place; returns the delimiter after it, or `end`.
char* CsvRecords::Unquote(char* quote, char* end, std::vector<std::string_view>& fields) {
  char *to = quote, *from = quote + 1;
  while (from < end && (*from != '"' || (from + 1 < end && from[1] == '"'))) {
    if (*from == '"') ++from;
    *to++ = *from++;
  }
  char* stop = from + 1;  // FindEnd has ensured that there is a closing quote
  if (from >= end || (stop < end && *stop != options_.delimiter)) {
    throw Error(ErrorCode::kData, "text after a closing quote", Place(fields.size()),
                "end the field there, or double the quote if it belongs to the text");
  }
  Add({quote, static_cast<size_t>(to - quote)}, fields);
  return stop;
}

}  // namespace gradloom
