// JSON output of the command.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace gradloom {

// One object on one line. Invalid UTF-8, which paths may contain, is replaced.
inline std::string JsonLine(const nlohmann::json& json) { return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

}  // namespace gradloom
