// The configuration as a JSON schema, with which editors complete and check gradloom.toml.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace gradloom {

// Of draft 2020-12: an object a section, with type, words, least and most value, default and help of each key. Unknown keys are none.
nlohmann::ordered_json ConfigurationSchema();

}  // namespace gradloom
