// Interprets pointwise programs over tiles that stay in the L1 cache.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/catalog/pointwise.h"
#include "kernels/cpu/isa/loops.h"

namespace gradloom {

// How an operand is read along the elements of the output, after merging axes where possible.
struct BroadcastOperand {
  enum class Kind : uint8_t {
    kDense,     // element i for element i
    kScalar,    // one element for all
    kPeriodic,  // element i % period, for example a vector along the last axis
    kGeneral,   // by `steps`
  };
  Kind kind = Kind::kDense;
  int64_t period = 1;
  std::vector<int64_t> extents, steps;  // per axis, merged as this operand alone allows; 0 where repeated
};

// A program whose values have been assigned to tiles on the stack or to the operands' own memory.
class PointwiseKernel : public Kernel {
 public:
  // RejectsPointwise must accept the call.
  PointwiseKernel(const KernelCall& call, PointwiseProgram program, const Loops& loops);

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void* stream) override;

  // The number of tiles in use at the same time. At most kMaxTiles; more than 16 do not fit into the cache.
  int num_tiles() const { return num_tiles_; }
  static constexpr int kMaxTiles = 48;

 private:
  static constexpr int64_t kTile = 512;

  // Where a value of the program is while one tile is computed.
  struct Location {
    enum class Kind : uint8_t { kNone, kInput, kOutput, kTile };
    Kind kind = Kind::kNone;
    int index = 0;  // of the input, output or tile
  };
  struct Step {
    PointwiseLoop loop = nullptr;
    int a = 0, b = 0, c = 0, d = 0;  // indices into locations_
  };
  struct Fill {
    int input = -1, constant = -1;
    int location = 0;
  };
  // A tile that an operand is copied to for each tile of the output.
  struct Gather {
    int input = 0;
    int location = 0;
  };
  struct Copy {
    int location = 0, output = 0;
    DType dtype = DType::kFloat32;  // of the output
  };

  bool IsConversion(const KernelCall& call, const PointwiseProgram& program) const;
  void PlaceInputs(const KernelCall& call, const PointwiseProgram& program);
  void PlaceResults(const KernelCall& call, const PointwiseProgram& program);
  int NewTile();
  void RunRange(const void* const* inputs, void* const* outputs, int64_t begin, int64_t end) const;
  void GatherTile(const Gather& gather, const void* input, float* tile, int64_t begin, int64_t n) const;

  const Loops* loops_;
  int64_t elements_ = 0;
  int threads_ = 1;
  std::vector<BroadcastOperand> operands_;
  std::vector<DType> dtypes_;  // by input
  std::vector<float> constants_;
  std::vector<Location> locations_;  // by operand number of the program
  std::vector<Step> steps_;
  std::vector<Fill> fills_;
  std::vector<Gather> gathers_;
  std::vector<Copy> copies_;
  std::vector<int> periodic_;  // periodic inputs, which are written to their tiles once
  int num_tiles_ = 0;
  bool converts_ = false;  // only changes the type: no tile is needed
};

// Why the tile interpreter cannot run the call, or "".
std::string RejectsPointwise(const KernelCall& call);

}  // namespace gradloom
