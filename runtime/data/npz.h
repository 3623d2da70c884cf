// Numpy's .npz files: a zip file of .npy files.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/data/data_limits.h"
#include "runtime/data/npy.h"
#include "runtime/data/stored_array.h"

namespace gradloom {

// Reads the arrays of numbers by name (without ".npy"), stored or deflated; text arrays are left out. Nothing is unpacked to disk. Throws
// Error(kData) naming file and entry for a file that is not a zip file, a wrong checksum, an entry that is shorter or longer than it
// claims, encrypted or compressed in another way, two entries of one name, a name with a ".." component, and what ReadNpy refuses. Throws
// Error(kLimit) if the file, or all arrays unpacked, exceed `limit_bytes`: before any is unpacked, and no entry is ever unpacked beyond its
// claim.
std::map<std::string, Tensor> ReadNpz(const std::string& path, int64_t limit_bytes = kDataLimitBytes);
// Only the arrays of these names that exist. Throws Error(kData) for text among them.
std::map<std::string, Tensor> ReadNpz(const std::string& path, const std::set<std::string>& names, int64_t limit_bytes = kDataLimitBytes);

// All arrays, those of text apart.
struct NpzArrays {
  std::map<std::string, Tensor> numbers;
  std::map<std::string, NpyText> texts;
};
NpzArrays ReadNpzArrays(const std::string& path, int64_t limit_bytes = kDataLimitBytes);

// The names of the arrays, in the order of the file. Throws like ReadNpz, but unpacks nothing.
std::vector<std::string> NpzNames(const std::string& path, int64_t limit_bytes = kDataLimitBytes);

// The types of all arrays, or of those of these names that exist: kString for text. Unpacks only their headers, and compares no checksums.
// Throws like ReadNpz.
std::map<std::string, TensorView> NpzTypes(const std::string& path);
std::map<std::string, TensorView> NpzTypes(const std::string& path, const std::set<std::string>& names);

// Opens one array of a file, which stays open; nullopt if there is none of this name. Checksums are not compared. A compressed array, or
// one in Fortran order, is copied by this call (SpillBuffer) if the rule says so; nullopt if it does not. Throws like ReadNpz.
std::optional<StoredArray> OpenNpz(const std::string& path, const std::string& name, const CopyRule& copies);

// Writes arrays uncompressed, or deflated with `compress`; the same content gives the same bytes. Throws like NpyHeader and AtomicFile, and
// Error(kData) for a name that ReadNpz would refuse.
void WriteNpz(const std::string& path, const std::map<std::string, TensorView>& arrays, bool compress = false);
void WriteNpz(const std::string& path, const std::map<std::string, Tensor>& arrays, bool compress = false);

}  // namespace gradloom
