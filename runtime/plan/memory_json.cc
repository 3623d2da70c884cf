#include "runtime/plan/memory_json.h"

#include <nlohmann/json.hpp>

#include "runtime/plan/entry_names.h"
#include "runtime/plan/memory_report.h"

namespace gradloom {

std::string MemoryJson(const Plan& plan, const std::string& hash) {
  const MemoryReport report = ReportMemory(plan);
  nlohmann::ordered_json programs = nlohmann::ordered_json::array();
  for (size_t i = 0; i < report.programs.size(); ++i) {
    const ProgramMemory& memory = report.programs[i];
    nlohmann::ordered_json largest = nlohmann::ordered_json::array();
    for (const LargeBuffer& buffer : memory.largest) {
      largest.push_back({{"name", buffer.name}, {"node", buffer.origin}, {"bytes", buffer.bytes}});
    }
    programs.push_back({{"entries", EntryTitle(plan, i)},
                        {"arena_bytes", memory.transient_bytes},
                        {"activation_bytes", memory.activations},
                        {"gradient_bytes", memory.gradients},
                        {"scratch_bytes", memory.scratch},
                        {"largest", largest}});
  }
  const auto json_of = [](const PlaceMemory& place) {
    return nlohmann::ordered_json{{"parameter_bytes", place.parameters},      {"statistic_bytes", place.statistics},
                                  {"optimizer_bytes", place.optimizer},       {"accumulator_bytes", place.accumulators},
                                  {"weight_copy_bytes", place.weight_copies}, {"average_bytes", place.averages},
                                  {"constant_bytes", place.constants_bytes},  {"total_bytes", place.total_bytes()}};
  };
  nlohmann::ordered_json line{{"plan", hash}};
  line.update(json_of(report.fullest()));
  if (report.places.size() > 1) {
    for (size_t rank = 0; rank < plan.num_ranks(); ++rank) {
      line["devices"].push_back(json_of(report.places[static_cast<size_t>(plan.PlaceOf(rank))]));
    }
  }
  line["programs"] = programs;
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace gradloom
