// The C++20 interface of Gradloom: header-only over the C table of gradloom_c.h, so there is one ABI. Link libgradloom.so.
//
//   gradloom::Model model("mnist_cnn.onnx");
//   gradloom::CompileOptions options;
//   options.loss = gradloom::Loss::CrossEntropy("logits", "label");
//   options.optimizer = gradloom::AdamW{.lr = 1e-3};
//   gradloom::Plan plan = gradloom::Compile(model, options);
//   gradloom::Session session(plan, {.seed = 1234});
//
// docs/embedding.md has complete programs. Errors are thrown as gradloom::Error. Handles are released automatically. Models, plans,
// checkpoints and data sets are constant and cheap to copy; sessions can be moved. Each function says whether it borrows, copies or takes
// ownership. The rules for threads are those of gradloom_c.h.
#pragma once

// Of GCC 10, whose C++20 has all that is needed.
#if __cplusplus < 201709L
#error "gradloom.h needs C++20: compile with -std=c++20. gradloom_c.h is for C99 and older C++."
#endif

#include "gradloom/dataset.h"  // IWYU pragma: export
#include "gradloom/error.h"    // IWYU pragma: export
#include "gradloom/plan.h"     // IWYU pragma: export
#include "gradloom/session.h"  // IWYU pragma: export
#include "gradloom/tensor.h"   // IWYU pragma: export
#include "gradloom/trainer.h"  // IWYU pragma: export
