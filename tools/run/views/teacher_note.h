// A hint about weights that a module may compute without gradients.
#pragma once

#include <string>
#include <vector>

#include "compiler/compile.h"

namespace gradloom {

// A file does not record torch.no_grad(), so the weights of a teacher that a module calls under it are trained. If names of trained weights
// say that they are those of a teacher, or of a target, momentum or ema copy of other trained weights, a line that names these modules as
// patterns for --freeze (the first few, and how many more); otherwise "".
std::string TeacherNote(const std::vector<CompileReport::Reason>& trained);

}  // namespace gradloom
