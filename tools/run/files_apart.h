// Checks that a command does not write over what it reads.
#pragma once

#include <string>
#include <vector>

#include "tools/config/configuration.h"

namespace gradloom {

// kModel: in ONNX's format, perhaps with external data. kData: as the readers of data understand it, where a path may mean several files.
enum class PathKind { kOther, kModel, kData };

// A file or a folder of a command.
struct NamedPath {
  std::string path;
  std::string name;  // what names it, for messages: "--data", "the argument 'plan'"
  PathKind kind = PathKind::kOther;
  std::string external_dir = {};  // of a model; "": its own folder
};

// What a command with this configuration reads, or has been made from: model with external data, data, losses, weights and topology.
// `of`: the run that the configuration belongs to, for messages; "": the command's own.
std::vector<NamedPath> PathsRead(const Configuration& configuration, const std::string& of = "");

// Throws Error(kConfig) if a file that is to be written exists and is one of those to be read, under whatever name (a link), or among those
// that a pattern, a prefix or a folder means; or if two files to be written are the same. Of the folder of a run, its own records count,
// with what the run has been made from. What cannot be read is left to the command to report.
void CheckApart(const std::vector<NamedPath>& written, const std::vector<NamedPath>& read);

}  // namespace gradloom
