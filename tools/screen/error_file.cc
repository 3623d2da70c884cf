#include "tools/screen/error_file.h"

#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/file.h"

namespace gradloom {

void WriteErrorFile(const std::string& message) noexcept {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0') return;
  try {
    // torchrun shows the call stack instead of the message if there is one, even an empty one.
    const nlohmann::json extra{{"py_callstack", message}, {"timestamp", std::to_string(std::time(nullptr))}};
    const nlohmann::json file{{"message", {{"message", message}, {"extraInfo", extra}}}};
    // Names of a hostile model may not be UTF-8.
    WriteFileAtomically(path, file.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } catch (const std::exception&) {
  }
}

std::string ReadErrorFile(const std::string& path) {
  constexpr std::streamsize kMax = 1 << 20;
  std::ifstream in(path, std::ios::binary);
  std::string text(static_cast<size_t>(kMax), '\0');
  in.read(text.data(), kMax);
  text.resize(static_cast<size_t>(in.gcount()));
  const nlohmann::json file = nlohmann::json::parse(text, nullptr, false);
  if (!file.is_object() || !file.contains("message")) return "";
  const nlohmann::json& message = file["message"];
  if (message.is_string()) return message.get<std::string>();
  // A call stack ends with the message.
  for (const char* place : {"/extraInfo/py_callstack", "/message"}) {
    const nlohmann::json::json_pointer pointer(place);
    if (!message.contains(pointer) || !message[pointer].is_string()) continue;
    if (std::string text = message[pointer].get<std::string>(); !text.empty()) return text;
  }
  return "";
}

}  // namespace gradloom
