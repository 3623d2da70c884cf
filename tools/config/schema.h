// A JSON schema of the configuration, which editors use to complete and check gradloom.toml.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace gradloom {

// A schema of draft 2020-12: one object per section, with type, words, minimum, maximum, default and help of each key. Unknown keys are not
// allowed.
nlohmann::ordered_json ConfigurationSchema();

}  // namespace gradloom
