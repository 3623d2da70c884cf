// Numpy's .npz files: a zip file of .npy files.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "runtime/base/file.h"
#include "runtime/base/tensor.h"
#include "runtime/session/stored_array.h"

namespace gradloom {

// The arrays by name (without ".npy"), stored or deflated. Nothing is unpacked to disk.
// Error(kData) names file and entry: no zip file, a wrong checksum, an entry shorter or longer than it claims
// or encrypted or compressed in another way, two entries of one name, a name with a ".." component, and what
// ReadNpy refuses. Error(kLimit) where the file, or all arrays unpacked, pass `limit_bytes`: before any is
// unpacked, and no entry is ever unpacked past its claim.
std::map<std::string, Tensor> ReadNpz(const std::string& path, int64_t limit_bytes = kFileLimitBytes);
// Of these names alone, as far as they are there.
std::map<std::string, Tensor> ReadNpz(const std::string& path, const std::set<std::string>& names, int64_t limit_bytes = kFileLimitBytes);

// One array of a file that stays open; nothing where there is none of this name, or as OpenNpy has it. No checksum is compared. One that is
// compressed is unpacked by this call, and kept as SpillBuffer has it, where it has `unpack_bytes` or more; nothing where it has fewer.
// Errors as ReadNpz's.
std::optional<StoredArray> OpenNpz(const std::string& path, const std::string& name, int64_t unpack_bytes,
                                   int64_t limit_bytes = kFileLimitBytes);

// Arrays stored uncompressed, or deflated with `compress`; the same content gives the same bytes. Errors as
// WriteNpy and AtomicFile; Error(kData) for a name that ReadNpz would refuse.
void WriteNpz(const std::string& path, const std::map<std::string, TensorView>& arrays, bool compress = false);
void WriteNpz(const std::string& path, const std::map<std::string, Tensor>& arrays, bool compress = false);

}  // namespace gradloom
