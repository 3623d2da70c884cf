#include "tools/config/topology.h"

#include <charconv>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/joined.h"
#include "runtime/base/suggestion.h"
#include "tools/config/toml_text.h"

namespace gradloom {
namespace {

// A number of a section, as a member of what it describes.
template <typename T>
struct Key {
  const char* name;
  double T::*value;
  bool zero = false;  // whether it may be 0
};

constexpr Key<DeviceCosts> kDeviceKeys[] = {
    {"flops_per_second", &DeviceCosts::flops_per_second},
    {"tf32_flops_per_second", &DeviceCosts::tf32_flops_per_second, true},
    {"half_flops_per_second", &DeviceCosts::half_flops_per_second, true},
    {"functions_per_second", &DeviceCosts::functions_per_second, true},
    {"bytes_per_second", &DeviceCosts::bytes_per_second},
    {"bandwidth_threads", &DeviceCosts::bandwidth_threads},
    {"cache_bytes", &DeviceCosts::cache_bytes, true},
    {"cache_bytes_per_second", &DeviceCosts::cache_bytes_per_second, true},
    {"launch_seconds", &DeviceCosts::launch_seconds, true},
    {"team_seconds", &DeviceCosts::team_seconds, true},
    {"event_seconds", &DeviceCosts::event_seconds, true},
    {"step_seconds", &DeviceCosts::step_seconds, true},
    {"wake_seconds", &DeviceCosts::wake_seconds, true},
};
constexpr Key<Link> kLinkKeys[] = {{"link_bytes_per_second", &Link::bytes_per_second}, {"link_seconds", &Link::seconds, true}};
constexpr Key<Link> kNetworkKeys[] = {{"bytes_per_second", &Link::bytes_per_second}, {"seconds", &Link::seconds, true}};

constexpr std::pair<const char*, AllReduceAlgorithm> kAlgorithms[] = {{"fastest", AllReduceAlgorithm::kFastest},
                                                                      {"ring", AllReduceAlgorithm::kRing},
                                                                      {"tree", AllReduceAlgorithm::kTree},
                                                                      {"double_tree", AllReduceAlgorithm::kDoubleTree}};

class TopologyReader {
 public:
  explicit TopologyReader(const std::string& path) : path_(path) {
    try {
      root_ = ParseToml(ReadWholeFile(path, kTomlLimitBytes));
    } catch (const toml::parse_error& error) {
      throw Error(ErrorCode::kConfig, Escaped(std::string(error.description())), At(error.source()),
                  "models/clusters/two_nodes.toml is an example");
    }
  }

  Cluster Read() {
    const std::string kind = Text("device", "kind", "cuda", {"cpu", "cuda"});
    Cluster cluster{.device = DefaultCosts(kind == "cpu" ? DeviceKind::kCpu : DeviceKind::kCuda)};
    if (Find("device", "flops_per_second") != nullptr) {
      // For a device other than the default one, matrix units exist only if their speed is given.
      cluster.device.tf32_flops_per_second = cluster.device.half_flops_per_second = 0;
    }
    for (const Key<DeviceCosts>& key : kDeviceKeys) Number("device", key, cluster.device);
    Count("node", "shared_cores", cluster.shared_cores);
    if (cluster.shared_cores > 0) cluster.devices_per_node = kManyDevices;
    Count("node", "devices", cluster.devices_per_node);
    cluster.inside = {cluster.device.collective_seconds / 4, cluster.device.link_bytes_per_second};
    for (const Key<Link>& key : kLinkKeys) Number("node", key, cluster.inside);
    cluster.between = cluster.inside;
    for (const Key<Link>& key : kNetworkKeys) Number("network", key, cluster.between);
    std::set<std::string> algorithms;
    for (const auto& [name, algorithm] : kAlgorithms) algorithms.insert(name);
    const std::string chosen = Text("all_reduce", "algorithm", "fastest", algorithms);
    for (const auto& [name, algorithm] : kAlgorithms) cluster.algorithm = name == chosen ? algorithm : cluster.algorithm;
    RefuseUnknown();
    return cluster;
  }

 private:
  std::string At(const toml::source_region& source) const { return Escaped(path_, 4096) + ":" + std::to_string(source.begin.line); }

  const toml::node* Find(const char* section, const char* key) {
    known_[section].insert(key);
    const toml::table* table = root_[section].as_table();
    return table == nullptr ? nullptr : table->get(key);
  }

  [[noreturn]] void Refuse(const toml::node& node, const std::string& why) const {
    throw Error(ErrorCode::kConfig, why, At(node.source()), "models/clusters/two_nodes.toml is an example");
  }

  template <typename T>
  void Number(const char* section, const Key<T>& key, T& of) {
    const toml::node* node = Find(section, key.name);
    if (node == nullptr) return;
    const auto number = node->value<double>();
    if (!number || !(*number > 0 || (key.zero && *number == 0)) || *number > 1e30)
      Refuse(*node, std::string(section) + "." + key.name + " must be a number " + (key.zero ? "of at least 0" : "above 0"));
    of.*key.value = *number;
  }

  void Count(const char* section, const char* key, int& value) {
    const toml::node* node = Find(section, key);
    if (node == nullptr) return;
    const auto number = node->value<int64_t>();
    if (!number || *number < 1 || *number > (1 << 20))
      Refuse(*node, std::string(section) + "." + key + " must be a whole number of at least 1");
    value = static_cast<int>(*number);
  }

  std::string Text(const char* section, const char* key, const char* absent, const std::set<std::string>& choices) {
    const toml::node* node = Find(section, key);
    if (node == nullptr) return absent;
    const auto text = node->value<std::string>();
    if (text && choices.contains(*text)) return *text;
    Refuse(*node, std::string(section) + "." + key + " must be one of: " + Joined(choices));
  }

  void RefuseUnknown() const {
    for (const auto& [section, node] : root_) {
      const auto known = known_.find(std::string(section.str()));
      if (known == known_.end() || !node.is_table()) Refuse(node, "unknown section '" + Escaped(std::string(section.str())) + "'");
      for (const auto& [key, value] : *node.as_table()) {
        if (known->second.contains(std::string(key.str()))) continue;
        const std::string suggestion = Suggestion(std::string(key.str()), {known->second.begin(), known->second.end()});
        Refuse(value, "unknown key '" + Escaped(std::string(section.str()) + "." + std::string(key.str())) + "'" +
                          (suggestion.empty() ? "" : "; " + suggestion));
      }
    }
  }

  const std::string path_;
  toml::table root_;
  std::map<std::string, std::set<std::string>> known_;
};

// The shortest text that is read as the same number.
std::string TextOf(double value) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

template <typename T, size_t kCount>
void AddKeys(const char* section, const Key<T> (&keys)[kCount], const T& of, std::vector<TopologyNumber>& numbers) {
  for (const Key<T>& key : keys) numbers.push_back({section, key.name, of.*key.value});
}

}  // namespace

Cluster ReadTopology(const std::string& path) { return TopologyReader(path).Read(); }

std::vector<TopologyNumber> TopologyNumbers(const Cluster& cluster) {
  std::vector<TopologyNumber> numbers;
  AddKeys("device", kDeviceKeys, cluster.device, numbers);
  if (cluster.shared_cores > 0) numbers.push_back({"node", "shared_cores", static_cast<double>(cluster.shared_cores)});
  if (cluster.shared_cores == 0 || cluster.devices_per_node != kManyDevices)
    numbers.push_back({"node", "devices", static_cast<double>(cluster.devices_per_node)});
  AddKeys("node", kLinkKeys, cluster.inside, numbers);
  AddKeys("network", kNetworkKeys, cluster.between, numbers);
  return numbers;
}

std::string TopologyText(DeviceKind kind, const Cluster& cluster) {
  std::string text = "[device]\nkind = \"" + std::string(DeviceKindName(kind)) + "\"\n";
  std::string_view section = "device";
  for (const TopologyNumber& number : TopologyNumbers(cluster)) {
    if (number.section != section) text += "\n[" + std::string(number.section) + "]\n";
    section = number.section;
    text += std::string(number.key) + " = " + TextOf(number.value) + "\n";
  }
  for (const auto& [name, algorithm] : kAlgorithms) {
    if (algorithm == cluster.algorithm) text += "\n[all_reduce]\nalgorithm = \"" + std::string(name) + "\"\n";
  }
  return text;
}

}  // namespace gradloom
