// One process of a job, started with its own output streams in its own process group, so that everything it starts can be stopped with it.
#pragma once

#include <sys/types.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/launch/launch_options.h"

namespace gradloom {

// Copies the output of a process from a pipe to a file and, line by line, to the terminal, each line prefixed with the rank.
class LineTee {
 public:
  // Owns `read_end`. `terminal` is borrowed.
  LineTee(int read_end, int file, int terminal, std::string prefix);
  ~LineTee();
  LineTee(const LineTee&) = delete;
  LineTee& operator=(const LineTee&) = delete;

  int read_end() const { return read_end_; }
  // Copies a piece of the available output without blocking, so that a process that prints without pause does not keep the launcher from
  // the others. Returns false at the end of the stream.
  bool Pump() { return Copy() != 0; }
  // Copies what a process that has ended left in the pipe. Descendants that still print are not waited for.
  void Drain();

 private:
  // Returns the number of bytes: 0 at the end of the stream, negative if none are available.
  ssize_t Copy();
  // Passes the first bytes of line_, which are whole lines or the end, on to the terminal.
  void Show(size_t bytes);

  int read_end_, file_, terminal_;
  std::string prefix_;
  std::string line_;  // the incomplete last line
};

struct RankCommand {
  std::vector<std::string> words;  // the program, looked up in PATH, and its arguments
  bool this_program = false;       // the words are arguments of gradloom itself
  EnvironmentVariables environment;
  std::array<StreamTarget, 2> streams;
  std::array<std::string, 2> files;  // files of stdout and stderr, if they have one
  std::string prefix;                // prefix of lines on the terminal
};

struct RankProcess {
  pid_t pid = -1;  // also the id of its process group
  std::vector<std::unique_ptr<LineTee>> tees;
};

// Starts the process with an empty stdin. It is killed when the calling thread ends. Throws Error(kConfig) for a program that cannot be
// run, Error(kResource) if the system provides no process or file.
RankProcess StartRank(const RankCommand& command);

}  // namespace gradloom
