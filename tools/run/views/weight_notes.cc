#include "tools/run/views/weight_notes.h"

#include <cstddef>

#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/listing.h"

namespace gradloom {
namespace {

constexpr size_t kShown = 3;

}  // namespace

std::vector<std::string> WeightNotes(const Model& model, const Plan& plan) {
  std::vector<std::string> notes;
  if (const auto count = static_cast<int64_t>(model.restored().size()); count > 0) {
    Listing names(kShown);
    for (const std::string& name : model.restored()) names.Add(Escaped(name, 80));
    notes.push_back("restore " + Counted(count, "tensor") +
                    " that the exporter merged with equal ones, left out, folded or stored in another form: " + names.text() +
                    "; --no-restore trains the file as it is");
  }
  const std::vector<TiedTensor>& tied = plan.model.tied;
  for (size_t i = 0; i < tied.size(); ++i) {
    if (i == kShown) {
      notes.push_back("tied    " + std::to_string(tied.size() - kShown) + " more");
      break;
    }
    notes.push_back("tied    " + Escaped(tied[i].name, 80) + " is " + Escaped(tied[i].source, 80) +
                    ", transposed: one weight is trained; --no-tie trains two");
  }
  return notes;
}

}  // namespace gradloom
