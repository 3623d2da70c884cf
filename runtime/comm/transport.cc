#include "runtime/comm/transport.h"

#include <string>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"

namespace gradloom {

std::thread StartReceiver(std::function<void()> receive) {
  try {
    return std::thread(std::move(receive));
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::kResource, std::string("cannot start the thread that receives from other processes: ") + error.what());
  }
}

}  // namespace gradloom
