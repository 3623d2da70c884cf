#include "tools/run/views/function_note.h"

#include <cstddef>

#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/listing.h"

namespace gradloom {
namespace {

constexpr size_t kShown = 3;

}  // namespace

std::string FunctionNote(const Model& model) {
  const FunctionCode code = CodeOfFunctions(model);
  if (code.nodes == 0) return "";
  Listing places(kShown);
  for (const std::string& place : code.places) places.Add(Escaped(place, 80));
  return "note    " + Counted(code.nodes, "node comes", "nodes come") + " from a forward() that is no module's (" + places.text() +
         "), probably an autograd function's: files do not record its backward(), so the gradient is that of what forward() computes; "
         "if they differ on purpose, the model trains differently here";
}

}  // namespace gradloom
