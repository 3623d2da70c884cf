// Names of entries and programs for messages.
#pragma once

#include <string>

#include "runtime/plan/plan.h"

namespace gradloom {

// "step of 64", "eval of 32", "update".
std::string EntryName(const Entry& entry);

// The entries that run a program: "step of 64, eval of 64"; "program 3" if none does.
std::string EntryTitle(const Plan& plan, size_t program);

}  // namespace gradloom
