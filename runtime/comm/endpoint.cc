#include "runtime/comm/endpoint.h"

#include <cstddef>

#include "runtime/base/read_number.h"

namespace gradloom {

Endpoint EndpointOf(const std::string& text) {
  Endpoint endpoint;
  const size_t bracket = text.find(']');
  const bool v6 = text.starts_with("[") && bracket != std::string::npos;
  const size_t colon = text.find(':', v6 ? bracket : 0);
  endpoint.host = v6 ? text.substr(1, bracket - 1) : text.substr(0, colon);
  if (colon == std::string::npos) return endpoint;
  endpoint.port = ReadNumber<int>(text.substr(colon + 1)).value_or(-2);
  if (endpoint.port < 0) endpoint.port = -2;
  return endpoint;
}

}  // namespace gradloom
