#include "runtime/comm/mpi_library.h"

#include "runtime/device/plugin.h"

namespace gradloom {

MpiLibrary* OpenMpiLibrary(std::string& why) {
  // Opened globally, because MPI's own components look up its symbols in the global scope.
  const PluginLibrary library{.file = "libgradloom_mpi.so",
                              .variable = "GRADLOOM_MPI_LIBRARY",
                              .build_folder = "runtime/comm/mpi",
                              .entry = kMpiLibraryEntry,
                              .global = true};
  const auto entry = reinterpret_cast<MpiLibraryEntry>(OpenPlugin(library, why));
  if (entry == nullptr) return nullptr;
  MpiLibrary* const opened = entry(kMpiLibraryVersion);
  if (opened == nullptr) why = "the MPI library belongs to a different version of Gradloom";
  return opened;
}

}  // namespace gradloom
