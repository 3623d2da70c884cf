#include "tests/comm/forked_job.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "runtime/base/error.h"
#include "runtime/comm/socket.h"

namespace gradloom {
namespace {

int words_fd = -1;

}  // namespace

int FreePort() {
  const auto port = FreePort("127.0.0.1");
  GRADLOOM_CHECK(port.has_value());
  return *port;
}

JobTopology TopologyOf(int rank, int world, int port) {
  return {.rank = rank, .world = world, .local_rank = rank, .local_world = world, .master_address = "127.0.0.1", .master_port = port};
}

void Say(const std::string& words) { GRADLOOM_CHECK(write(words_fd, words.data(), words.size()) == static_cast<ssize_t>(words.size())); }

std::vector<ForkedEnd> RunForked(int world, const std::function<void(const JobTopology&)>& body, int seconds) {
  const int port = FreePort();
  std::vector<int> readers;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < world; ++rank) {
    int ends[2];
    GRADLOOM_CHECK(pipe(ends) == 0);
    const pid_t pid = fork();
    GRADLOOM_CHECK(pid >= 0);
    if (pid == 0) {
      words_fd = ends[1];
      alarm(static_cast<unsigned>(seconds));
      int code = 0;
      try {
        body(TopologyOf(rank, world, port));
      } catch (const Error& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.Describe().c_str());
        Say(error.Describe());
        code = ExitCode(error.code());
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        Say(error.what());
        code = 1;
      }
      _exit(code);
    }
    close(ends[1]);
    readers.push_back(ends[0]);
    pids.push_back(pid);
  }
  std::vector<ForkedEnd> ended(static_cast<size_t>(world));
  for (size_t i = 0; i < pids.size(); ++i) {
    char text[4096];
    for (ssize_t n; (n = read(readers[i], text, sizeof text)) > 0;) ended[i].words.append(text, static_cast<size_t>(n));
    close(readers[i]);
    int status = 0;
    GRADLOOM_CHECK(waitpid(pids[i], &status, 0) == pids[i]);
    ended[i].code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  return ended;
}

}  // namespace gradloom
