// Files that another file names, which may come from anyone: the external data of a model, the shards of an index. Only files below a given
// folder are opened.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/descriptor.h"
#include "runtime/base/file.h"

namespace gradloom {

// What names a file, as errors show it.
struct NamedBy {
  std::string subject;  // "the index", which "names a file by an absolute path"
  std::string where;
  std::string help;
};

// Throws Error(kPath) unless the name is a relative path that leads to no folder above: not empty, not a URL, not of Windows, without "..",
// NUL bytes, and more than 4,096 bytes.
void CheckFileName(const std::string& name, const NamedBy& by);

// The files below a folder. Safe for any number of threads.
class ConfinedFolder {
 public:
  // `naming_file`: the file that names the others; empty: it is in memory. If it is a link, as in Hugging Face's cache (snapshots/), whose
  // files are links into a folder of blobs, links may also lead into the folder where it really is. A folder that cannot be opened is an
  // error of Open.
  explicit ConfinedFolder(const std::string& folder, const std::string& naming_file = {});

  // Opens a file below the folder. Throws Error(kPath) for a name that CheckFileName refuses, a link that leads out of the folder, and what
  // is not a regular file, Error(kIo) if it cannot be opened, and Error(kLimit) for one with more than `limit_bytes`. Nothing is read
  // before these checks, and no link that changes meanwhile leads elsewhere.
  InputFile Open(const std::string& name, const NamedBy& by, int64_t limit_bytes) const;

 private:
  Descriptor OpenThroughLinks(const std::string& name) const;

  std::string path_;
  Descriptor folder_;
  int error_ = 0;                      // why the folder could not be opened
  std::vector<std::string> may_lead_;  // real paths of the folders into which links may lead
};

}  // namespace gradloom
