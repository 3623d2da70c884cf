// A small HTTP server on a thread of its own, for what collects numbers: GET /metrics, GET /healthz.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "runtime/comm/socket.h"

namespace gradloom {

// One connection at a time, with one request of at most 8 KiB and two seconds; whoever sends more, other things or nothing is sent away,
// and the run notices none of it.
class MetricsServer {
 public:
  // Listens at once, so that who comes early waits; `port` 0: one that is free. `metrics` is called on the server's thread and gives a page
  // in Prometheus' text format.
  // Throws Error(kConfig) for an address that is none of this host's, Error(kResource) for a port that is taken.
  MetricsServer(const std::string& address, int port, std::function<std::string()> metrics);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // From here on whoever comes is answered. Once.
  void Start();

  // "127.0.0.1:9100"
  std::string where() const;

 private:
  void Serve(const std::stop_token& stop);
  void Answer(const Socket& connection) const;

  Socket listener_;
  std::function<std::string()> metrics_;
  std::jthread thread_;  // last: it ends before what it uses
};

}  // namespace gradloom
