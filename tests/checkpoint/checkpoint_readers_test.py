"""The rank files of a checkpoint are safetensors files: the reference implementation reads the same bits."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

SAVE_CHECKPOINT = os.path.abspath(sys.argv.pop(1))


class SafetensorsTest(unittest.TestCase):
    def test_the_reference_reads_a_rank_file(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([SAVE_CHECKPOINT, folder], check=True, stdout=subprocess.PIPE, text=True)
            saved = [json.loads(line) for line in done.stdout.splitlines()]
            path = os.path.join(folder, "step-000007", "rank-0.safetensors")
            tensors = safetensors.numpy.load_file(path)
            with safetensors.safe_open(path, "numpy") as file:
                self.assertEqual(file.metadata(), {"format": "gradloom-checkpoint", "rank": "0", "step": "7"})
        self.assertEqual(sorted(tensors), sorted(tensor["name"] for tensor in saved))
        self.assertEqual(len({tensor["dtype"] for tensor in saved}), 13)
        for tensor in saved:
            dtype = ml_dtypes.bfloat16 if tensor["dtype"] == "bfloat16" else np.dtype(tensor["dtype"])
            array = tensors[tensor["name"]]
            self.assertEqual((array.dtype, list(array.shape)), (dtype, tensor["shape"]), tensor["name"])
            self.assertEqual(array.tobytes().hex(), tensor["hex"], tensor["name"])


if __name__ == "__main__":
    unittest.main()
