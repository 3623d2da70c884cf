#include "runtime/device/plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr char kOwnAddress = 0;  // an address in the object file that contains this code

// The folders of the program and of the shared library that contains this code, which may be the same.
std::vector<std::filesystem::path> Folders() {
  std::vector<std::filesystem::path> folders;
  std::error_code error;
  if (const auto program = std::filesystem::read_symlink("/proc/self/exe", error); !error) folders.push_back(program.parent_path());
  Dl_info info;
  if (dladdr(static_cast<const void*>(&kOwnAddress), &info) != 0 && info.dli_fname != nullptr) {
    const auto object = std::filesystem::canonical(info.dli_fname, error);
    if (!error && (folders.empty() || object.parent_path() != folders.front())) folders.push_back(object.parent_path());
  }
  return folders;
}

// The candidate paths, in the order in which they are tried.
std::vector<std::string> SearchPaths(const PluginLibrary& library) {
  if (const char* const given = std::getenv(library.variable); given != nullptr && given[0] != '\0') return {given};
  std::vector<std::string> places;
  for (const std::filesystem::path& folder : Folders()) {
    for (const std::string& beside : {std::string(), std::string("../lib"), "../../" + std::string(library.build_folder)})
      places.push_back((folder / beside / library.file).lexically_normal().string());
  }
  places.emplace_back(library.file);
  return places;
}

}  // namespace

void* OpenPlugin(const PluginLibrary& library, std::string& why) {
  for (const std::string& place : SearchPaths(library)) {
    const bool file = place.find('/') != std::string::npos;
    std::error_code error;
    if (file && !std::filesystem::exists(place, error)) {
      why = "there is no " + Escaped(place);
      continue;
    }
    // Never closed: its code may be in use until the process ends.
    void* const opened = dlopen(place.c_str(), RTLD_NOW | (library.global ? RTLD_GLOBAL : RTLD_LOCAL));
    if (opened == nullptr) {
      const char* const said = dlerror();
      why = Escaped(said == nullptr ? place : said, 1000);
      if (file) return nullptr;
      continue;
    }
    void* const entry = dlsym(opened, library.entry);
    if (entry == nullptr) why = Escaped(place) + " has no " + library.entry + ": it is not a library of Gradloom";
    return entry;
  }
  return nullptr;
}

}  // namespace gradloom
