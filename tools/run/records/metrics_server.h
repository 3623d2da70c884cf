// A small HTTP server with its own thread, for Prometheus and health checks: GET /metrics, GET /healthz.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "runtime/comm/socket.h"

namespace gradloom {

// Serves one connection at a time, with one request of at most 8 KiB and two seconds. Other clients are rejected, and none affects the run.
class MetricsServer {
 public:
  // Listens immediately, so that early clients wait; `port` 0: any free port. `metrics` is called on the server's thread and returns a page
  // in Prometheus' text format. Throws Error(kConfig) for an address that does not belong to this host, Error(kResource) for a port that is
  // in use.
  MetricsServer(const std::string& address, int port, std::function<std::string()> metrics);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // Starts answering requests. Call once.
  void Start();

  // "127.0.0.1:9100"
  std::string where() const;

 private:
  void Serve(const std::stop_token& stop);
  void Answer(const Socket& connection) const;

  Socket listener_;
  std::function<std::string()> metrics_;
  std::jthread thread_;  // last member: it ends before what it uses
};

}  // namespace gradloom
