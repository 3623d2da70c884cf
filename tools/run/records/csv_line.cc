#include "tools/run/records/csv_line.h"

namespace gradloom {

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string CsvLine(const std::vector<std::string>& fields) {
  std::string line;
  for (size_t i = 0; i < fields.size(); ++i) line += (i == 0 ? "" : ",") + CsvField(fields[i]);
  return line + "\n";
}

std::vector<std::string> CsvFields(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == ',' && !quoted) {
      fields.emplace_back();
    } else if (line[i] != '"') {
      fields.back() += line[i];
    } else if (quoted && line.substr(i + 1).starts_with('"')) {
      fields.back() += line[i++];
    } else {
      quoted = !quoted;
    }
  }
  return fields;
}

}  // namespace gradloom
