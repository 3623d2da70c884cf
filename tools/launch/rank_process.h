// One process of a job: started with streams of its own in a process group of its own, so that all that it starts can be stopped with it.
#pragma once

#include <sys/types.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/launch/launch_options.h"

namespace gradloom {

// What a process writes to a pipe, in a file and line by line on the terminal, each line behind the name of its rank.
class LineTee {
 public:
  // `read_end` is closed with the object. `terminal`: a descriptor that is not.
  LineTee(int read_end, int file, int terminal, std::string prefix);
  ~LineTee();
  LineTee(const LineTee&) = delete;
  LineTee& operator=(const LineTee&) = delete;

  int read_end() const { return read_end_; }
  // Passes on what is there, without waiting. False at the end.
  bool Pump();

 private:
  int read_end_, file_, terminal_;
  std::string prefix_;
  std::string line_;  // the one that is not complete
};

struct RankCommand {
  std::vector<std::string> words;  // the program, looked up in PATH, and its arguments
  bool this_program = false;       // words are arguments of gradloom itself
  EnvironmentVariables environment;
  std::array<StreamTarget, 2> streams;
  std::array<std::string, 2> files;  // of stdout and stderr, where a stream has one
  std::string prefix;                // of lines on the terminal that would go to a file alone
};

struct RankProcess {
  pid_t pid = -1;  // also of its process group
  std::vector<std::unique_ptr<LineTee>> tees;
};

// Starts it with stdin at its end. It is killed when the thread that called this dies. Throws Error(kConfig) for a program that cannot be
// run, Error(kResource) where the system gives no process or file.
RankProcess StartRank(const RankCommand& command);

}  // namespace gradloom
