#include "tools/run/records/metrics_server.h"

#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string_view>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr size_t kMaxBytes = 8192;
constexpr auto kTimeLimit = std::chrono::seconds(2);

// The head of a request, up to the empty line; nullopt if it does not arrive completely.
std::optional<std::string> ReadHead(const Socket& connection, Deadline deadline) {
  std::string head;
  // Read byte by byte, because the end of the head is unknown; a scrape has about two hundred bytes.
  for (char c = 0; head.size() < kMaxBytes && connection.Read(&c, 1, deadline);) {
    head += c;
    if (head.ends_with("\r\n\r\n") || head.ends_with("\n\n")) return head;
  }
  return std::nullopt;
}

std::string Response(std::string_view status, std::string_view type, const std::string& body, bool with_body, std::string_view more = "") {
  return "HTTP/1.1 " + std::string(status) + "\r\nContent-Type: " + std::string(type) +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n" + std::string(more) + "\r\n" +
         (with_body ? body : "");
}

std::string Refusal(std::string_view status, std::string_view more = "") {
  return Response(status, "text/plain; charset=utf-8", std::string(status) + "\n", true, more);
}

}  // namespace

MetricsServer::MetricsServer(const std::string& address, int port, std::function<std::string()> metrics) : metrics_(std::move(metrics)) {
  if (port > 65535) throw Error(ErrorCode::kConfig, "invalid port " + std::to_string(port), "--metrics-port", "expected 0 to 65535");
  const std::vector<SocketAddress> addresses = Resolve(address, port);
  if (addresses.empty()) {
    throw Error(ErrorCode::kConfig, "invalid address '" + Escaped(address) + "'", "--metrics-address",
                "use 127.0.0.1 for this host only, 0.0.0.0 for all");
  }
  std::optional<Socket> listener = Socket::Listen(addresses.front());
  if (!listener) {
    throw Error(ErrorCode::kResource, "cannot serve metrics at " + Escaped(address) + ":" + std::to_string(port), "--metrics-port",
                "choose a free port, or 0, and an address of this host");
  }
  listener_ = std::move(*listener);
}

void MetricsServer::Start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { Serve(stop); });
}

MetricsServer::~MetricsServer() {
  thread_.request_stop();
  // Wakes the thread, which would otherwise wait until its deadline.
  Socket::Connect(listener_.local(), std::chrono::steady_clock::now() + kTimeLimit);
}

std::string MetricsServer::where() const {
  const SocketAddress local = listener_.local();
  const bool six = local.host().find(':') != std::string::npos;
  return (six ? "[" + local.host() + "]" : local.host()) + ":" + std::to_string(local.port());
}

void MetricsServer::Serve(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const auto connection = listener_.Accept(std::chrono::steady_clock::now() + kTimeLimit);
    if (connection && !stop.stop_requested()) Answer(*connection);
  }
}

void MetricsServer::Answer(const Socket& connection) const {
  const Deadline deadline = std::chrono::steady_clock::now() + kTimeLimit;
  const std::optional<std::string> head = ReadHead(connection, deadline);
  std::string answer;
  if (!head) {
    answer = Refusal("400 Bad Request");
  } else {
    // METHOD TARGET HTTP/1.1
    const std::string_view line = std::string_view(*head).substr(0, head->find_first_of("\r\n"));
    const size_t first = line.find(' '), second = line.find(' ', first == std::string_view::npos ? first : first + 1);
    if (second == std::string_view::npos || !line.substr(second + 1).starts_with("HTTP/1.")) {
      answer = Refusal("400 Bad Request");
    } else {
      const std::string_view method = line.substr(0, first), target = line.substr(first + 1, second - first - 1);
      const std::string_view path = target.substr(0, target.find('?'));
      const bool with_body = method != "HEAD";
      if (method != "GET" && method != "HEAD") {
        answer = Refusal("405 Method Not Allowed", "Allow: GET, HEAD\r\n");
      } else if (path == "/metrics") {
        answer = Response("200 OK", "text/plain; version=0.0.4; charset=utf-8", metrics_(), with_body);
      } else if (path == "/healthz") {
        answer = Response("200 OK", "text/plain; charset=utf-8", "ok\n", with_body);
      } else {
        answer = Refusal("404 Not Found");
      }
    }
  }
  if (!connection.Write(answer.data(), answer.size(), deadline)) return;
  // Unread bytes would reset the connection and discard the response.
  shutdown(connection.fd(), SHUT_WR);
  char rest[1024];
  for (size_t bytes = 0; bytes < 64 * kMaxBytes && connection.Read(rest, sizeof rest, deadline); bytes += sizeof rest) continue;
}

}  // namespace gradloom
