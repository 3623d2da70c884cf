"""Small Keras models, and `python keras_models.py NAME WEIGHTS.npz MODEL.onnx`, which exports one with the given weights. Keras with
TensorFlow cannot run in the same process as PyTorch, so a recording calls this script with another Python."""
import os
import sys

import numpy as np


def models() -> dict:
    """name: (function that builds the model, shape of the input without the batch (extents, or (limit, extents) for tokens), loss)"""
    import keras
    from keras import layers as L

    net = lambda shape, *layers, dtype=None: keras.Sequential([L.Input(shape, dtype=dtype), *layers])
    image = (8, 8, 2)

    def attention():
        i = L.Input((6,), dtype="int32")
        x = L.Embedding(12, 8)(i)
        y = L.LayerNormalization()(x)
        x = L.Add()([x, L.MultiHeadAttention(2, 4)(y, y, use_causal_mask=True)])
        return keras.Model(i, L.Dense(12)(L.Add()([x, L.Dense(8)(L.Dense(12, activation="silu")(x))])))

    def unet():
        i = L.Input((8, 8, 2))
        a = L.Conv2D(4, 3, padding="same", activation="relu")(i)
        b = L.Conv2D(6, 3, strides=2, padding="same", activation="elu")(a)
        return keras.Model(i, L.Conv2D(2, 1)(L.Concatenate()([a, L.Conv2DTranspose(4, 2, strides=2)(b)])))

    return {
        "regression": (lambda: net((5,), L.Dense(8, "tanh"), L.Dense(1)), (5,), "mse"),
        "batchnorm": (lambda: net((5,), L.Dense(8), L.BatchNormalization(), L.Activation("relu"), L.Dense(3)), (5,), "cross_entropy"),
        "cnn": (lambda: net(image, L.Conv2D(4, 3, activation="relu"), L.BatchNormalization(), L.MaxPooling2D(2), L.Flatten(), L.Dense(3)), image, "cross_entropy"),
        "separable": (lambda: net(image, L.SeparableConv2D(4, 3, padding="same", activation="swish"), L.DepthwiseConv2D(3, strides=2), L.GlobalAveragePooling2D(), L.Dense(3)), image, "cross_entropy"),
        "lstm": (lambda: net((5,), L.Embedding(12, 6), L.LSTM(5, return_sequences=True), L.LSTM(4), L.Dense(3), dtype="int32"), (12, (5,)), "cross_entropy"),
        "gru": (lambda: net((5, 3), L.Bidirectional(L.GRU(4, return_sequences=True)), L.GRU(4, reset_after=False), L.Dense(3)), (5, 3), "cross_entropy"),
        "conv1d": (lambda: net((8, 3), L.Conv1D(4, 3, padding="causal", activation="silu"), L.LayerNormalization(), L.AveragePooling1D(2), L.Conv1D(3, 2), L.GlobalMaxPooling1D(), L.Dense(3)), (8, 3), "cross_entropy"),
        "attention": (attention, (12, (6,)), "tokens"),
        "unet": (unet, image, "mse"),
        "norms": (lambda: net((6, 6, 4), L.Conv2D(4, 1), L.GroupNormalization(2), L.PReLU(), L.UnitNormalization(), L.RMSNormalization(), L.Flatten(), L.Dense(1, "sigmoid")), (6, 6, 4), "bce"),
        "rescaled": (lambda: net(image, L.Rescaling(1 / 3), L.Normalization(mean=[0.2, 0.5], variance=[0.7, 1.5]), L.Conv2D(4, 3), L.ReLU(), L.Flatten(), L.Dense(2)), image, "cross_entropy"),
    }


def is_tokens(shape) -> bool:
    return isinstance(shape[-1], tuple)


def put(net, values):
    for variable, value in zip(net.trainable_variables + net.non_trainable_variables, values, strict=True):
        variable.assign(value)


def export(net, shape, values, path: str):
    """Writes the file as a user would, with these values for all variables."""
    put(net, values)
    # the export requires that the model was called
    net(np.zeros((2, *shape[-1]), np.int32) if is_tokens(shape) else np.zeros((2, *shape), np.float32))
    net.export(path, format="onnx", verbose=False)


if __name__ == "__main__":
    os.environ["KERAS_BACKEND"] = "tensorflow"
    with np.load(sys.argv[2]) as file:
        make, shape, _ = models()[sys.argv[1]]
        export(make(), shape, [file[k] for k in file.files], sys.argv[3])
