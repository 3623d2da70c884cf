// Sums of outer products, for the weight gradients of convolutions.
#include "kernels/cpu/isa/panel_tile.h"
#include "kernels/cpu/isa/tables.h"

namespace gradloom::GRADLOOM_ISA {
namespace {

template <Index kRows, Index kVectors>
struct OuterTile {
  static void Run(const OuterArgs& args) {
    PanelTile<kRows, kVectors> tile;
    for (const OuterRun *run = args.runs, *end = run + args.count; run < end; ++run) {
      tile.Add(args.a + run->a, 1, args.a_step, args.b + run->b, run->points);
    }
    tile.Finish(args.c, args.adds);
  }
};

}  // namespace

void AddOuterProducts(const OuterArgs& args) { RunTile<OuterArgs, OuterTile>(args); }

}  // namespace gradloom::GRADLOOM_ISA
