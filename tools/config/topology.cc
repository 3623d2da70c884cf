#include "tools/config/topology.h"

#include <map>
#include <set>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/joined.h"
#include "runtime/base/suggestion.h"
#include "tools/config/toml_text.h"

namespace gradloom {
namespace {

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
    Number("device", "flops_per_second", cluster.device.flops_per_second);
    Number("device", "tf32_flops_per_second", cluster.device.tf32_flops_per_second);
    Number("device", "half_flops_per_second", cluster.device.half_flops_per_second);
    Number("device", "bytes_per_second", cluster.device.bytes_per_second);
    Number("device", "launch_seconds", cluster.device.launch_seconds);
    Number("device", "event_seconds", cluster.device.event_seconds);
    Number("device", "step_seconds", cluster.device.step_seconds);
    Count("node", "devices", cluster.devices_per_node);
    Count("node", "shared_cores", cluster.shared_cores);
    cluster.inside = {cluster.device.collective_seconds / 4, cluster.device.link_bytes_per_second};
    Number("node", "link_bytes_per_second", cluster.inside.bytes_per_second);
    Number("node", "link_seconds", cluster.inside.seconds);
    cluster.between = cluster.inside;
    Number("network", "bytes_per_second", cluster.between.bytes_per_second);
    Number("network", "seconds", cluster.between.seconds);
    const std::string algorithm = Text("all_reduce", "algorithm", "fastest", {"fastest", "ring", "tree", "double_tree"});
    cluster.algorithm = algorithm == "ring"          ? AllReduceAlgorithm::kRing
                        : algorithm == "tree"        ? AllReduceAlgorithm::kTree
                        : algorithm == "double_tree" ? AllReduceAlgorithm::kDoubleTree
                                                     : AllReduceAlgorithm::kFastest;
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

  void Number(const char* section, const char* key, double& value) {
    const toml::node* node = Find(section, key);
    if (node == nullptr) return;
    const auto number = node->value<double>();
    if (!number || !(*number > 0) || *number > 1e30) Refuse(*node, std::string(section) + "." + key + " must be a number above 0");
    value = *number;
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

}  // namespace

Cluster ReadTopology(const std::string& path) { return TopologyReader(path).Read(); }

}  // namespace gradloom
