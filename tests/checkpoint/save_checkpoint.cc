// save_checkpoint FOLDER: saves the sample state of step 7 and prints each tensor as a line of JSON, for safetensors_test.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tests/checkpoint/sample_session.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  gradloom::Session session = gradloom::SampleSession();
  gradloom::SetSampleState(session, 7);
  gradloom::CheckpointFolder(argv[1], gradloom::IdentityOf(session.plan())).Save(session, {});
  const auto bits = gradloom::BitsOf(session);
  for (const gradloom::StateTensor& state : session.plan().state) {
    std::string hex;
    for (unsigned char byte : bits.at(state.name)) {
      constexpr char kDigits[] = "0123456789abcdef";
      hex += {kDigits[byte >> 4], kDigits[byte & 15]};
    }
    const std::vector<int64_t> shape(state.shape.begin(), state.shape.end());
    std::printf("%s\n",
                nlohmann::json{{"name", state.name}, {"dtype", DTypeName(state.dtype)}, {"shape", shape}, {"hex", hex}}.dump().c_str());
  }
}
