// Shares the parameters of a session with other processes of the same user and host, which read them while it trains, without a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/layout.h"
#include "runtime/base/tensor.h"
#include "runtime/session/session.h"

namespace gradloom {

// The session's side. Its state moves, without changing its addresses, into memory that has no name in any file system. Attaching processes
// get a descriptor of it over a socket, which has no name in a file system either. The socket ends with this object or its process, the
// memory with the last process that has it: nothing is left behind, and nobody waits for anybody. A step's updates are seen as they are
// written.
class ParameterShare {
 public:
  // `name`: letters, digits, '.', '_' and '-', at most 64. Throws Error(kConfig) for other names and for one that is taken on this host,
  // Error(kUnsupported) if the state is not in this host's memory or is divided among devices, Error(kResource).
  ParameterShare(Session& session, const std::string& name);
  ~ParameterShare();
  ParameterShare(const ParameterShare&) = delete;
  ParameterShare& operator=(const ParameterShare&) = delete;

 private:
  void Serve() const;

  int memory_ = -1, socket_ = -1, wake_ = -1;
  std::thread thread_;
};

// The side of an attached process. Several threads may read at once.
class AttachedParameters {
 public:
  struct Parameter {
    std::string name;
    DType dtype{};
    Shape shape;
    Layout layout;
    const std::byte* stored = nullptr;  // elements in the order of `layout`

    // A copy in row-major order.
    Tensor Get() const;
  };

  // Throws Error(kConfig) if nobody shares under this name, or only another user does, and Error(kData) if what is shared is not
  // parameters.
  explicit AttachedParameters(const std::string& name);

  // Parameters, then running statistics.
  const std::vector<Parameter>& parameters() const { return parameters_; }

 private:
  void Map(int fd);

  std::shared_ptr<const std::byte> mapped_;
  std::vector<Parameter> parameters_;
};

}  // namespace gradloom
