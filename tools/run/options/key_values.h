// Reads the values of keys, with errors that name their origin, and prints them.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tools/config/configuration.h"

namespace gradloom {

// The number in a text of the configuration; `what` names it in errors. Throws Error(kConfig).
double ParseNumber(const std::string& text, const std::string& what);

// Throws Error(kConfig) with this message, the nearest name and all of them, for a name that is not in `known`.
void CheckOneOf(const std::string& name, const std::vector<std::string>& known, const std::string& message, const std::string& where = "");

// Whether a key differs from its default. The stored configuration of a run sets every key, so a value equal to the default does not count.
bool IsChanged(const Configuration& configuration, const Key& key);

// Calls `read`, which reads the key's value. An error without a location gets the origin of the value.
template <typename Read>
void Reading(const Configuration& configuration, const char* key, Read read) {
  try {
    read();
  } catch (const Error& error) {
    if (!error.where().empty()) throw;
    const std::string& place = configuration.origin(key).place;
    throw Error(error.code(), error.message(), Escaped(place.empty() ? key : place, 4096), error.help());
  }
}

// With --verbose, prints each key that was set, with its origin, on stderr.
void PrintSetKeys(const Configuration& configuration);

}  // namespace gradloom
