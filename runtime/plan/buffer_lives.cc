#include "runtime/plan/buffer_lives.h"

#include <cstddef>

namespace gradloom {

std::vector<BufferLife> LivesOf(const Program& program) {
  std::vector<BufferLife> lives(program.buffers.size());
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    for (const Use& use : program.instructions[i].uses) {
      for (int id = use.buffer; id >= 0; id = program.buffers[static_cast<size_t>(id)].whole) {
        BufferLife& life = lives[static_cast<size_t>(id)];
        if (life.first < 0) life.first = static_cast<int>(i);
        life.last = static_cast<int>(i);
      }
    }
  }
  return lives;
}

}  // namespace gradloom
