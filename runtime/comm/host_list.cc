// Parses host lists in Slurm's syntax.
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/read_number.h"
#include "runtime/comm/job_topology.h"

namespace gradloom {
namespace {

constexpr size_t kMaxHosts = 65536;

[[noreturn]] void Refuse(const std::string& list, const std::string& why) {
  throw Error(ErrorCode::kConfig, "the list of hosts '" + Escaped(list) + "' " + why, "the topology of the job",
              "set --master-addr to the host of rank 0");
}

// "01-03,7" -> 01, 02, 03, 7.
std::vector<std::string> NumbersOf(const std::string& list, std::string_view ranges) {
  std::vector<std::string> numbers;
  while (true) {
    const std::string_view range = ranges.substr(0, ranges.find(','));
    const std::string_view first = range.substr(0, range.find('-'));
    const std::string_view last = first.size() == range.size() ? first : range.substr(first.size() + 1);
    const std::optional<uint64_t> begin = ReadNumber<uint64_t>(first), end = ReadNumber<uint64_t>(last);
    if (!begin || !end || *end < *begin) Refuse(list, "has an invalid range '" + Escaped(range) + "'");
    if (*end - *begin >= kMaxHosts - numbers.size()) Refuse(list, "has more than 65,536 hosts");
    for (uint64_t i = 0; i <= *end - *begin; ++i) {
      const std::string digits = std::to_string(*begin + i);
      numbers.push_back(digits.size() < first.size() ? std::string(first.size() - digits.size(), '0') + digits : digits);
    }
    if (range.size() == ranges.size()) return numbers;
    ranges.remove_prefix(range.size() + 1);
  }
}

// One item: "gpu[01-03]-rack[1,2]".
std::vector<std::string> HostsOfItem(const std::string& list, std::string_view item) {
  std::vector<std::string> hosts{""};
  while (!item.empty()) {
    const size_t open = item.find('['), close = item.find(']');
    const std::string_view plain = item.substr(0, open);
    for (std::string& host : hosts) host += plain;
    if (open == std::string_view::npos) break;
    if (close == std::string_view::npos || close < open) Refuse(list, "has an unclosed bracket");
    const std::vector<std::string> numbers = NumbersOf(list, item.substr(open + 1, close - open - 1));
    if (hosts.size() * numbers.size() > kMaxHosts) Refuse(list, "has more than 65,536 hosts");
    std::vector<std::string> longer;
    for (const std::string& host : hosts) {
      for (const std::string& number : numbers) longer.push_back(host + number);
    }
    hosts = std::move(longer);
    item.remove_prefix(close + 1);
  }
  return hosts;
}

}  // namespace

std::vector<std::string> HostsOf(const std::string& list) {
  std::vector<std::string> hosts;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c != ',' || (depth > 0 && i < list.size())) continue;
    const std::string_view item = std::string_view(list).substr(begin, i - begin);
    if (item.empty()) Refuse(list, "has an empty entry");
    for (std::string& host : HostsOfItem(list, item)) hosts.push_back(std::move(host));
    if (hosts.size() > kMaxHosts) Refuse(list, "has more than 65,536 hosts");
    begin = i + 1;
  }
  return hosts;
}

}  // namespace gradloom
