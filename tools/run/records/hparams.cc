#include "tools/run/records/hparams.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <variant>
#include <vector>

#include "tools/config/keys.h"

namespace gradloom {

std::map<std::string, Hparam> HparamsOf(const Configuration& configuration, int64_t batch) {
  constexpr std::string_view kOthers[] = {"data.batch",       "loss.name",       "model.freeze", "train.epochs", "train.steps",
                                          "train.accumulate", "train.precision", "train.seed",   "devices.use"};
  std::map<std::string, Hparam> hparams;
  for (const Key& key : Keys()) {
    const bool wanted = key.section() == "optimizer" || key.section() == "schedule" ||
                        std::find(std::begin(kOthers), std::end(kOthers), key.name) != std::end(kOthers);
    if (!wanted || !configuration.has_value(key.name)) continue;
    if (key.section() == "schedule" && !configuration.is_set(key.name) && std::string_view(key.name) != "schedule.name") continue;
    const KeyValue& value = configuration.value(key.name);
    if (const auto* on = std::get_if<bool>(&value)) {
      hparams[key.name] = *on;
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      hparams[key.name] = static_cast<double>(*integer);
    } else if (const auto* number = std::get_if<double>(&value)) {
      hparams[key.name] = *number;
    } else if (const auto* text = std::get_if<std::string>(&value)) {
      hparams[key.name] = *text;
    } else if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
      std::string list;
      for (const std::string& part : *texts) list += (list.empty() ? "" : " + ") + part;
      hparams[key.name] = list;
    }
  }
  hparams["data.batch"] = static_cast<double>(batch);
  return hparams;
}

}  // namespace gradloom
