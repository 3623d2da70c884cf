// Fuzzes configurations: as a file, and with the same text as the value of a --set flag.
#include <algorithm>

#include "tests/fuzz/fuzz_target.h"
#include "tools/config/configuration.h"

namespace gradloom {

std::vector<std::string> FuzzSeeds() {
  return {
      "version = 1\n[model]\npath = \"model.onnx\"\nshape = { N = 4, T = 8 }\n[data]\ntrain = \"train.csv\"\nmap = { x = \"a..d\", y = "
      "\"-1\" }\n",
      "[optimizer]\nname = \"adam\"\nlr = 1e-3 # a comment\nweight_decay = 0.5\n[train]\nepochs = 10\nearly_stop = 3\n",
      "model.path = 'm.onnx'\ntrain.epochs = 0x10\ndata.transform = { x = [\"scale 1/255\", \"resize\"] }\n",
      "[loss]\nterms = [\"cross_entropy(logits, label)\", \"0.5 * mse(a, b)\"]\n",
      "[schedule]\nname = \"cosine\"\nwarmup = 500\n[device]\ndevices = \"cpu:2\"\n",
      "a = 1979-05-27T07:32:00Z\nb = '''x\n'''\n[[c]]\n\"quoted key\".x.y = [[[[{ d.e.f = inf }]]]]\n"};
}

}  // namespace gradloom

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gradloom;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const FileInMemory file(text);
  MayRefuse([&] {
    Configuration configuration;
    configuration.ReadFile(file.path());
    // Whatever was read can be written and read back.
    const FileInMemory again(configuration.ToToml(false));
    try {
      Configuration().ReadFile(again.path());
    } catch (const Error& error) {
      Finding("what was written does not read back: " + error.Describe());
    }
  });
  // One object for all runs, since creating one takes as long as reading most files.
  Configuration configuration;
  for (const std::string key : {"data.map", "optimizer.lr", "model.freeze", "data.map.x"}) {
    MayRefuse([&] { configuration.SetAssignment(key + "=" + text); });
  }
  MayRefuse([&] { configuration.SetAssignment(text); });
  return 0;
}
