// Where the processes of a job meet, as torchrun's --rdzv-endpoint writes it.
#pragma once

#include <string>

namespace gradloom {

struct Endpoint {
  std::string host;
  int port = -1;  // -1: none is given; -2: it is not a whole number from 0
};

// "host", "host:29500", "[fe80::1]:29500".
Endpoint EndpointOf(const std::string& text);

}  // namespace gradloom
