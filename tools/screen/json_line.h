// JSON as the command prints it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace gradloom {

// One object in one line. Bytes that are no UTF-8, as paths may have them, are replaced.
inline std::string JsonLine(const nlohmann::json& json) { return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

}  // namespace gradloom
