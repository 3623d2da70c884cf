#!/usr/bin/env python3
"""Writes the two small models of the quick start: digits_cnn.onnx and housing_mlp.onnx.

Plain inference graphs with initial weights from a fixed seed, as any exporter could have written them. The compiler adds what training
needs (batch statistics, dropout, the loss). Run this after a change; the files are stored next to it. Needs numpy and onnx."""
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


class Builder:
    """A graph that is built node by node; weights use He initialization (He et al. 2015)."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights = [], []

    def weight(self, name, array):
        self.weights.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def node(self, op, inputs, output, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [output], name=output + "_node", **attributes))
        return output

    def conv_bn_relu(self, x, name, channels_in, channels_out):
        std = np.sqrt(2 / (channels_in * 9))
        w = self.weight(name + ".weight", self.random.normal(0, std, (channels_out, channels_in, 3, 3)))
        x = self.node("Conv", [x, w], name + "_conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        scale = self.weight(name + ".bn.weight", np.ones(channels_out))
        bias = self.weight(name + ".bn.bias", np.zeros(channels_out))
        mean = self.weight(name + ".bn.running_mean", np.zeros(channels_out))
        var = self.weight(name + ".bn.running_var", np.ones(channels_out))
        x = self.node("BatchNormalization", [x, scale, bias, mean, var], name + "_bn", epsilon=1e-5, momentum=0.9)
        return self.node("Relu", [x], name + "_relu")

    def linear(self, x, name, size_in, size_out, output=None):
        bound = np.sqrt(6 / size_in)
        w = self.weight(name + ".weight", self.random.uniform(-bound, bound, (size_out, size_in)))
        b = self.weight(name + ".bias", np.zeros(size_out))
        return self.node("Gemm", [x, w, b], output or name + "_out", transB=1)

    def write(self, path, name, inputs, outputs):
        graph = helper.make_graph(self.nodes, name, inputs, outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8,
                                  producer_name="gradloom", doc_string="made by models/make_models.py")
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)


def digits_cnn(path):
    """Images [N,1,8,8] in [0,1] to 10 logits: three convolutions, two pooling layers, dropout."""
    b = Builder(seed=1)
    x = b.conv_bn_relu("image", "block1", 1, 32)
    x = b.conv_bn_relu(x, "block2", 32, 32)
    x = b.node("MaxPool", [x], "pool1", kernel_shape=[2, 2], strides=[2, 2])
    x = b.conv_bn_relu(x, "block3", 32, 64)
    x = b.node("MaxPool", [x], "pool2", kernel_shape=[2, 2], strides=[2, 2])
    x = b.node("Flatten", [x], "flat")
    b.weights.append(numpy_helper.from_array(np.array(0.3, np.float32), "dropout.ratio"))
    x = b.node("Dropout", [x, "dropout.ratio"], "dropped")
    b.linear(x, "classifier", 256, 10, output="logits")
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])
    b.write(path, "digits_cnn", [image], [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])])


def housing_mlp(path):
    """13 features to the median house value: 13-16-32-1 with ReLU."""
    b = Builder(seed=2)
    x = b.linear("features", "layer1", 13, 16)
    x = b.node("Relu", [x], "relu1")
    x = b.linear(x, "layer2", 16, 32)
    x = b.node("Relu", [x], "relu2")
    b.linear(x, "layer3", 32, 1, output="value")
    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, ["N", 13])
    b.write(path, "housing_mlp", [features], [helper.make_tensor_value_info("value", TensorProto.FLOAT, ["N", 1])])


if __name__ == "__main__":
    here = pathlib.Path(__file__).parent
    digits_cnn(here / "digits_cnn.onnx")
    housing_mlp(here / "housing_mlp.onnx")
